"""One exchange's dealings with its store, under asyncio: performs what is wanted, and tells what came of it.

All decisions are core.exchange's; the application and its server are keyed's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from time import perf_counter_ns
from typing import Any, Final, TypeAlias

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.policy import Operation
from twicesafe.core.record import Effects, Ownership
from twicesafe.core.steps import (
    Begin,
    Commit,
    Complete,
    Exchange,
    Flow,
    Hold,
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
from twicesafe.observe import Event, Observer, tell
from twicesafe.renewals import Renewals
from twicesafe.stores.contract import AsyncStore, AsyncTransaction

EnteredOf: TypeAlias = Callable[[MutableMapping[str, Any], int], bool | None]
"""Whether the handler proper was reached, judged by the ASGI scope once the answer's status is known. None where that
cannot be told; False only where it is certain, because the key is then free for another run."""


USUAL_AT_MOST: Final = 1000
"""Operations whose usual time is remembered: their names may come from paths, which strangers make up."""


class Shared:
    """What the requests of one middleware have in common."""

    __slots__ = ("entered", "observer", "renewals", "running", "store", "usual")

    def __init__(self, store: AsyncStore, observer: Observer, entered: EnteredOf) -> None:
        self.store = store
        self.observer = observer
        self.entered = entered
        self.renewals = Renewals(store, self._lease_lost)
        self.running: set[asyncio.Task[None]] = set()
        self.usual: dict[str, int] = {}
        """Microseconds that an operation usually takes, a moving average: what a duplicate is told to wait."""

    def _lease_lost(self, own: Ownership) -> None:
        tell(self.observer, Event("lease.lost", "", own.digest.hex()[:8], loud=True))


class Dealings:
    """What KeyedRequest is built on."""

    __slots__ = (
        "_claim", "_exchange", "_loop", "_own", "_ran_at", "_result", "_shared", "_transaction", "_visible",
        "operation",
    )  # fmt: skip

    def __init__(self, shared: Shared, operation: Operation, loop: asyncio.AbstractEventLoop) -> None:
        self.operation = operation
        self._shared = shared
        self._loop = loop
        self._claim: Claim | None = None
        self._exchange: Exchange | None = None
        self._own: Ownership | None = None
        """A claim of the leased way, renewed while its work runs."""
        self._transaction: AsyncTransaction | None = None
        """The one that is open."""
        self._result: Result | None = None
        self._visible: asyncio.Event | None = None
        """Set once the application may know of a hang-up."""
        self._ran_at = 0

    async def close(self) -> None:
        """Give back the transaction, if one is open, and renew nothing any more. Safe to call twice."""
        self._forget()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.__aexit__(None, None, None)

    def _forget(self) -> None:
        own = self._own
        if own is not None:
            self._own = None
            self._shared.renewals.forget(own)

    async def _advance(self, value: object) -> Run | Flow | None:
        """Drive the exchange until it wants the application to go on, or has its result."""
        generator = self._exchange
        assert generator is not None
        error: StoreError | None = None
        try:
            while True:
                step = generator.send(value) if error is None else generator.throw(error)
                error = None
                if type(step) is Run or type(step) is Flow:
                    return step
                try:
                    # What every request comes by; the rest is _perform's.
                    if type(step) is Claim:
                        if step.effects is Effects.TRANSACTIONAL:
                            value = await self._claim_in_transaction(step)
                        else:
                            value = await self._shared.store.claim(step)
                            if type(value) is Claimed:
                                own = self._own = value.ownership
                                self._shared.renewals.watch(own, step.lease_us, self._loop)
                    elif type(step) is Notice:
                        self._tell(step)
                    elif type(step) is Complete:
                        own, response, key_us, body_us, keep = step
                        session = self._shared.store if self._transaction is None else self._transaction
                        await session.complete(own, response, key_us, body_us, keep_effects=keep)
                        value = None
                    else:
                        value = await self._perform(step)
                except StoreError as problem_met:
                    error = problem_met
        except StopIteration as stop:
            self._result = stop.value
            if self._ran_at:
                self._note_duration()
            if self._visible is not None:
                self._visible.set()
            if self._own is not None:
                self._forget()
            if self._transaction is not None:
                await self.close()
            return None
        except BaseException:
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
            case Begin():
                await (await self._open()).begin()
            case Commit():
                assert self._transaction is not None
                await self._transaction.commit()
            case StartAnswer(own, head):
                await session.start_answer(own, head)
            case Release(own):
                await session.release(own)
            case Renew(own, lease_us):
                await session.renew(own, lease_us)
            case Hold(own):
                await session.hold(own)
            case Read(digest):
                await self.close()
                return await self._shared.store.read(digest)
            case Wait(microseconds):
                await asyncio.sleep(microseconds / 1_000_000)
        return None

    def _tell(self, notice: Notice) -> None:
        hint = "" if self._claim is None else self._claim.key_hint
        tell(self._shared.observer, Event(notice.name, self.operation.name, hint, notice.loud, notice.error))

    def _note_duration(self) -> None:
        took = (perf_counter_ns() - self._ran_at) // 1000
        self._ran_at = 0
        usual, name = self._shared.usual, self.operation.name
        before = usual.get(name)
        if before is None and len(usual) >= USUAL_AT_MOST:
            del usual[next(iter(usual))]
        usual[name] = took if before is None else before + (took - before) // 8
