"""One call of a plain function under a key: what the function may know of it, and what becomes of what it gives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from inspect import isawaitable, isgenerator
from typing import Any, Final, NamedTuple, TypeVar, cast, overload

from twicesafe.blocking.dealings import Dealings as BlockingDealings
from twicesafe.blocking.dealings import Shared as BlockingShared
from twicesafe.blocking.renewals import Renewals as BlockingRenewals
from twicesafe.cancelling import given_up, seen_through
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.functions import DONE, Function
from twicesafe.core.journal import Journal
from twicesafe.core.keys import derive
from twicesafe.core.phases import Progress
from twicesafe.core.policy import Operation
from twicesafe.core.provider import Provider
from twicesafe.core.record import Effects
from twicesafe.core.steps import FORWARD, Answer, Propagate, Result, Wait
from twicesafe.dealings import Dealings, Shared
from twicesafe.declared import Answered, Errors, calling
from twicesafe.elapsed import KnownLease, elapsed
from twicesafe.observe import Event, Observer, tell
from twicesafe.renewals import Renewals
from twicesafe.resuming import AsyncSteps, Steps

R = TypeVar("R")


class Contract(NamedTuple):
    """One function, and what is declared of it."""

    function: Function
    operation: Operation
    repeatable: Errors = ()


class _Called:
    """What a function may know of its call, and what becomes of what it gives."""

    operation: Operation
    _key: str
    _claim: Any
    _transaction: Any
    _found: Claimed | None
    _contract: Contract
    _progress: Progress | None = None
    _lease: KnownLease | None = None
    _repeatable = False

    @property
    def ran(self) -> bool:
        """Whether the function was called; otherwise somebody else was quicker."""
        return self._found is not None

    @property
    def connection(self) -> Any:
        """The driver's connection of a transactional operation, inside its transaction. Do not commit it."""
        if self._transaction is None:
            raise LookupError("this call has no transaction: its operation is not transactional")
        return self._transaction.connection

    @property
    def key(self) -> str:
        """The key it was called under. LookupError in an operation of several steps: workers go on without it."""
        if self.operation.policy.effects is Effects.RESUMABLE:
            raise LookupError(
                f"{self.operation.name} may go on without its caller, who alone has the key: use derived_key(), or "
                "take what names the intent as an argument"
            )
        return self._key

    def derived_key(self, call: str) -> str:
        """The key to send with the downstream call named `call`: the same on every attempt at this intent (R25)."""
        return derive(self._claim.digest, call)

    def nothing_done(self) -> None:
        """Declare that the function did nothing: whatever it gives or raises, the key stays free (R15).

        Unless it has taken steps, which are something.
        """
        self._repeatable = True

    def _advancing(self) -> Progress:
        """How far this operation has come. LookupError where it has no steps."""
        if self._progress is None:
            if self.operation.policy.effects is not Effects.RESUMABLE or self._found is None:
                raise LookupError(f'{self.operation.name} takes no steps: declare it effects="resumable"')
            own, now, previous = self._found
            journal = Journal()
            if previous is not None:
                journal = Journal.read(previous.recovery_data, previous.recovery_point)
            self._progress = Progress(own, now, journal)
        return self._progress

    def _about_to_claim(self, renewals: Renewals | BlockingRenewals) -> None:
        """Note the time: from now on a lease can count."""
        if self.operation.policy.effects is Effects.RESUMABLE:
            self._lease = KnownLease(self._claim.lease_us, elapsed(), lambda: self._renewed(renewals))

    def _renewed(self, renewals: Renewals | BlockingRenewals) -> float | None:
        return None if self._found is None else renewals.renewed(self._found.ownership)

    def _check_end(self) -> None:
        if self.operation.policy.effects is Effects.RESUMABLE:
            self._advancing().check_end()

    def _given(self, value: object, observer: Observer) -> Responded:
        kept = self._contract.function.kept(value)
        if kept is None:
            tell(observer, Event("result.not_kept", self.operation.name, self._claim.key_hint, loud=True))
        elif len(kept) > self.operation.policy.response_limit:
            kept = None
        return Responded(DONE, (), kept, entered=True, repeatable=self._repeatable and not self._steps_taken)

    def _raised(self, error: BaseException) -> Raised:
        free = self._repeatable or isinstance(error, self._contract.repeatable)
        return Raised(error, entered=self._steps_taken or not free)

    @property
    def _steps_taken(self) -> bool:
        """Whatever the function says of itself, these would be taken again."""
        return self._progress is not None and bool(self._progress.journal.entries)

    def _outcome(self, result: Result | None) -> Any:
        """What to give instead of the function's own."""
        if type(result) is Propagate:
            raise result.error
        assert type(result) is Answer, result
        if result.error is not None:
            raise result.error
        return self._contract.function.outcome(result)


