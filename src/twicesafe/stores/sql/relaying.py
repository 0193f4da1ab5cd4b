"""The relay's and the operators' side of the outbox, as steps. Each method is one transaction's work.

A message's fate is written only while the relay still holds its shard under the same epoch: a relay that lost it
changes nothing, and whoever has it now delivers the message once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from twicesafe.core.delivery import DOOR, SEQUENCE, Held, MessageState, bits_of, fair_share
from twicesafe.core.message import Message, rfc3339
from twicesafe.core.record import Instant, Micros
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Row, Rows, Steps

NEVER: Final = 2**63 - 1
"""When a parked message is tried again, unless somebody says so."""

LONGEST_ERROR: Final = 500
"""Characters. It is for people, and tells no more than what went wrong."""


class Due(NamedTuple):
    """A message whose turn it is."""

    seq: int
    message: Message
    aggregate: int
    shard: int
    failures: int


class Listed(NamedTuple):
    """A message as operators see it: nothing of its data."""

    seq: int
    id: str
    type: str
    aggregatetype: str
    aggregateid: str
    state: MessageState
    attempts: int
    next_at: Instant
    created_at: Instant
    last_error: str | None


class Waiting(NamedTuple):
    """How much waits, and since when."""

    pending: int
    oldest_us: Micros | None
    """How long ago the oldest pending message was added; None where nothing waits."""
    parked: int


def hold_shards(sql: Queries, owner: bytes, lease_us: Micros) -> Steps[dict[int, int]]:
    """Renew what is held, take a fair share of what is free, and leave what is more; shards with their epochs.

    Without any, stand at the door, for the others to leave some.
    """
    yield sql("renew_shards", owner=owner, lease_us=lease_us, door=DOOR)
    rows = yield sql("shards")
    now: Instant = rows[0][4]
    share = fair_share([_held(row) for row in rows], owner, now)
    if share.leave:
        yield sql("leave_shards", owner=owner, shards=bits_of(share.leave), door=DOOR)
    if share.take:
        free = bits_of(share.take)
        yield sql("take_shards", owner=owner, epoch=share.epoch, lease_us=lease_us, shards=free, door=DOOR)
    if share.leave or share.take:
        rows = yield sql("shards")
    held = _held_by(owner, rows)
    doors = [row for row in rows if row[0] == DOOR]
    if held:
        if any(bytes(door[1]) == owner and door[3] > door[4] for door in doors):
            yield sql("leave_door", owner=owner, door=DOOR)
    else:
        if not doors:
            yield sql("make_door", door=DOOR)
        yield sql("stand_at_door", owner=owner, lease_us=lease_us, door=DOOR)
    return held


def held_shards(sql: Queries, owner: bytes) -> Steps[dict[int, int]]:
    """What is held as things stand now; shards with their epochs."""
    return _held_by(owner, (yield sql("shards")))


def leave_shards(sql: Queries, owner: bytes, shards: Iterable[int]) -> Steps[None]:
    """Let others have them at once, and the place at the door."""
    yield sql("leave_shards", owner=owner, shards=bits_of(shards), door=DOOR)
    yield sql("leave_door", owner=owner, door=DOOR)


def _held_by(owner: bytes, rows: Rows) -> dict[int, int]:
    return {row[0]: row[2] for row in rows if row[0] != DOOR and bytes(row[1]) == owner and row[3] > row[4]}


def _held(row: Row) -> Held:
    return Held(row[0], bytes(row[1]), row[2], row[3])


def due(sql: Queries, shards: Iterable[int], limit: int, under_way: Iterable[int] = ()) -> Steps[list[Due]]:
    """At most `limit` messages of these shards, each aggregate's from its first one on, in their order.

    None of the aggregates that are under way.
    """
    rows = yield sql("due", shards=bits_of(shards), limit=limit, under_way=json.dumps(list(under_way)))
    return [
        Due(
            seq=row[0],
            message=Message(
                id=row[1],
                source=row[2],
                type=row[3],
                aggregatetype=row[4],
                aggregateid=row[5],
                data=bytes(row[6]),
                subject=row[7],
                time=rfc3339(row[8]),
                datacontenttype=row[9],
                headers=_headers(row[10], row[0]),
            ),
            aggregate=row[11],
            shard=row[12],
            failures=row[13],
        )
        for row in rows
    ]


def by_aggregate(found: Iterable[Due]) -> dict[int, list[Due]]:
    """Each aggregate's, in the order given."""
    queues: dict[int, list[Due]] = {}
    for one in found:
        queues.setdefault(one.aggregate, []).append(one)
    return queues


