"""The steps of a resumable operation, performed: what core.phases wants done, by threads and under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from math import inf
from time import sleep
from typing import Any, Final, NamedTuple

from twicesafe.bound import bound
from twicesafe.cancelling import given_up, seen_through
from twicesafe.core import phases
from twicesafe.core.claims import Claim
from twicesafe.core.functions import result_values
from twicesafe.core.journal import OPEN
from twicesafe.core.keys import derive
from twicesafe.core.outgoing import Outgoing, may_have_been_sent
from twicesafe.core.phases import Phases, Progress, Sent, Taken
from twicesafe.core.record import Micros
from twicesafe.core.steps import Notice, Read, Wait
from twicesafe.core.values import Values
from twicesafe.declared import Calling
from twicesafe.elapsed import KnownLease, elapsed
from twicesafe.errors import (
    DefinitionChangedError,
    HeldError,
    InProgressError,
    RequestError,
    ValueNotKeptError,
)
from twicesafe.observe import Event, Observer, tell
from twicesafe.stores.contract import AsyncStore, AsyncTransaction, Store, Transaction


class Resumed(NamedTuple):
    """What one round of resuming came to. `more` False: the look has come past every record."""

    done: int
    failed: int
    """To be tried again later."""
    held: int
    """Held as unknown, for a reconciler or a human."""
    more: bool


class Round:
    """Counts what comes of a round."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.done = self._failed = self._held = 0

    def ended(self, *, ran: bool) -> bool:
        """An operation came to its end. Whether by somebody else, who is at its neighbours too."""
        self.done += ran
        return not ran

    def failed(self, claim: Claim, error: BaseException) -> bool:
        """Another attempt did not come to its end. Whether somebody else is at it, and at its neighbours too."""
        if isinstance(error, RequestError):
            return isinstance(error, InProgressError)
        held = isinstance(error, HeldError)
        self._held += held
        self._failed += not held
        name = "resume.held" if held else "resume.failed"
        tell(self._observer, Event(name, claim.operation, claim.key_hint, loud=held, error=error))
        return False

    def result(self, *, more: bool) -> Resumed:
        """All of it."""
        return Resumed(self.done, self._failed, self._held, more)


class _Steps:
    """What both kinds have in common."""

    def __init__(
        self,
        store: Store | AsyncStore,
        progress: Progress,
        tell: Callable[[Notice], None],
        lease: KnownLease | None = None,
    ) -> None:
        """`lease`: that of the progress's claim, as far as it is known here. None: it lasts."""
        self._store: Any = store
        self.progress = progress
        self._tell = tell
        self._lease = lease
        self._asked_at = 0.0
        """When the store was asked for its now, by this process's clock."""
        self._sends_until = inf
        self._transaction: Any = None

    def _in_time(self) -> bool:
        """Whether a request may begin."""
        now = elapsed()
        return now < self._sends_until and (self._lease is None or self._lease.lasts(now))

    def _is_kept(self) -> bool:
        return self._lease is None or self._lease.lasts_long(elapsed())

    def _begins(self, outgoing: Outgoing, within: Micros | None) -> None:
        """It is about to be sent. CallRefusedError where it is too late for that."""
        self._sends_until = inf if within is None else self._asked_at + within / 1_000_000
        outgoing.check_in_time()

    def _outgoing(self, name: str, what: Calling) -> Outgoing:
        """The call, whose key is the first thing that sending it and looking it up are given."""
        again = may_have_been_sent(self.progress.journal, name)
        derived = partial(derive, self.progress.ownership.digest)
        return Outgoing(derived, name, what.to, again=again, in_time=self._in_time)