class Call(_Called, BlockingDealings):
    """One call of a function under a key."""

    def __init__(self, shared: BlockingShared, contract: Contract, key: str, claim: Claim) -> None:
        super().__init__(shared, contract.operation)
        self._contract = contract
        self._claim = claim
        self._key = key

    def phase(self, name: str, function: Callable[..., R], /, *arguments: Any, **named: Any) -> R:
        """Take a step of a resumable operation that is one local transaction: `function(connection, ...)`.

        Its writes, its result and the recovery point are committed together; a later attempt gets its result and does
        not run it again. What it raises rolls it back and ends this attempt, so a phase that may fail on purpose gives
        a value that says so. It makes no calls to other systems: nothing is to be held open for them.
        """
        return cast("R", self._steps().phase(name, function, arguments, named))

    def call(
        self,
        name: str,
        send: Callable[..., R],
        /,
        *arguments: Any,
        remembers: timedelta | None = None,
        look_up: Callable[..., Answered] | None = None,
        rejected: Errors = (),
        unsent: Errors = (),
        to: Provider | None = None,
    ) -> R:
        """Call another system: `send(key, ...)`, with a key that is the same on every attempt.

        That it is about to be sent is recorded first. `rejected` are exceptions by which the other system says no for
        good: recorded, and raised as CallRejectedError on every attempt. `unsent` are those that prove that nothing was
        sent. Any other leaves open what came of it. Then the next attempt asks `look_up(key, ...)`, which gives Done,
        NotDone or Unclear; sends again under the same key within `remembers`, which is for how long the other system
        recognises keys; or holds the operation as unknown (CallUnknownError). `remembers` None: it is never sent twice.

        `to` is the other system, as `twicesafe.client.calls` knows it: the key is as it takes keys, and it says what
        `remembers` is where nothing else does. Requests by a client that is bound to it need neither `rejected` nor
        `unsent`: what they come to is known by the answers.
        """
        what = calling(name, send, arguments, look_up, rejected, unsent, to)
        return cast("R", self._steps().call(name, what, remembers))

    def _steps(self) -> Steps:
        return Steps(self._shared.store, self._advancing(), self._tell, self._lease)

    def run(self, work: Callable[[], object]) -> object:
        """The function's result, or the recorded one."""
        self._about_to_claim(self._shared.renewals)
        if not self._claimed(self._claim):
            return self._outcome(self.result)
        token = _current.set(self)
        try:
            value = work()
            if isawaitable(value) or isgenerator(value):
                raise _not_run(self.operation.name, value)
            self._check_end()
            given = self._given(value, self._shared.observer)
        except BaseException as error:  # noqa: BLE001 - whatever ends the function has to be settled first
            self.advance(self._raised(error))
            return self._outcome(self.result)
        finally:
            _current.reset(token)
        self.advance(given)
        return value if self.result is FORWARD else self._outcome(self.result)


