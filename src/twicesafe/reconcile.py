"""Finds out what became of unknown outcomes, by asking whoever knows (R26).

    reconcilers = Reconcilers(store)

    @reconcilers.of("create_charge")
    def find(unknown: Unknown) -> Answered:
        charge = provider.find(unknown.derived_key("charge"))
        return Unclear() if charge is None else Done(StoredResponse(201, (), charge.json()))

    reconcilers.run_once()

`Done` settles the record with an answer, which every retry then gets; `NotDone` releases the key; `Unclear` asks again
later, with growing pauses. An operation of several steps is asked about its open call: Done and NotDone say what became
of that, and a worker goes on. Whoever settles first wins: the owner of the claim, a reconciler or an operator; the
others change nothing (I3).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from inspect import isawaitable
from typing import Any, Final, NamedTuple, TypeVar

from twicesafe.cancelling import is_cancelled
from twicesafe.core.functions import DONE as STATUS_DONE
from twicesafe.core.journal import Journal
from twicesafe.core.keys import derive
from twicesafe.core.record import Instant, Ownership, Record, RecordState, StoredResponse
from twicesafe.core.settling import Reopen, Settle, open_call, reopen, settle, steps_of, told
from twicesafe.core.turns import pause_before
from twicesafe.core.values import AnyValues
from twicesafe.declared import Answered, Done, NotDone, Unclear
from twicesafe.errors import ConfigurationError
from twicesafe.observe import Event, Observer, Work, around, counts, log_events, tell
from twicesafe.stores.contract import AsyncStore, Outstanding, Store

__all__ = ["Answered", "AsyncReconcilers", "Done", "NotDone", "Reconciled", "Reconcilers", "Unclear", "Unknown"]

FAR: Final[Instant] = 2**62
"""Later than any instant of a record's."""

REMEMBERED: Final = 100_000
"""Records whose next turn is kept in mind."""


class Unknown(NamedTuple):
    """An outcome that nobody knows. `call`: the open call of an operation of several steps."""

    operation: str
    scope: str
    key_hint: str
    since: Instant
    """When it was first claimed, in microseconds since 1970 by the store's clock."""
    call: str | None
    """Also one that was carried out, and whose result could not be kept."""
    digest: bytes

    def derived_key(self, call: str) -> str:
        """The key that went with the downstream call of this name (R25)."""
        return derive(self.digest, call)


Finder = Callable[[Unknown], Answered | Awaitable[Answered]]
F = TypeVar("F", bound=Finder)


class Reconciled(NamedTuple):
    """What one round came to. `more` False: the look has come past every record."""

    done: int
    not_done: int
    unclear: int
    failed: int
    """The reconciler raised: asked again later."""
    more: bool


class _Ask(NamedTuple):
    finder: Finder
    unknown: Unknown


_Step = _Ask | Settle | Reopen | None


class _Reconcilers:
    """What both kinds have in common."""

    def __init__(self, store: Store | AsyncStore, observer: Observer) -> None:
        if not hasattr(store, "outstanding"):
            raise ConfigurationError(
                f"{type(store).__name__} cannot list unknown outcomes: use a store of SQLite, PostgreSQL or MySQL"
            )
        self._store: Any = store
        self._observer = observer
        self._counts = counts(observer)
        self._left, self._oldest = 0, FAR
        """How many unknown outcomes this look has left as they are so far, and when the oldest was claimed."""
        self._finders: dict[str, Finder] = {}
        self._turns: dict[Ownership, tuple[int, Instant]] = {}
        """How often each was asked about, and when it is its turn again."""
        self._asking: set[Ownership] = set()
        """What is asked about just now, maybe by a round that hangs beside this one."""
        self._after: object = None

    def of(self, operation: str) -> Callable[[F], F]:
        """The function below it knows what became of this operation."""

        def decorate(finder: F) -> F:
            if operation in self._finders:
                raise ConfigurationError(f"{operation!r} has a reconciler already")
            self._finders[operation] = finder
            return finder

        return decorate

    def _round(self, found: Outstanding, stopping: threading.Event | None) -> Generator[_Step, Any, Reconciled]:
        done = not_done = unclear = failed = 0
        for record in found.records:
            finder = self._finders.get(record.operation)
            where = record.ownership
            times, due = self._turns.get(where, (0, 0))
            if record.state is not RecordState.UNKNOWN:
                continue
            stops = stopping is not None and stopping.is_set()
            if finder is None or found.now < due or where in self._asking or stops:
                self._leave(record)
                continue
            hint = record.key_hint
            self._asking.add(where)
            try:
                unknown, journal = _unknown(record)
                answer = yield _Ask(finder, unknown)
                settled = yield _settling(record, journal, answer)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it must not end the round
                failed += 1
                tell(self._observer, Event("reconcile.failed", record.operation, hint, loud=True, error=error))
                self._later(where, times, found.now)
                self._leave(record)
                continue
            finally:
                self._asking.discard(where)
            if type(answer) is Unclear:
                unclear += 1
                self._later(where, times, found.now)
                self._leave(record)
                if self._counts:
                    tell(self._observer, Event("reconcile.unclear", record.operation, hint, loud=False))
            elif settled:
                done += type(answer) is Done
                not_done += type(answer) is NotDone
                self._turns.pop(where, None)
                result = "done" if type(answer) is Done else "not done"
                tell(self._observer, Event("outcome.settled", record.operation, hint, loud=False, result=result))
        if found.after is None:
            self._tell_unsettled(found.now)
        return Reconciled(done, not_done, unclear, failed, found.after is not None)

    def _tell_unsettled(self, now: Instant) -> None:
        """How many outcomes are unknown, and since when: a look has come past all records."""
        left, oldest = self._left, self._oldest
        self._left, self._oldest = 0, FAR
        if self._counts:
            seconds = max(0, now - oldest) / 1_000_000
            tell(self._observer, Event("outcomes.unsettled", "", "", loud=False, amount=left, seconds=seconds))

    def _leave(self, record: Record) -> None:
        self._left += 1
        self._oldest = min(self._oldest, record.created_at)

    def _later(self, where: Ownership, times: int, now: Instant) -> None:
        if len(self._turns) >= REMEMBERED:
            self._turns.clear()
        self._turns[where] = (times + 1, now + pause_before(times + 1))


