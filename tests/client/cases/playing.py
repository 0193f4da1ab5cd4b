"""A case on a real connection: the server that plays it, and what has to be seen on both ends."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple

from tests.client.cases.acts import nobody
from tests.client.cases.case import Case, Trait
from tests.client.scripted import Hit, Scripted, serving


class Seen(NamedTuple):
    """What a client says of a case, in words that all clients share. `outcome` is None where it has none to give."""

    outcome: str | None
    status: int | None
    stop: str | None
    sent: str | None
    replayed: bool
    key: str | None
    attempts: int
    waits: list[float]
    content: bytes | None
    """The body of a last answer that was read."""


class Stage(NamedTuple):
    """The servers of one case."""

    case: Case
    server: Scripted
    elsewhere: Scripted | None

    @property
    def url(self) -> str:
        return f"{self.server.origin}/charge"

    def after_wait(self, count: int) -> None:
        """The client has waited `count` times by now: a server that refused until then begins to listen."""
        if count == _absent(self.case) < len(self.case.acts):
            self.server.listen()

    def falls_silent(self, attempt: int) -> bool:
        """Whether the server lets this attempt wait for ever. Returns when that is certain."""
        turn = self.server.turns[attempt - 1]
        return turn.settled.wait(60) and turn.silent


def _absent(case: Case) -> int:
    """How many connections are refused before there is a server."""
    return next((place for place, act in enumerate(case.acts) if act is not nobody), len(case.acts))


@contextmanager
def staged(case: Case, *, cors: bool = False) -> Iterator[Stage]:
    """The case's servers; at the end all has to have been played."""
    acts = [act for act in case.acts if act is not nobody]
    with ExitStack() as stack:
        elsewhere = None if case.elsewhere is None else stack.enter_context(serving(*case.elsewhere))
        server = stack.enter_context(
            serving(
                *acts,
                listening=case.acts[0] is not nobody,
                leaving=case.acts[-1] is nobody,
                certificate=case.certificate,
                elsewhere=elsewhere,
                cors=cors,
            )
        )
        yield Stage(case, server, elsewhere)


def fraction_of(case: Case) -> float:
    """What chance draws in it: always the same, and elsewhere in each case."""
    return Random(f"{case.operation.method} {case.name}").random()


# --- bodies ----------------------------------------------------------------------------------------------------------

ORDER = {"amount": 100, "to": "Zoë"}
EVERY_BYTE = bytes(range(256))
MEGABYTE = b"0123456789abcdef" * 2**16
PIECES = (b"one ", b"two ", b"three")


class Pipe:
    """Read once, from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int = -1) -> bytes:
        taken, self._data = (self._data, b"") if size < 0 else (self._data[:size], self._data[size:])
        return taken


def given(case: Case) -> dict[str, Any]:
    """The body as an intent is given it."""
    if not case.operation.has_body or case.body == "none":
        return {}
    if case.body == "json":
        return {"json": ORDER}
    if case.body == "file":
        file = io.BytesIO(EVERY_BYTE)
        file.seek(10)
        return {"content": file}
    contents = {"bytes": EVERY_BYTE, "megabyte": MEGABYTE, "iterator": iter(PIECES), "pipe": Pipe(EVERY_BYTE)}
    return {"content": contents[case.body]}


def arriving(case: Case) -> bytes:
    """The body as the server is to read it."""
    if not case.operation.has_body:
        return b""
    bodies = {"none": b"", "file": EVERY_BYTE[10:], "megabyte": MEGABYTE, "iterator": b"".join(PIECES)}
    if case.body == "json":
        return json.dumps(ORDER, ensure_ascii=False, separators=(",", ":")).encode()
    return bodies.get(case.body, EVERY_BYTE)


# --- what has to be seen ---------------------------------------------------------------------------------------------


def check(stage: Stage, seen: Seen, key: str, traits: frozenset[Trait]) -> None:
    """Effects first, then the answer."""
    case = stage.case
    assert (stage.server.unplayed, stage.server.surprises) == ([], []), seen
    check_hits(case, stage.server.hits, key, numbered=Trait.NUMBERED in traits)
    check_hits_elsewhere(stage.elsewhere)
    check_outcome(case, seen, traits)
    assert seen.key == (None if _keys(case, key) == {None} else key) or case.operation.contract == "never"
    assert seen.attempts == case.tries, seen
    check_waits(case, seen.waits)


def check_waits(case: Case, waits: list[float]) -> None:
    """R38: each lies where chance put it between its bounds, which is not on the lower one."""
    bounds, fraction = case.bounds, fraction_of(case)
    assert len(waits) == len(bounds), (waits, bounds)
    for wait, (low, high) in zip(waits, bounds, strict=True):
        assert low <= wait <= high, (waits, bounds)
        # What is left of the time depends on how fast this machine is.
        assert high >= case.limits.deadline or abs(wait - (low + fraction * (high - low))) < 1e-6, (waits, bounds)


def check_hits(case: Case, hits: list[Hit], key: str, *, numbered: bool) -> None:
    """I8: so many requests, one key, the same bytes, and numbers that grow."""
    assert len(hits) == case.hits, hits
    own = [hit for hit in hits if hit.method == case.operation.method]
    assert {hit.key for hit in own} <= _keys(case, key)
    assert {hit.body for hit in own} <= {arriving(case)}
    assert {hit.method for hit in hits if hit not in own} <= {"GET"}
    if not numbered:
        return
    numbers = [int(hit.attempt or 0) for hit in own]
    assert numbers == sorted(numbers) and set(numbers) <= set(range(1, case.tries + 1)), numbers
    assert case.elsewhere is not None or len(set(numbers)) == len(numbers), numbers


def _keys(case: Case, key: str) -> set[str | None]:
    """What may stand in the header. Where the server ignores keys, it does not matter."""
    return {"safe": {None}, "never": {None, key}}.get(case.operation.contract, {key})


def check_hits_elsewhere(elsewhere: Scripted | None) -> None:
    """I8, K: another origin is asked, not told."""
    hits = [] if elsewhere is None else elsewhere.hits
    assert [(hit.method, hit.key, hit.body) for hit in hits] == [("GET", None, b"")] * len(hits)


def check_outcome(case: Case, seen: Seen, traits: frozenset[Trait]) -> None:
    """R35: what it was, and never another."""
    expected = case.expected
    assert seen.status == expected.status, seen
    if Trait.OUTCOME not in traits:
        return
    assert (seen.outcome, seen.replayed) == (expected.outcome, expected.replayed), seen
    if expected.outcome != "succeeded":
        assert seen.stop == expected.stop, seen
    if expected.outcome == "unknown":
        proved = Trait.PROOF in traits
        assert seen.sent == expected.sent if proved else seen.sent in {"maybe", expected.sent} - {"no"}, seen
    if expected.status == 201 and expected.outcome == "succeeded":
        assert json.loads(seen.content or b"") == {"charge": 1}, seen
