"""Writes the tables of docs/protocol.md from the code, between marks, so that neither can say what the other does not.

python scripts/make_tables.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import Final

from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.lifecycle import TRANSITIONS, Event, Standing, Verdict, decide, standing
from twicesafe.core.policy import Policy
from twicesafe.core.problems import PROBLEMS
from twicesafe.core.record import Effects, Record, RecordState, StoredResponse
from twicesafe.core.replay import HOP_BY_HOP, PER_EXCHANGE

TARGET: Final = Path(__file__).parents[1] / "docs" / "protocol.md"

NOW: Final = 1_000_000
SOON: Final = NOW + 1
MINE: Final = b"\x01" * 33
OTHER: Final = b"\x02" * 33
ME: Final = b"m" * 16
THEM: Final = b"t" * 16

ANSWERS: Final = {
    Verdict.FREE: "run it",
    Verdict.OWN: "run it: the claim is mine, only its answer was lost",
    Verdict.TAKE_OVER: "run it",
    Verdict.HOLD: "record the outcome as unknown, then `outcome-unknown`",
    Verdict.SETTLE: "record it as done without a body, then `result-not-kept`",
    Verdict.REPLAY: "the stored answer, `Idempotent-Replayed: true`",
    Verdict.GONE: "`result-not-kept`, `Idempotent-Replayed: true`",
    Verdict.IN_PROGRESS: "`in-progress` with `Retry-After`, or a bounded wait and a second look",
    Verdict.UNKNOWN: "`outcome-unknown`",
    Verdict.MISMATCH: "`key-reused`",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown writes it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def transitions() -> str:
    """Events down, standings across; a dot is a refusal that changes nothing."""
    rows = ([f"**{event}**", *(TRANSITIONS[where].get(event, "·") for where in Standing)] for event in Event)
    return table(["", *Standing], rows)


def record(where: Standing, effects: Effects) -> Record:
    """A record that stands so at NOW, made by somebody else for the request MINE."""
    state = {
        Standing.COMPLETED: RecordState.COMPLETED,
        Standing.TOMBSTONE: RecordState.COMPLETED,
        Standing.UNKNOWN: RecordState.UNKNOWN,
    }.get(where, RecordState.CLAIMED)
    body = None if where in (Standing.TOMBSTONE, Standing.ANSWERED) else b""
    answered = state is RecordState.COMPLETED or where is Standing.ANSWERED
    made = Record(
        digest=b"",
        scope="",
        operation="",
        key_hint="",
        fingerprint=MINE,
        effects=effects,
        state=state,
        owner=THEM,
        epoch=1,
        created_at=0,
        lease_until=SOON if where is Standing.CLAIMED else NOW,
        key_until=SOON,
        body_until=SOON,
        response=StoredResponse(200, (), body) if answered else None,
    )
    assert standing(made, NOW) is where
    return made


def decisions() -> str:
    """What an attempt finds, and what it does."""
    rows = [[Standing.FREE.value, "any", "any", Verdict.FREE.value, ANSWERS[Verdict.FREE]]]
    found = [where for where in Standing if where is not Standing.FREE]
    refusals = {
        decide(record(where, effects), GivenFingerprint(OTHER), ME, NOW) for where in found for effects in Effects
    }
    assert refusals == {Verdict.MISMATCH}
    rows.append(["any other", "another", "any", Verdict.MISMATCH.value, ANSWERS[Verdict.MISMATCH]])
    cases = [(where.value, [record(where, effects) for effects in Effects]) for where in found]
    forgotten = [record(Standing.STALE, effects)._replace(key_until=NOW) for effects in Effects]
    cases.insert(2, ("stale, its key's retention over too", forgotten))
    for name, left in cases:
        verdicts: dict[Verdict, list[str]] = {}
        for row in left:
            verdicts.setdefault(decide(row, GivenFingerprint(MINE), ME, NOW), []).append(row.effects)
        for verdict, declared in verdicts.items():
            declaration = "any" if len(declared) == len(Effects) else ", ".join(declared)
            rows.append([name, "the same", declaration, verdict.value, ANSWERS[verdict]])
    return table(["the record is", "the request is", "declared effects", "verdict", "what happens"], rows)


def problems() -> str:
    """Every problem type."""
    rows = (
        [f"`{kind}`", str(shape.status), shape.title, yes(shape.retryable), yes(shape.safe_new_key)]
        for kind, shape in PROBLEMS.items()
    )
    return table(["type", "status", "title", "retryable", "safe_new_key"], rows)


def policy() -> str:
    """Every setting and its default."""
    default = Policy()
    rows = [[f"`{field.name}`", shown(getattr(default, field.name))] for field in fields(Policy) if field.init]
    return table(["setting", "default"], rows)


def headers() -> str:
    """The header lines that are not remembered."""
    kinds = (("belong to one connection", HOP_BY_HOP), ("belong to one exchange", PER_EXCHANGE))
    rows = [[why, ", ".join(f"`{name.decode()}`" for name in sorted(names))] for why, names in kinds]
    rows += [
        ["named by `Connection`", "whatever it names"],
        ["may open a session of the past", "`set-cookie`, unless the policy says `store_cookies=True`"],
    ]
    return table(["why not", "lines"], rows)


def yes(value: bool) -> str:  # noqa: FBT001 - a word for a truth value
    """As JSON writes it."""
    return "true" if value else "false"


def shown(value: object) -> str:
    """A default as a reader writes it."""
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds:g} s"
    if isinstance(value, frozenset):
        return ", ".join(map(str, sorted(value))) or "none"
    if isinstance(value, tuple):
        names = getattr(value, "_fields", ())
        return ", ".join(f"{name} {shown(part) or 'none'}" for name, part in zip(names, value, strict=False)) or "none"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"{value}"


TABLES: Final[dict[str, Callable[[], str]]] = {
    "transitions": transitions,
    "decisions": decisions,
    "problems": problems,
    "policy": policy,
    "headers": headers,
}


def filled(text: str) -> str:
    """`text` with every table written anew; each has its place exactly once."""
    for name, make in TABLES.items():
        places = re.findall(rf"<!-- made: {name} -->\n.*?<!-- end -->", text, re.DOTALL)
        if len(places) != 1:
            raise SystemExit(f"the table {name!r} has {len(places)} places in {TARGET.name}, not one")
        text = text.replace(places[0], f"<!-- made: {name} -->\n\n{make()}\n\n<!-- end -->")
    return text


if __name__ == "__main__":
    TARGET.write_text(filled(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
