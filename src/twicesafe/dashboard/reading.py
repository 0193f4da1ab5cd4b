"""Reads what the dashboard shows from a store: its own statements, in a short transaction each."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar

from twicesafe.core.delivery import MessageState
from twicesafe.core.lifecycle import Standing, standing
from twicesafe.core.record import Effects, Instant, Record, RecordState, StoredResponse
from twicesafe.errors import ConfigurationError
from twicesafe.outbox.operators import Listed
from twicesafe.stores.callers_blocking import run
from twicesafe.stores.contract import Store
from twicesafe.stores.sql.statements import Dialect, Queries, choose, parse
from twicesafe.stores.steps import Statement, Steps

R = TypeVar("R")

AT_A_TIME: Final = 2_000
"""Records that are read in one transaction: a few milliseconds."""

_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")


class Seen(NamedTuple):
    """A record, as far as it was read: nothing of its key but the hint, nothing of what it holds."""

    digest: bytes
    scope: str
    operation: str
    key_hint: str
    effects: str
    epoch: int
    created_at: Instant
    lease_until: Instant
    key_until: Instant
    standing: Standing
    point: str
    """Its recovery point; empty for one that has none."""

    @property
    def step(self) -> str:
        """How far it has come, for people."""
        number, _, rest = self.point.partition(" ")
        standing, _, name = rest.partition(" ")
        return f"step {number}, {name}: {standing}" if name else self.point


class Page(NamedTuple):
    """So many records. `after` goes into the next call; None: these were the last."""

    seen: list[Seen]
    after: Any


def records(store: Any, after: Any, now: Instant) -> Page:
    """The records that lie behind `after`, None for the first, as they stand at `now`.

    Where the store is no database of SQL it tells those that wait for somebody, and no others.
    """
    if not store.transactional:
        found = store.outstanding(after, AT_A_TIME)
        return Page([_of_record(record, standing(record, now)) for record in found.records], found.after)
    return in_transaction(store, lambda sql: _records(sql.dialect, after, now))


def _records(dialect: Dialect, after: Any, now: Instant) -> Steps[Page]:
    if dialect is Dialect.POSTGRESQL:
        start = after or 0
        place = (yield _statement("place", dialect, after=start, look_at=AT_A_TIME))[0][0]
        rows = [] if place is None else (yield _statement("looked", dialect, after=start, place=place))
        return Page([_seen(row, now) for row in rows], place)
    first = b"" if dialect is Dialect.MYSQL else -1
    rows = yield _statement("looked", dialect, after=first if after is None else after, look_at=AT_A_TIME)
    last = len(rows) < AT_A_TIME
    return Page([_seen(row, now) for row in rows], None if last else _plain(rows[-1][12]))


def _seen(row: Any, now: Instant) -> Seen:
    digest, scope, operation, key_hint, effects, state, epoch, created, lease, key_until, status, point = row[:12]
    if state == RecordState.COMPLETED:
        stands = Standing.COMPLETED
    else:
        answer = None if status is None else StoredResponse(status, (), None)
        whole = Record(
            digest, scope, operation, key_hint, b"", Effects(effects), RecordState(state), b"", epoch,
            created, lease, key_until, key_until, answer,
        )  # fmt: skip
        stands = standing(whole, now)
    return Seen(
        bytes(digest), scope, operation, key_hint, effects, epoch, created, lease, key_until, stands, point or ""
    )


def _of_record(one: Record, stands: Standing) -> Seen:
    return Seen(
        one.digest, one.scope, one.operation, one.key_hint, one.effects, one.epoch, one.created_at, one.lease_until,
        one.key_until, stands, one.recovery_point or "",
    )  # fmt: skip


# --- messages --------------------------------------------------------------------------------------------------------


class MessagesPage(NamedTuple):
    """So many messages. `more` is where the next page begins; None where there is none."""

    messages: list[Listed]
    more: int | None


def messages(store: Any, state: MessageState, start: int | None, limit: int, look_at: int = 5_000) -> MessagesPage:
    """Messages that wait or were set aside. Skipped ones come newest first, from among the `look_at` before `start`."""
    if state is MessageState.SKIPPED:
        return in_transaction(store, lambda sql: _skipped(sql.dialect, start, limit, look_at))
    if state not in (MessageState.PENDING, MessageState.PARKED):
        raise ConfigurationError(f"messages that are {state} wait for nobody")
    return in_transaction(store, lambda sql: _standing(sql.dialect, state.value, start or 0, limit))


def _standing(dialect: Dialect, name: str, after: int, limit: int) -> Steps[MessagesPage]:
    rows = yield _statement(name, dialect, after=after, limit=limit + 1)
    found = [_listed(row) for row in rows]
    return MessagesPage(found[:limit], found[limit - 1].seq if len(found) > limit else None)


def _skipped(dialect: Dialect, before: int | None, limit: int, look_at: int) -> Steps[MessagesPage]:
    if before is None:
        before = (yield _statement("newest", dialect))[0][0]
    rows = yield _statement("skipped", dialect, before=before, look_at=look_at, limit=limit + 1)
    found = [_listed(row) for row in rows]
    if len(found) > limit:
        return MessagesPage(found[:limit], found[limit].seq)
    left = before - look_at
    return MessagesPage(found, left if left > 0 else None)


def _listed(row: Any) -> Listed:
    return Listed(*(*row[:5], MessageState(row[5]), *row[6:10]))


# --- statements ------------------------------------------------------------------------------------------------------


def in_transaction(store: Store, steps: Callable[[Queries], Steps[R]]) -> R:
    """Run steps in a transaction of the store's that is theirs."""
    with store.transaction() as transaction:
        transaction.begin()
        result = run(transaction.connection, steps)
        transaction.commit()
        return result


def _statement(name: str, dialect: Dialect, **values: int | bytes) -> Statement:
    def written(found: re.Match[str]) -> str:
        value = values[found[1]]
        if type(value) is bytes:
            return f"x'{value.hex()}'"
        if type(value) is not int:
            raise TypeError(f"{name}: {found[1]} is no whole number")
        return str(value)

    return Statement(name, _PARAMETER.sub(written, _texts(dialect)[name]), (), writes=False, returns=True)


@cache
def _texts(dialect: Dialect) -> dict[str, str]:
    every = parse(files("twicesafe.dashboard").joinpath("looking.sql").read_text(encoding="utf-8"))
    return {source.name: source.text for source in choose(every, dialect)}


def _plain(place: Any) -> int | bytes:
    return place if type(place) is int else bytes(place)
