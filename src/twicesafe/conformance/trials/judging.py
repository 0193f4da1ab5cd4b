"""How often the work was done: by the target's own count, or, without one, by what its answers give away."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer, Lines
from twicesafe.conformance.templates import Intent

MARKERS: Final = (
    "Idempotent-Replayed", "Idempotency-Replayed", "Idempotent-Replay", "Idempotency-Replay", "X-Idempotent-Replayed",
    "X-Idempotency-Replayed", "X-Idempotent-Replay", "X-Idempotency-Replay", "X-Idempotency-Cache-Hit",
    "X-Idempotency-Hit", "Idempotency-Status", "X-Idempotency-Status", "X-Cache-Status", "X-Idempotent-Response",
)  # fmt: skip
"""Lines that services say a replay with."""

_YES: Final = {"true", "1", "yes", "hit", "replayed", "replay", "?1", "cached"}


class Times(Enum):
    """How often, against how often it was wanted."""

    RIGHT = "right"
    TOO_OFTEN = "too often"
    NOT_DONE = "not done"
    UNTOLD = "untold"


class Seen(NamedTuple):
    """How often the work was done, and how that is known."""

    times: Times
    words: str
    """For a sentence: `the work was done twice`."""


def seen(
    bench: Bench, intents: Sequence[Intent], answers: Sequence[Answer | None], wanted: int = 1, caller: Lines = ()
) -> Seen:
    """How often the work of these intents was done, whose attempts were answered so."""
    counted = bench.count(intents, wanted, caller)
    if counted is not None:
        words = f"the work was done {often(counted)}{'' if counted == wanted else f', not {often(wanted)}'}"
        if counted == wanted:
            return Seen(Times.RIGHT, words)
        return Seen(Times.TOO_OFTEN if counted > wanted else Times.NOT_DONE, words)
    done = [answer for answer in answers if answer is not None and answer.succeeded]
    first = [answer for answer in done if marked(answer) is None]
    kinds = len({answer.body for answer in done})
    if not done:
        return Seen(Times.UNTOLD, "no answer says that the work was done, and effects cannot be counted")
    if bench.known.telling and kinds > wanted:
        return Seen(Times.TOO_OFTEN, f"{kinds} different answers say that the work was done")
    if len(first) <= wanted and len(done) > wanted:
        return Seen(Times.RIGHT, "all further answers are marked as replays; effects were not counted")
    if bench.known.telling:
        return Seen(Times.RIGHT, "the answers tell of no second time; effects were not counted")
    return Seen(Times.UNTOLD, "effects cannot be counted, and the answers do not tell")


def marked(answer: Answer) -> str | None:
    """The line by which an answer says that it is a replay; None where it does not."""
    for name in MARKERS:
        if any(value.strip().lower() in _YES for value in answer.values(name)):
            return name
    return None


def same(first: Answer, second: Answer) -> bool:
    """Whether two answers are one in status and bytes."""
    return first.status == second.status and first.body == second.body


def lost(bench: Bench, intents: Sequence[Intent], first: Answer | None, last: Answer) -> bool:
    """Whether a retry shows that the record of what was done once is gone: it is refused, or done again."""
    counted = bench.count(intents, 1)
    if counted is not None:
        return not last.succeeded or counted > 1
    return not last.succeeded or (first is not None and not same(first, last))


def given_away(bench: Bench, first: Answer, second: Answer) -> bool:
    """Whether the second answer is the first one's replay, for all that can be seen."""
    return marked(second) is not None or (second.succeeded and bench.known.telling and second.body == first.body)


def often(times: int) -> str:
    """In words, as far as people do."""
    return {0: "not at all", 1: "once", 2: "twice"}.get(times, f"{times} times")


def described(answer: Answer) -> str:
    """For a sentence."""
    return f"{answer.status}{' as a replay' if marked(answer) else ''}"
