"""One exchange's dealings with its store, under asyncio: performs what is wanted, and tells what came of it.

All decisions are core.exchange's; the application and its server are keyed's. What waits for nothing is exchanging's;
what does is written a second time in blocking.dealings, because code for both would cost every request more calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from inspect import isawaitable
from time import perf_counter_ns
from typing import Any, TypeAlias

from twicesafe.core.capture import Responded
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.plain import REPLAYED_NOTICE, plain_replay
from twicesafe.core.policy import Operation
from twicesafe.core.rebuilding import not_rebuilt, rebuilt, to_rebuild
from twicesafe.core.record import Effects, Ownership, StoredResponse
from twicesafe.core.steps import (
    FORWARD,
    Begin,
    Commit,
    Complete,
    Flow,
    Hold,
    Look,
    Notice,
    Read,
    Release,
    Renew,
    Result,
    Run,
    StartAnswer,
    Wait,
)
from twicesafe.errors import StoreError
from twicesafe.exchanging import Exchanges, Exchanging
from twicesafe.observe import Observer
from twicesafe.renewals import Renewals
from twicesafe.stores.contract import AsyncStore, AsyncTransaction

EnteredOf: TypeAlias = Callable[[MutableMapping[str, Any], int], bool | None]
"""Whether the handler proper was reached, judged by the ASGI scope once the answer's status is known. None where that
cannot be told; False only where it is certain, because the key is then free for another run."""


class Shared(Exchanges):
    """What the requests of one middleware have in common."""

    __slots__ = ("entered", "renewals", "running", "store")

    def __init__(self, store: AsyncStore, observer: Observer, entered: EnteredOf) -> None:
        super().__init__(observer)
        self.store = store
        self.entered = entered
        self.renewals = Renewals(store, self._lease_lost)
        self.running: set[asyncio.Task[None]] = set()


class Dealings(Exchanging):
    """What KeyedRequest is built on."""

    _shared: Shared
    # On the class, so that a request pays for what it uses only.
    _transaction: AsyncTransaction | None = None
    """The one that is open."""
    _result: Result | None = None
    _visible: asyncio.Event | None = None
    """Set once the application may know of a hang-up."""
    _loop: asyncio.AbstractEventLoop | None = None
    """Once the work has waited for something: what never waits needs no renewal, and no duplicate meets it."""

    def __init__(self, shared: Shared, operation: Operation) -> None:
        self._shared = shared
        self.operation = operation

    async def close(self) -> None:
        """Give back the transaction, if one is open, and renew nothing any more. Safe to call twice."""
        self._forget()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.__aexit__(None, None, None)

    def waits(self, loop: asyncio.AbstractEventLoop) -> None:
        """The work goes on in turns of the loop: from now on its claim is renewed and its time is taken."""
        self._loop = loop
        if self._own is not None:
            self._watch_over(self._own, loop)

    def _watch_over(self, own: Ownership, loop: asyncio.AbstractEventLoop) -> None:
        self._ran_at = perf_counter_ns()
        if self._transaction is None:
            assert self._claim is not None
            self._shared.renewals.watch(own, self._claim.lease_us, self.operation.policy.renewed_us, loop)

    def _forget(self) -> None:
        own = self._own
        if own is not None:
            self._own = None
            if self._loop is not None:
                self._shared.renewals.forget(own)

    async def _claimed(self, claim: Claim) -> bool:
        """Claim. Whether to run; otherwise there is a result, or the exchange has to go on."""
        if self._shared.counts:
            self._asked_at = perf_counter_ns()
        if self.operation.policy.counts_keys:
            self._exchange = self._within_limits(self._exchange_of(claim), claim)
            return await self._advance(None) is not None
        try:
            if claim.effects is Effects.TRANSACTIONAL:
                found = await self._claim_in_transaction(claim)
            else:
                found = await self._shared.store.claim(claim)
        except StoreError as error:
            return await self._take_up(None, error)
        except BaseException:
            await self.close()
            raise
        if type(found) is Claimed:
            self._own, self._found = found.ownership, found
            if self._loop is not None:
                self._watch_over(found.ownership, self._loop)
            if found.previous is None:
                return True
        answer = plain_replay(found, self.operation.policy)
        if answer is None:
            return await self._take_up(found, None)
        self._tell(REPLAYED_NOTICE)
        self._result = answer
        return False

    async def _take_up(self, found: object, error: StoreError | None) -> bool:
        """The claim has come to this, which is for the exchange. Whether to run."""
        self._begin()
        return await self._advance(found, error) is not None

    async def _recorded(self, own: Ownership, answer: StoredResponse, entered: bool | None) -> bool:  # noqa: FBT001 - as it stands in Responded
        """Record an answer that core.plain gave lines for. Whether the application's answer is to be sent."""
        policy, transaction = self.operation.policy, self._transaction
        try:
            if transaction is None:
                await self._shared.store.complete(own, answer, policy.key_us, policy.body_us)
            else:
                keep = policy.keeps_effects(answer.status)
                await transaction.complete(own, answer, policy.key_us, policy.body_us, keep_effects=keep)
        except StoreError as error:
            self._going().send(Responded(*answer, entered))
            await self._advance(None, error)
            return self._result is FORWARD
        except BaseException:
            await self.close()
            raise
        self._result = FORWARD
        if self._asked_at:
            self._tell_end("completed")
        if self._loop is None and transaction is None:
            self._own = None
        else:
            await self._over()
        return True

    async def _over(self) -> None:
        """There is a result."""
        if self._visible is not None and self._result is not FORWARD:
            self._visible.set()
        if self._ran_at:
            self._note_duration()
        if self._asked_at:
            self._tell_end("left")
        self._forget()
        if self._transaction is not None:
            await self.close()

    async def _advance(self, value: object, error: StoreError | None = None) -> Run | Flow | None:
        """Drive the exchange until it wants the application to go on, or has its result.

        It is sent `value`, or thrown `error`.
        """
        generator = self._going()
        try:
            while True:
                step = generator.send(value) if error is None else generator.throw(error)
                error = None
                if type(step) is Run or type(step) is Flow:
                    return step
                try:
                    value = await self._perform(step)
                except StoreError as problem_met:
                    error = problem_met
        except StopIteration as stop:
            self._result = stop.value
            await self._over()
            return None
        except BaseException:
            # Nothing is known of the store any more but the claim's lease. What the exchange holds, such as a place
            # within limits, is given back now, and not when the garbage collector comes by.
            generator.close()
            self._exchange = None
            await self.close()
            raise

    async def _claim_in_transaction(self, claim: Claim) -> Claimed | Existing:
        transaction = await self._open()
        found = await transaction.claim(claim)
        if type(found) is not Claimed:
            await self.close()
        return found

    async def _open(self) -> AsyncTransaction:
        await self.close()
        transaction = self._shared.store.transaction()
        await transaction.__aenter__()
        self._transaction = transaction
        return transaction

    async def _perform(self, step: Any) -> object:
        session = self._shared.store if self._transaction is None else self._transaction
        match step:
            case Claim():
                if step.effects is Effects.TRANSACTIONAL:
                    found = await self._claim_in_transaction(step)
                else:
                    found = await session.claim(step)
                if type(found) is Claimed:
                    self._own, self._found = found.ownership, found
                    if self._loop is not None:
                        self._watch_over(found.ownership, self._loop)
                return found
            case Complete(own, response, key_us, body_us, keep):
                await session.complete(own, response, key_us, body_us, keep_effects=keep)
                if self._asked_at:
                    self._tell_end("completed")
            case Notice():
                self._tell(step)
            case Begin():
                await (await self._open()).begin()
            case Commit():
                assert self._transaction is not None
                await self._transaction.commit()
            case StartAnswer(own, head):
                await session.start_answer(own, head)
            case Release(own):
                await session.release(own)
                if self._asked_at:
                    self._tell_end("released")
            case Renew(own, lease_us):
                await session.renew(own, lease_us)
                if self._asked_at:
                    self._tell_end("reopened")
            case Hold(own):
                await session.hold(own)
                if self._asked_at:
                    self._tell_end("held")
            case Read(digest):
                await self.close()
                return await self._shared.store.read(digest)
            case Look(digest):
                store: Any = self._shared.store
                return await getattr(store, "glance", store.read)(digest)
            case Wait(microseconds, digest, at_most):
                settled = None if digest is None else getattr(self._shared.store, "settled", None)
                if settled is None:
                    await asyncio.sleep(microseconds / 1_000_000)
                else:
                    began = perf_counter_ns()
                    await settled(digest, at_most)
                    return (perf_counter_ns() - began) // 1000
        return None

    async def rebuild(self, request: Any) -> Result | None:
        """Have the answer to a duplicate made anew, where the operation wants that. Gives what is to be sent."""
        operation = self.operation
        stored = to_rebuild(self._result, operation)
        if stored is not None:
            assert operation.rebuild is not None
            try:
                given = operation.rebuild(stored, request)
                if isawaitable(given):
                    given = await given
                self._result = rebuilt(self._result, given, operation.policy)
            except (Exception, asyncio.CancelledError) as error:
                # Whatever it is, there is an answer without it; also where what the hook waited for was cancelled.
                task = asyncio.current_task()
                if not isinstance(error, Exception) and task is not None and task.cancelling():
                    raise
                self._tell(Notice("rebuild.failed", loud=True, error=not_rebuilt(error, operation)))
        return self._result
