"""Wrongs done to the code: each is told by an invariant, and the documents say by which."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.model.mutating import Change, Mutation, TextIsGoneError, go, mutations, patched, told
from tests.model.schedule_table import WRONGS, wrong_line

AT_LEAST = 12
PROOF = Path(__file__).parents[2] / "docs" / "proof.md"


class Written(NamedTuple):
    """A line of the documents' table."""

    invariant: str
    after: int
    schedule: str


def written(mutation: Mutation) -> Written:
    """What the documents say of it."""
    line = next(line for line in PROOF.read_text(encoding="utf-8").splitlines() if f"| {mutation.what} |" in line)
    _, _, invariant, after, schedule, _ = line.split("|")
    return Written(invariant.strip(), int(after.replace(",", "")), schedule.strip(" `"))


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.what)
def test_a_wrong_is_told_by_an_invariant(mutation: Mutation, request: Any) -> None:
    """I1 to I12: a small wrong in one statement or function breaks the named invariant on the documented schedule, on
    which the code without it breaks none. `python -m tests.model` looks for the shortest ones anew."""
    line = written(mutation)
    assert told(mutation, line.schedule) == line.invariant
    assert told(mutation, line.schedule, sound=True) is None
    request.node.user_properties.append((WRONGS, f"{mutation.what}: {line.invariant}, `{line.schedule}`"))


@pytest.mark.parametrize("mutation", [mutations()[5], mutations()[14]], ids=lambda mutation: mutation.what)
def test_the_shortest_schedule_is_found(mutation: Mutation) -> None:
    """R42: the search comes upon the documented schedule, after as many as it says."""
    found = go(mutation)
    assert found is not None
    assert wrong_line(mutation.what, found) in PROOF.read_text(encoding="utf-8").splitlines()


def test_there_are_enough_of_them() -> None:
    """R42: each wrong is there once, and they are many."""
    whats = [mutation.what for mutation in mutations()]
    assert len(set(whats)) == len(whats) >= AT_LEAST


def test_a_wrong_whose_text_is_gone_is_loud() -> None:
    """R42: a mutation of what the code no longer says fails, instead of changing nothing."""
    gone = Change("core/lifecycle.py", "if the moon is full", "")
    with pytest.raises(TextIsGoneError, match="if the moon is full"):
        patched((gone,))