class AsyncCall(_Called, Dealings):
    """One call of a coroutine function under a key."""

    _waiting = _cancelled = False

    def __init__(self, shared: Shared, contract: Contract, key: str, claim: Claim) -> None:
        super().__init__(shared, contract.operation)
        self._contract = contract
        self._claim = claim
        self._key = key
        self.waits(asyncio.get_running_loop())

    @overload
    async def phase(
        self, name: str, function: Callable[..., Coroutine[Any, Any, R]], /, *arguments: Any, **named: Any
    ) -> R: ...

    @overload
    async def phase(self, name: str, function: Callable[..., R], /, *arguments: Any, **named: Any) -> R: ...

    async def phase(self, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """See Call.phase."""
        return await self._steps().phase(name, function, arguments, named)

    @overload
    async def call(
        self,
        name: str,
        send: Callable[..., Coroutine[Any, Any, R]],
        /,
        *arguments: Any,
        remembers: timedelta | None = None,
        look_up: Callable[..., Awaitable[Answered] | Answered] | None = None,
        rejected: Errors = (),
        unsent: Errors = (),
        to: Provider | None = None,
    ) -> R: ...

    @overload
    async def call(
        self,
        name: str,
        send: Callable[..., R],
        /,
        *arguments: Any,
        remembers: timedelta | None = None,
        look_up: Callable[..., Awaitable[Answered] | Answered] | None = None,
        rejected: Errors = (),
        unsent: Errors = (),
        to: Provider | None = None,
    ) -> R: ...

    async def call(
        self,
        name: str,
        send: Callable[..., Any],
        /,
        *arguments: Any,
        remembers: timedelta | None = None,
        look_up: Callable[..., Awaitable[Answered] | Answered] | None = None,
        rejected: Errors = (),
        unsent: Errors = (),
        to: Provider | None = None,
    ) -> Any:
        """See Call.call."""
        what = calling(name, send, arguments, look_up, rejected, unsent, to)
        return await self._steps().call(name, what, remembers)

    def _steps(self) -> AsyncSteps:
        return AsyncSteps(self._shared.store, self._advancing(), self._tell, self._lease)

    async def run(self, work: Callable[[], Any]) -> object:
        """The function's result, or the recorded one."""
        self._about_to_claim(self._shared.renewals)
        try:
            if not await self._seen_through(self._claimed(self._claim)):
                return self._outcome(self._result)
        except asyncio.CancelledError as error:
            if self._own is not None:
                await self._seen_through(self._advance(Raised(error, entered=False)))
            raise
        token = _current.set(self)
        try:
            value = work()
            if isawaitable(value):
                value = await value
            self._check_end()
            given = self._given(value, self._shared.observer)
        except BaseException as error:  # noqa: BLE001 - whatever ends the function has to be settled first
            await self._seen_through(self._advance(self._raised(error)))
            return self._outcome(self._result)
        finally:
            _current.reset(token)
        await self._seen_through(self._advance(given))
        return value if self._result is FORWARD else self._outcome(self._result)

    def _check_end(self) -> None:
        with given_up():
            super()._check_end()

    async def _perform(self, step: Any) -> object:
        self._waiting = type(step) is Wait and step.digest is not None
        if self._waiting and self._cancelled:
            raise asyncio.CancelledError
        try:
            return await super()._perform(step)
        finally:
            self._waiting = False

    async def _seen_through(self, work: Coroutine[Any, Any, R]) -> R:
        """Whatever cancels the caller, this comes to its end first; only waiting for somebody else does not."""
        result, cancelled = await seen_through(work, self._wait_no_longer)
        if cancelled is not None:
            raise cancelled
        return result

    def _wait_no_longer(self, task: asyncio.Future[Any]) -> None:
        self._cancelled = True
        if self._waiting:
            task.cancel()


_current: Final[ContextVar[Call | AsyncCall]] = ContextVar("twicesafe.once")


def current() -> Call | AsyncCall:
    """The call that is running: for derived keys, and for the connection. LookupError outside of one."""
    return _current.get()


def _not_run(name: str, value: object) -> TypeError:
    close = getattr(value, "close", None)
    if close is not None:
        close()
    return TypeError(
        f"{name} gave a {type(value).__name__}, which nothing has run: give what it comes to. What the function did "
        "before is done, so it counts as one that raised"
    )