class Steps(_Steps):
    """One run's steps in blocking calls, for a store that has what `Resumes` promises."""

    def phase(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        values = result_values(function, name)

        def run() -> tuple[str, object]:
            value = function(self._transaction.connection, *arguments, **named)
            return values.encode(value).decode("ascii"), value

        return self._take(phases.phase(self.progress, name), values, run, None)

    def call(self, name: str, what: Calling, remembers: timedelta | None) -> Any:
        steps = phases.call(self.progress, name, what.contract(remembers))
        return self._take(steps, what.values, None, (self._outgoing(name, what), what))

    def _take(self, steps: Phases, values: Values, run: Any, called: tuple[Outgoing, Calling] | None) -> Any:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._perform(step, run, called)
                except BaseException as error:  # noqa: BLE001 - the steps decide
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return _value(end.value, values, self.progress)
        finally:
            self._leave()

    def _perform(self, step: Any, run: Any, called: tuple[Outgoing, Calling] | None) -> Any:
        match step:
            case phases.BeginPhase():
                self._leave()
                transaction: Transaction = self._store.transaction()
                transaction.__enter__()
                self._transaction = transaction
                transaction.begin()
            case phases.RunPhase():
                return run()
            case phases.Advance(own, seen, point, data):
                session = self._store if self._transaction is None else self._transaction
                session.advance(own, seen, point, data)
            case phases.CommitPhase():
                self._transaction.commit()
            case phases.Keep():
                if self._lease is not None and not self._is_kept():
                    began = elapsed()
                    self._store.renew(self.progress.ownership, self._lease.lease_us)
                    self._lease.given_anew(began)
            case phases.Send(within):
                assert called is not None
                return self._send(*called, within)
            case phases.LookUp():
                assert called is not None
                outgoing, what = called
                assert what.look_up is not None
                return what.found(outgoing, what.look_up(outgoing.key, *what.arguments))
            case phases.Now():
                self._asked_at = elapsed()
                return self._store.now()
            case Read(digest):
                self._leave()
                return self._store.read(digest)
            case Wait(microseconds):
                sleep(microseconds / 1_000_000)
            case Notice():
                self._tell(step)
        return None

    def _send(self, outgoing: Outgoing, what: Calling, within: Micros | None) -> Sent:
        try:
            with bound(outgoing):
                self._begins(outgoing, within)
                result = what.send(outgoing.key, *what.arguments)
        except Exception as error:  # noqa: BLE001 - which one it is decides
            return what.failed(outgoing, error)
        return what.given(outgoing, result)

    def _leave(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.__exit__(None, None, None)


class AsyncSteps(_Steps):
    """Steps, for asyncio. What a call came to, and a phase's commit, are written down whoever cancels meanwhile."""

    async def phase(
        self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        values = result_values(function, name)

        async def run() -> tuple[str, object]:
            value = function(self._transaction.connection, *arguments, **named)
            if isawaitable(value):
                value = await value
            return values.encode(value).decode("ascii"), value

        return await self._take(phases.phase(self.progress, name), values, run, None)

    async def call(self, name: str, what: Calling, remembers: timedelta | None) -> Any:
        steps = phases.call(self.progress, name, what.contract(remembers))
        return await self._take(steps, what.values, None, (self._outgoing(name, what), what))

    async def _take(self, steps: Phases, values: Values, run: Any, called: tuple[Outgoing, Calling] | None) -> Any:
        cancelled: asyncio.CancelledError | None = None
        step: Any
        try:
            with given_up():
                step = next(steps)
            while True:
                if type(step) not in _TO_BE_CANCELLED:
                    step, late = await seen_through(self._written_down(steps, step))
                    cancelled = cancelled or late
                    if type(step) is StopIteration:
                        raise step
                    continue
                try:
                    if cancelled is None:
                        answer = await self._perform(step, run, called)
                    elif type(step) is phases.Send:
                        answer = Sent(OPEN, error=cancelled, unsent=True)
                    else:
                        raise cancelled
                except BaseException as error:  # noqa: BLE001 - the steps decide
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            if cancelled is not None:
                raise cancelled from None
            return _value(end.value, values, self.progress)
        except Exception as error:
            if cancelled is not None:
                raise cancelled from error
            raise
        finally:
            if self._transaction is not None:
                await seen_through(self._leave())

    async def _written_down(self, steps: Phases, step: Any) -> Any:
        """Perform what writes down what has come of something, up to the next step that does not, or to the end."""
        while type(step) not in _TO_BE_CANCELLED:
            try:
                try:
                    answer = await self._perform(step, None, None)
                except BaseException as error:  # noqa: BLE001 - the steps decide
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
            except StopIteration as end:
                return end
        return step

    async def _perform(self, step: Any, run: Any, called: tuple[Outgoing, Calling] | None) -> Any:
        match step:
            case phases.BeginPhase():
                await self._leave()
                transaction: AsyncTransaction = self._store.transaction()
                await transaction.__aenter__()
                self._transaction = transaction
                await transaction.begin()
            case phases.RunPhase():
                return await run()
            case phases.Advance(own, seen, point, data):
                session = self._store if self._transaction is None else self._transaction
                await session.advance(own, seen, point, data)
            case phases.CommitPhase():
                await self._transaction.commit()
                await self._leave()
            case phases.Keep():
                if self._lease is not None and not self._is_kept():
                    began = elapsed()
                    await self._store.renew(self.progress.ownership, self._lease.lease_us)
                    self._lease.given_anew(began)
            case phases.Send(within):
                assert called is not None
                return await self._send(*called, within)
            case phases.LookUp():
                assert called is not None
                outgoing, what = called
                assert what.look_up is not None
                found = what.look_up(outgoing.key, *what.arguments)
                return what.found(outgoing, await found if isawaitable(found) else found)
            case phases.Now():
                self._asked_at = elapsed()
                return await self._store.now()
            case Read(digest):
                await self._leave()
                return await self._store.read(digest)
            case Wait(microseconds):
                await asyncio.sleep(microseconds / 1_000_000)
            case Notice():
                self._tell(step)
        return None

    async def _send(self, outgoing: Outgoing, what: Calling, within: Micros | None) -> Sent:
        try:
            with bound(outgoing):
                self._begins(outgoing, within)
                result = what.send(outgoing.key, *what.arguments)
                if isawaitable(result):
                    result = await result
        except Exception as error:  # noqa: BLE001 - which one it is decides
            return what.failed(outgoing, error)
        return what.given(outgoing, result)

    async def _leave(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.__aexit__(None, None, None)


_TO_BE_CANCELLED: Final = (phases.BeginPhase, phases.RunPhase, phases.Send, phases.LookUp)
"""Steps that end where they are when the caller is cancelled. All others write down what came of these."""


def _value(taken: Taken, values: Values, progress: Progress) -> Any:
    """What a step gave. DefinitionChangedError where the types have changed since: that is for a human to judge."""
    if taken.kept is None:
        return taken.value
    try:
        return values.decode(taken.kept.encode("ascii"))
    except ValueNotKeptError as error:
        progress.broken = DefinitionChangedError(f"a step's result was kept and cannot be read: {error}")
        raise progress.broken from error
