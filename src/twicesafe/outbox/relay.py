"""Brings messages from the outbox to their receivers, at least once and in order within each aggregate.

    relay = Relay(store, publisher)
    await Worker(relay).run()

Any number of relays share the work: each holds some of the shards by a lease on the database's clock. Within a round
aggregates go side by side and each one's messages one after another; a message is marked once its receiver has
acknowledged it, and only by who still holds its shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from datetime import timedelta
from os import urandom
from random import random
from threading import Event
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from twicesafe.core.delivery import DeliveryPolicy, MessageState, after_failure, micros
from twicesafe.core.message import Message
from twicesafe.core.record import Micros
from twicesafe.errors import ConfigurationError, RefusedError, StoreError
from twicesafe.observe import Event as Told
from twicesafe.observe import Observer, log_events, tell
from twicesafe.outbox.publishing import Publisher, answered, as_publisher, asked_of, ends_round, said
from twicesafe.outbox.telling import delivered_of, publishing, tell_waiting
from twicesafe.stores.callers import is_conflict
from twicesafe.stores.callers_asyncio import arun
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.sql.relaying import (
    Due,
    Waiting,
    by_aggregate,
    delivered,
    due,
    failed,
    held_shards,
    hold_shards,
    leave_shards,
    purge,
    waiting,
)
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Steps

__all__ = ["Relay", "Relayed", "Waiting"]

R = TypeVar("R")

DEFAULT_LEASE: Final = timedelta(seconds=30)
"""How long the messages of a relay that died wait for another."""

DEFAULT_KEEP: Final = timedelta(days=7)
"""How long delivered messages stay, for people to look at."""

DEFAULT_BATCH: Final = 500
"""Messages in a round at most: as many come again where a relay dies."""

DEFAULT_AT_ONCE: Final = 64
"""Messages, of as many aggregates, under way at one time."""

MARK_EVERY: Final = 1.0
"""Seconds between two markings of what has arrived in a round: what comes again where a relay dies."""

LOOK_AGAIN: Final = 1.0
"""Seconds for which a slow receiver, or an aggregate with much to deliver, keeps others waiting."""

MARGIN: Final = 0.1
"""The share of a lease that is kept for marking: what is marked later may be another's to deliver again."""

PURGE_EVERY: Final = 60.0
"""Seconds between two looks for what is to be deleted."""

COUNT_EVERY: Final = 5.0
"""Seconds between two counts of what waits, for whoever asks a worker how it is doing."""

BEGUN: Final = 5
"""How often a transaction is begun that the database ends for the sake of a writer's or another relay's."""

LISTEN_AGAIN: Final = 1.0
"""Seconds between two tries at a connection that hears of hints."""

PURGE_LOOK: Final = 1000
"""Rows in one look."""


class Relayed(NamedTuple):
    """What a round came to."""

    delivered: int
    failed: int
    """Tried in vain, whatever is to become of them."""
    more: bool
    """Whether another round would find something at once."""


class _Fate(NamedTuple):
    due: Due
    error: BaseException | None