class Reconcilers(_Reconcilers):
    """Functions that know what became of operations, on a blocking store."""

    def __init__(self, store: Store, *, observer: Observer = log_events) -> None:
        if hasattr(store, "aclose"):
            raise ConfigurationError("an asynchronous store is for AsyncReconcilers")
        super().__init__(store, observer)

    def run_once(self, look_at: int = 5_000, *, stopping: threading.Event | None = None) -> Reconciled:
        """Ask about the unknown outcomes among the next `look_at` records, on from where the last call stopped.

        Once `stopping` is set, nothing further is asked.
        """
        found = self._store.outstanding(self._after, look_at)
        self._after = found.after
        with closing(self._round(found, stopping)) as steps:
            try:
                step = next(steps)
                while True:
                    try:
                        answer = self._perform(step)
                    except Exception as error:  # noqa: BLE001 - the round decides
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # a StopIteration's is Any

    def _perform(self, step: _Step) -> Any:
        match step:
            case _Ask(finder, unknown):
                with around(self._observer, Work("reconcile", unknown.operation, unknown.key_hint)):
                    return finder(unknown)
            case Settle():
                return self._store.settle(*step)
            case Reopen():
                return self._store.reopen(*step)
        return False


class AsyncReconcilers(_Reconcilers):
    """Reconcilers, for asyncio."""

    def __init__(self, store: AsyncStore, *, observer: Observer = log_events) -> None:
        if not hasattr(store, "aclose"):
            raise ConfigurationError("a blocking store is for Reconcilers")
        super().__init__(store, observer)

    async def run_once(self, look_at: int = 5_000, *, stopping: threading.Event | None = None) -> Reconciled:
        """See Reconcilers.run_once."""
        found = await self._store.outstanding(self._after, look_at)
        self._after = found.after
        with closing(self._round(found, stopping)) as steps:
            try:
                step = next(steps)
                while True:
                    try:
                        answer = await self._perform(step)
                    except (Exception, asyncio.CancelledError) as error:
                        if not isinstance(error, Exception) and is_cancelled():
                            raise
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # a StopIteration's is Any

    async def _perform(self, step: _Step) -> Any:
        match step:
            case _Ask(finder, unknown):
                with around(self._observer, Work("reconcile", unknown.operation, unknown.key_hint)):
                    answer = finder(unknown)
                    return await answer if isawaitable(answer) else answer
            case Settle():
                return await self._store.settle(*step)
            case Reopen():
                return await self._store.reopen(*step)
        return False


def _unknown(record: Record) -> tuple[Unknown, Journal | None]:
    journal = steps_of(record)
    call = open_call(journal)
    name = None if call is None else call.name
    unknown = Unknown(record.operation, record.scope, record.key_hint, record.created_at, name, record.digest)
    return unknown, journal


def _settling(record: Record, journal: Journal | None, answer: object) -> Settle | Reopen | None:
    """The step that writes down what was found out; None where nothing was."""
    if not isinstance(answer, Answered):
        raise ConfigurationError(f"a reconciler gives Done, NotDone or Unclear, not {type(answer).__name__}")
    match answer:
        case Unclear():
            return None
        case NotDone():
            return settle(record, None) if journal is None else reopen(record, told(journal, None))
        case Done(result) if journal is not None:
            return reopen(record, told(journal, AnyValues().encode(result).decode("ascii")))
        case Done(StoredResponse() as response):
            return settle(record, response)
        case Done(result):
            return settle(record, StoredResponse(STATUS_DONE, (), AnyValues().encode(result)))
