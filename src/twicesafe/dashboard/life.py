"""A record's life, as far as anybody wrote it down: moments, the oldest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from twicesafe.core.journal import CALL, DONE, LOST, OPEN, REJECTED, UNSENT, Entry, Journal
from twicesafe.core.lifecycle import Standing, standing
from twicesafe.core.record import Instant, Record
from twicesafe.dashboard.tally import Met
from twicesafe.errors import DefinitionChangedError
from twicesafe.stores.contract import AuditEntry


class Look(StrEnum):
    """How a moment is drawn."""

    PLAIN = "plain"
    GOOD = "good"
    OPEN = "open"
    BAD = "bad"
    PERSON = "person"
    AHEAD = "ahead"


class Moment(NamedTuple):
    """One thing that happened. `at` None: nobody wrote down when, but it was in this place."""

    at: Instant | None
    what: str
    more: str = ""
    look: Look = Look.PLAIN


EVENTS: Final = {
    "replayed": ("Replayed", "a duplicate got the stored answer", Look.GOOD),
    "replayed.without_body": ("Replayed without a body", "the body is no longer kept", Look.GOOD),
    "conflict": ("Conflict", "a duplicate met the first attempt in progress", Look.OPEN),
    "mismatch": ("Mismatch", "the key came with another request, which was refused", Look.BAD),
    "outcome.unknown": ("Told that it is unknown", "a duplicate was; nothing ran", Look.OPEN),
    "claim.taken_over": ("Taken over", "its owner was gone", Look.OPEN),
    "lease.lost": ("Lease lost", "its owner came back too late", Look.BAD),
    "recording.failed": ("Recording failed", "the answer could not be stored", Look.BAD),
}
HELD: Final = ("Outcome unknown", "held until somebody settles it", Look.BAD)


def life(
    record: Record | None, now: Instant, trail: Iterable[AuditEntry] = (), met: Sequence[Met] = ()
) -> list[Moment]:
    """What is known. Events are by the clock of the process that met them, everything else is by the store's."""
    own = [] if record is None else list(_own(record, now))
    if own and own[-1].what == HELD[0] and any(_holds(one) for one in met):
        # Somebody has seen when.
        del own[-1]
    reached = 0
    placed: list[tuple[Instant, Moment]] = []
    for moment in own:
        reached = max(reached, moment.at or reached)
        placed.append((reached, moment))
    for entry in trail:
        what = f"{entry.who}: {entry.action}"
        placed.append((entry.at, Moment(entry.at, what, f"{entry.outcome}. {entry.why}", Look.PERSON)))
    for one in met:
        what, more, look = HELD if _holds(one) else EVENTS[one.name]
        at = int(one.at * 1_000_000)
        placed.append((at, Moment(at, what, f"{more}; seen by this process", look)))
    ends = [] if record is None else list(_ends(record, now))
    return [moment for _, moment in sorted(placed, key=lambda one: one[0])] + ends


def _holds(one: Met) -> bool:
    return one.loud and one.name == "outcome.unknown"


def _own(record: Record, now: Instant) -> Iterable[Moment]:
    yield Moment(record.created_at, "Claimed", f"declared {record.effects}")
    if record.epoch > 1:
        times = "once" if record.epoch == 2 else f"{record.epoch - 1} times"
        yield Moment(None, f"Claimed again, {times}", f"its claim is number {record.epoch} under this key", Look.OPEN)
    try:
        for entry in Journal.read(record.recovery_data, record.recovery_point).entries:
            yield _step(entry)
    except DefinitionChangedError as error:
        yield Moment(None, "Steps", str(error), Look.BAD)
    match standing(record, now):
        case Standing.CLAIMED:
            yield Moment(None, "In progress", "its owner renews the lease while it works", Look.OPEN)
        case Standing.STALE:
            yield Moment(record.lease_until, "Lease ended", "its owner renewed it no more: stale", Look.BAD)
        case Standing.ANSWERED:
            yield Moment(record.lease_until, "Lease ended", "its answer had begun to leave: it was done", Look.OPEN)
        case Standing.UNKNOWN:
            yield Moment(None, *HELD)
        case _:
            status = "" if record.response is None else f"with status {record.response.status}"
            yield Moment(record.lease_until, "Completed", status, Look.GOOD)


def _ends(record: Record, now: Instant) -> Iterable[Moment]:
    """What comes with time, unless something else comes first."""
    where = standing(record, now)
    if where is Standing.CLAIMED:
        yield Moment(record.lease_until, "Lease ends", "unless it is renewed", Look.AHEAD)
    if where is Standing.COMPLETED and record.body_until < record.key_until:
        yield Moment(record.body_until, "Body forgotten", "a tombstone from then on", Look.AHEAD)
    if where in (Standing.COMPLETED, Standing.TOMBSTONE):
        yield Moment(record.key_until, "Key forgotten", "free from then on", Look.AHEAD)


def _step(entry: Entry) -> Moment:
    kind = "Call" if entry.kind == CALL else "Phase"
    more, look = {
        DONE: ("done", Look.GOOD),
        REJECTED: ("rejected by its receiver", Look.OPEN),
        LOST: ("done, but its result could not be kept", Look.BAD),
        OPEN: ("not sent" if entry.result == UNSENT else "may have been sent, without an answer", Look.BAD),
    }.get(entry.standing, (entry.standing, Look.PLAIN))
    return Moment(entry.at or None, f"{kind} {entry.name}", more, look)