class Relay:
    """Delivers the messages of a store's outbox by way of a publisher, or of a function of a message.

    `store` is an AsyncStore in SQLite, PostgreSQL or MySQL, whose transactions it uses. `policy` says how often a
    message is tried, and what then. `batch` bounds a round, and `at_once` what is under way in it. What was delivered
    is deleted after `keep`. With `listens`, on PostgreSQL, it is woken by hints of other processes, too, for which it
    has a connection of its own.
    """

    def __init__(
        self,
        store: AsyncStore,
        publisher: Publisher | Callable[[Message], Any],
        *,
        policy: DeliveryPolicy = DeliveryPolicy(),  # noqa: B008 - it is frozen
        lease: timedelta = DEFAULT_LEASE,
        keep: timedelta = DEFAULT_KEEP,
        batch: int = DEFAULT_BATCH,
        at_once: int = DEFAULT_AT_ONCE,
        listens: bool = False,
        observer: Observer = log_events,
    ) -> None:
        if not getattr(store, "transactional", False):
            raise ConfigurationError("a relay needs a store with transactions: SQLite, PostgreSQL or MySQL")
        if listens and not hasattr(store, "hear_hints"):
            raise ConfigurationError("only a store in PostgreSQL tells of hints of other processes: leave out listens")
        numbers: tuple[tuple[str, object], ...] = (("batch", batch), ("at_once", at_once))
        for name, number in numbers:
            if not isinstance(number, int) or number < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {number!r}")
        self._store = store
        self._publisher = as_publisher(publisher)
        self._policy = policy
        self._lease_us = _micros("lease", lease)
        self._keep_us = _micros("keep", keep)
        self._batch = batch
        self._most = at_once
        self._at_once = asyncio.Semaphore(at_once)
        self._observer = observer
        self._owner = urandom(16)
        self._held: dict[int, int] = {}
        self._held_until = 0.0
        self._seen = False
        self._more = False
        self._stopping: Event | None = None
        self._unmarked: list[_Fate] = []
        self._marking = asyncio.Lock()
        self._mark_at = 0.0
        self._purge_at = 0.0
        self._purged_to = 0
        self._listens = listens
        self._awakes: list[Callable[[], None]] = []
        self._count_at = 0.0
        self.counted: Waiting | None = None
        """What waited a few seconds ago, as the last round has seen it."""

    async def run_once(self, stopping: Event | None = None) -> Relayed:
        """One round: hold a fair share of the shards, deliver what is due of them, and mark it.

        Once `stopping` is set it begins with no further message; what is under way comes to its end.
        """
        self._stopping = stopping
        if not self._seen:
            # What makes missing tables is said by this, and not by the database's own complaint.
            await self._store.check_schema()
        asked = monotonic()
        owner, lease_us = self._owner, self._lease_us
        self._seen = True
        self._held = held = await self._in_transaction(lambda sql: hold_shards(sql, owner, lease_us))
        self._more = False
        # The lease began after this was asked, so it ends no sooner than this says.
        self._held_until = asked + lease_us * (1 - MARGIN) / 1_000_000
        found = await self._due() if held else []
        fates: list[_Fate] = []
        self._unmarked, self._mark_at = [], monotonic() + MARK_EVERY
        try:
            await self._publish(found, fates)
        finally:
            # Cancelled, it marks what has arrived all the same.
            await asyncio.shield(self._mark())
        await self._purge()
        if monotonic() >= self._count_at:
            self._count_at = monotonic() + COUNT_EVERY
            self.counted = await self.waiting()
            tell_waiting(self._observer, *self.counted)
        arrived = sum(1 for fate in fates if fate.error is None)
        return Relayed(arrived, len(fates) - arrived, self._more and arrived > 0)

    async def aclose(self) -> None:
        """Let other relays have its shards at once. The store and the publisher are whoever's who made them."""
        held, self._held = self._held, {}
        if self._seen:
            self._seen = False
            await self._in_transaction(lambda sql: leave_shards(sql, self._owner, held))

    async def waiting(self) -> Waiting:
        """How much waits in the outbox, and since when: for alarms."""
        return await self._in_transaction(waiting)

    # --- hints --------------------------------------------------------------------------------------------------------

    def hint(self) -> None:
        """Say that messages were committed, so that its worker looks at once and not within its pause.

        From any thread, after the commit. It asks for nothing and waits for nothing; one that is lost, or that comes
        before the commit, costs a pause.
        """
        for awake in tuple(self._awakes):
            awake()

    def on_hint(self, awake: Callable[[], None]) -> None:
        """Have this called, in whatever thread, with every hint."""
        self._awakes.append(awake)

    async def listen(self) -> None:
        """Take hints of other processes for its own, for as long as this is awaited; return at once if it does not."""
        hear: Callable[[Callable[[], None]], Awaitable[None]] | None = getattr(self._store, "hear_hints", None)
        while self._listens and hear is not None:
            try:
                await hear(self.hint)
                return
            except StoreError:
                await asyncio.sleep(LISTEN_AGAIN)
                # Whatever came meanwhile was not heard.
                self.hint()

    async def _in_transaction(self, steps: Callable[[Queries], Steps[R]]) -> R:
        left = BEGUN
        while True:
            left -= 1
            try:
                async with self._store.transaction() as transaction:
                    await transaction.begin()
                    result = await arun(transaction.connection, steps)
                    await transaction.commit()
                    return result
            except Exception as error:
                if not left or not is_conflict(error):
                    raise

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def _publish(self, found: Iterable[Due], fates: list[_Fate]) -> None:
        """Each aggregate's messages one after another, up to the first that fails."""
        many = getattr(self._publisher, "publish_many", None)
        if many is not None:
            await self._publish_waves(many, by_aggregate(found), fates)
            return
        under_way: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for aggregate, queue in by_aggregate(found).items():
                    under_way[aggregate] = group.create_task(self._publish_queue(queue, fates))
                if under_way:
                    await asyncio.wait(under_way.values(), timeout=LOOK_AGAIN)
                under_way = {aggregate: task for aggregate, task in under_way.items() if not task.done()}
                if not under_way or not self._left():
                    return
                found = await self._others(under_way)

    async def _publish_queue(self, queue: list[Due], fates: list[_Fate]) -> None:
        for one in queue:
            async with self._at_once:
                left = self._left()
                if not left:
                    self._more = True
                    return
                error: BaseException | None = None
                try:
                    async with asyncio.timeout(left) as lease:
                        with publishing(self._observer, [one.message]):
                            await self._publisher.publish(one.message)
                except BaseException as failure:
                    if ends_round(failure):
                        raise
                    if lease.expired() and one is not queue[0]:
                        # It had not the time that it will have as the first one of a round.
                        self._more = True
                        return
                    error = failure
            await self._come(fates, [_Fate(one, error)])
            if error is not None:
                return

    async def _publish_waves(self, many: Callable[..., Any], queues: dict[int, list[Due]], fates: list[_Fate]) -> None:
        look_at = monotonic() + LOOK_AGAIN
        while queues and (left := self._left()):
            wave = [queue[0] for queue in queues.values()]
            try:
                async with asyncio.timeout(left):
                    with publishing(self._observer, messages := [one.message for one in wave]):
                        outcomes = answered(await many(messages), len(wave))
            except BaseException as failure:
                if ends_round(failure):
                    raise
                outcomes = [failure] * len(wave)
            await self._come(fates, [_Fate(one, error) for one, error in zip(wave, outcomes, strict=True)])
            queues = {
                aggregate: queue[1:]
                for (aggregate, queue), error in zip(queues.items(), outcomes, strict=True)
                if error is None and len(queue) > 1
            }
            if queues and monotonic() >= look_at:
                queues |= by_aggregate(await self._others(queues))
                look_at = monotonic() + LOOK_AGAIN
        self._more |= bool(queues)

    async def _due(self, under_way: Iterable[int] = ()) -> list[Due]:
        found = await self._in_transaction(lambda sql: due(sql, self._held, self._batch, under_way))
        # A later look, for others, says nothing of those that an earlier one left.
        self._more |= len(found) == self._batch
        return found

    async def _others(self, under_way: Collection[int]) -> list[Due]:
        """What is due of others than these aggregates, which take their time."""
        if len(under_way) < self._most:
            with suppress(Exception):
                # What has come of any is marked first, or it would be found again. Failures the round's end will meet.
                await asyncio.shield(self._mark())
                if self._left():
                    return await self._due(under_way)
        return []

    def _left(self) -> float:
        """For how long a message that is begun now may take, in seconds. 0: none is to be begun."""
        if self._stopping is not None and self._stopping.is_set():
            return 0
        return max(0.0, self._held_until - monotonic())

    # --- marking ------------------------------------------------------------------------------------------------------

    async def _come(self, fates: list[_Fate], more: list[_Fate]) -> None:
        """What became of some. A round may take long: whoever dies in it is not to deliver all of it again."""
        fates += more
        self._unmarked += more
        if monotonic() >= self._mark_at and not self._marking.locked():
            with suppress(Exception):
                # They stay unmarked, and the end of the round will meet it, too.
                await asyncio.shield(self._mark())

    async def _mark(self) -> None:
        async with self._marking:
            self._mark_at = monotonic() + MARK_EVERY
            # More may come meanwhile, and be added behind.
            unmarked, marking = self._unmarked, list(self._unmarked)
            if marking:
                for told in await self._in_transaction(lambda sql: self._marks(sql, marking)):
                    tell(self._observer, told)
                del unmarked[: len(marking)]

    def _marks(self, sql: Queries, fates: list[_Fate]) -> Steps[list[Told]]:
        told: list[Told] = []
        missed = False
        arrived: dict[int, list[int]] = {}
        for one, error in fates:
            epoch = self._held[one.shard]
            if error is None:
                arrived.setdefault(epoch, []).append(one.seq)
                continue
            refused, asked = isinstance(error, RefusedError), asked_of(error)
            chance = random()  # noqa: S311 - no secret
            fate = after_failure(self._policy, one.failures + 1, chance, refused=refused, asked=asked)
            if not (yield from failed(sql, self._owner, epoch, one.seq, fate, said(error))):
                missed = True
            else:
                dead = isinstance(fate, MessageState)
                name = f"message.{fate}" if dead else "message.failed"
                told.append(Told(name, one.message.type, one.message.id, loud=dead, error=error))
        told += delivered_of(self._observer, (one.message for one, error in fates if error is None))
        for epoch, seqs in arrived.items():
            missed |= (yield from delivered(sql, self._owner, epoch, seqs)) < len(seqs)
        # Otherwise somebody has discarded what was under way.
        if missed and (yield from held_shards(sql, self._owner)) != self._held:
            self._held_until = 0.0
            told.append(Told("relay.lost", "", "", loud=False))
        return told

    async def _purge(self) -> None:
        if monotonic() < self._purge_at:
            return
        after = self._purged_to
        _, self._purged_to = await self._in_transaction(lambda sql: purge(sql, self._keep_us, after, PURGE_LOOK))
        if not self._purged_to:
            self._purge_at = monotonic() + PURGE_EVERY


def _micros(name: str, duration: timedelta) -> Micros:
    given: object = duration
    if not isinstance(given, timedelta) or given < timedelta(seconds=1):
        raise ConfigurationError(f"{name} must be a timedelta of a second or more, not {given!r}")
    return micros(name, given)
