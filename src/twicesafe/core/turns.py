"""When a worker tries again: an operation that broke off, or the question what became of an unknown outcome (R27)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from twicesafe.core.journal import is_unsent
from twicesafe.core.record import Instant, Micros, Record, RecordState

T = TypeVar("T")

LARGEST_SHARE: Final = 20

ATTEMPTS: Final = 25
"""With the pauses between them some three hours: longer than most outages, shorter than most retentions."""
FIRST_PAUSE: Final[Micros] = 1_000_000
LONGEST_PAUSE: Final[Micros] = 600_000_000
TRIED_FOR: Final[Micros] = 7_200_000_000
"""For how long it was tried that is given up: callers ask again as well, and may use up the attempts in a minute."""


def pause_before(attempt: int) -> Micros:
    """From the end of this attempt, which failed, to the next one. The first is 1."""
    return min(FIRST_PAUSE << min(attempt - 1, 20), LONGEST_PAUSE)


def attempt_of(epoch: int) -> int:
    """Which attempt it was, counted anew once they were used up: then it was held, and somebody let it go on."""
    return (epoch - 1) % ATTEMPTS + 1


def is_due(record: Record, now: Instant) -> bool:
    """Whether a worker may go on with it now: it broke off, and the request is kept that its caller made."""
    if record.state is not RecordState.CLAIMED or record.request is None:
        return False
    # No longer than it was tried for: attempts count that its callers made, who make many in a short time.
    pause = min(pause_before(attempt_of(record.epoch)), max(FIRST_PAUSE, record.lease_until - record.created_at))
    return now >= record.lease_until + pause


def goes_on_at_once(point: str | None) -> bool:
    """Whether a worker does not wait to go on from here with what was held: it was for want of what is known by now.

    What is sent again has its turn after the attempts before: who never answers would be asked without a pause.
    """
    return not is_unsent(point)


def used_up(record: Record) -> bool:
    """Whether its attempts are used up: it is held then, until somebody has found out why it fails."""
    return attempt_of(record.epoch) == ATTEMPTS and record.lease_until - record.created_at >= TRIED_FOR


def shares(due: Sequence[T], lanes: int) -> list[Sequence[T]]:
    """Neighbours together, for so many lanes to take share by share, each from its beginning.

    Workers that look at the same time see the same. One that meets another in a share leaves it the rest, so that they
    meet once in a share and not at each of its operations.
    """
    size = min(max(len(due) // (4 * lanes), 1), LARGEST_SHARE)
    return [due[at : at + size] for at in range(0, len(due), size)]