def _headers(stored: str | None, seq: int) -> tuple[tuple[str, str], ...]:
    """What was given with the message, and its place, in a form whose order as text is that of numbers."""
    given: dict[str, str] = json.loads(stored) if stored else {}
    return tuple(({SEQUENCE: f"{seq:019d}"} | given).items())


def delivered(sql: Queries, owner: bytes, epoch: int, seqs: Iterable[int]) -> Steps[int]:
    """Mark as delivered what is of shards held under this epoch; how many there were."""
    return len((yield sql("delivered", owner=owner, epoch=epoch, seqs=json.dumps(list(seqs)))))


def failed(sql: Queries, owner: bytes, epoch: int, seq: int, fate: Micros | MessageState, error: str) -> Steps[bool]:
    """Write down a failure, and when to try again or what has become of the message. False: the shard is lost."""
    # A text that a database does not take would keep what came of all the others from being written down.
    told = error[:LONGEST_ERROR].replace("\0", "").encode(errors="backslashreplace").decode()
    whose = {"owner": owner, "epoch": epoch, "seq": seq, "error": told}
    if isinstance(fate, MessageState):
        next_at = NEVER if fate is MessageState.PARKED else 0
        return bool((yield sql("set_aside", **whose, state=fate.value, next_at=next_at)))
    return bool((yield sql("failed", **whose, delay_us=fate)))


def listed(sql: Queries, state: MessageState, after: int, limit: int) -> Steps[list[Listed]]:
    """Messages in this state, on from the number `after`."""
    rows = yield sql("list_messages", state=state.value, after=after, limit=limit)
    return [_listed(row) for row in rows]


def found(sql: Queries, message_id: str) -> Steps[Listed | None]:
    """One message, whatever its state."""
    rows = yield sql("message", id=message_id)
    return _listed(rows[0]) if rows else None


def data_of(sql: Queries, message_id: str) -> Steps[bytes | None]:
    """What one message says."""
    rows = yield sql("message_data", id=message_id)
    return bytes(rows[0][0]) if rows else None


def _listed(row: Row) -> Listed:
    return Listed(*(*row[:5], MessageState(row[5]), *row[6:10]))


def retry(sql: Queries, message_id: str) -> Steps[bool]:
    """Let a message that waits or was set aside be tried at once. False: there is none."""
    return bool((yield sql("retry_message", id=message_id)))


def discard(sql: Queries, message_id: str) -> Steps[bool]:
    """Give up a message that was not delivered; those that it held flow. False: there is none."""
    return bool((yield sql("discard_message", id=message_id)))


def waiting(sql: Queries) -> Steps[Waiting]:
    """How much waits, and since when."""
    pending, oldest, parked, now = (yield sql("waiting"))[0]
    return Waiting(pending, None if oldest is None else max(0, now - oldest), parked)


def purge(sql: Queries, keep_us: Micros, after: int, look_at: int) -> Steps[tuple[int, int]]:
    """Delete what was delivered or discarded `keep_us` ago, among `look_at` rows on from `after`.

    How many there were, and from where to go on: 0 is the beginning, for the look has come to the end.
    """
    place, looked = (yield sql("purge_to", after=after, look_at=look_at))[0]
    if place is None:
        return 0, 0
    ended = yield sql("ended_messages", after=after, place=place, keep_us=keep_us)
    deleted = len((yield sql("purge_messages", seqs=json.dumps([row[0] for row in ended])))) if ended else 0
    return deleted, place if looked == look_at else 0
