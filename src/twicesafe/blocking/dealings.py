"""One exchange's dealings with its store, in blocking calls: performs what is wanted, and tells what came of it.

All decisions are core.exchange's; what the application answers is request's. What waits for nothing is
exchanging's; what does is written a second time in twicesafe.dealings, because code for both would cost every request
more calls.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, perf_counter_ns, sleep
from typing import Any

from twicesafe.blocking.renewals import Renewals
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
from twicesafe.stores.contract import Store, Transaction


class Shared(Exchanges):
    """What the requests of one shell have in common. `clock` and `pause` are for tests: both count seconds."""

    __slots__ = ("clock", "pause", "renewals", "store")

    def __init__(
        self,
        store: Store,
        observer: Observer,
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        super().__init__(observer)
        self.store = store
        self.clock = clock
        self.pause = pause
        self.renewals = Renewals(store, self._lease_lost, clock=clock)


class Dealings(Exchanging):
    """What BlockingRequest is built on."""

    _shared: Shared
    # On the class, so that a request pays for what it uses only.
    _transaction: Transaction | None = None
    """The one that is open."""
    result: Result | None = None

    def __init__(self, shared: Shared, operation: Operation) -> None:
        self._shared = shared
        self.operation = operation

    def close(self) -> None:
        """Give back the transaction, if one is open, and renew nothing any more. Safe to call twice."""
        self._forget()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.__exit__(None, None, None)

    def _won(self, found: Claimed) -> None:
        """From now on the claim is renewed, and the work's time is taken."""
        self._own = own = found.ownership
        self._found = found
        self._ran_at = perf_counter_ns()
        if self._transaction is None:
            assert self._claim is not None
            self._shared.renewals.watch(own, self._claim.lease_us, self.operation.policy.renewed_us)

    def _forget(self) -> None:
        own = self._own
        if own is not None:
            self._own = None
            self._shared.renewals.forget(own)

    def _claimed(self, claim: Claim) -> bool:
        """Claim. Whether to run; otherwise there is a result."""
        if self._shared.counts:
            self._asked_at = perf_counter_ns()
        if self.operation.policy.counts_keys:
            self._exchange = self._within_limits(self._exchange_of(claim), claim)
            return self.advance(None) is not None
        try:
            if claim.effects is Effects.TRANSACTIONAL:
                found = self._claim_in_transaction(claim)
            else:
                found = self._shared.store.claim(claim)
        except StoreError as error:
            return self._take_up(None, error)
        except BaseException:
            self.close()
            raise
        if type(found) is Claimed:
            self._won(found)
            if found.previous is None:
                return True
        answer = plain_replay(found, self.operation.policy)
        if answer is None:
            return self._take_up(found, None)
        self._tell(REPLAYED_NOTICE)
        self.result = answer
        return False

    def _take_up(self, found: object, error: StoreError | None) -> bool:
        """The claim has come to this, which is for the exchange. Whether to run."""
        self._begin()
        return self.advance(found, error) is not None

    def _recorded(self, own: Ownership, answer: StoredResponse, entered: bool | None) -> bool:  # noqa: FBT001 - as it stands in Responded
        """Record an answer that core.plain gave lines for. Whether the application's answer is to be sent."""
        policy, transaction = self.operation.policy, self._transaction
        try:
            if transaction is None:
                self._shared.store.complete(own, answer, policy.key_us, policy.body_us)
            else:
                keep = policy.keeps_effects(answer.status)
                transaction.complete(own, answer, policy.key_us, policy.body_us, keep_effects=keep)
        except StoreError as error:
            self._going().send(Responded(*answer, entered))
            self.advance(None, error)
            return self.result is FORWARD
        except BaseException:
            self.close()
            raise
        self.result = FORWARD
        if self._asked_at:
            self._tell_end("completed")
        self._over()
        return True

    def _over(self) -> None:
        """There is a result."""
        if self._ran_at:
            self._note_duration()
        if self._asked_at:
            self._tell_end("left")
        self._forget()
        if self._transaction is not None:
            self.close()

    def advance(self, value: object, error: StoreError | None = None) -> Run | Flow | None:
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
                    value = self._perform(step)
                except StoreError as problem_met:
                    error = problem_met
        except StopIteration as stop:
            self.result = stop.value
            self._over()
            return None
        except BaseException:
            # Nothing is known of the store any more but the claim's lease.
            generator.close()
            self._exchange = None
            self.close()
            raise

    def _claim_in_transaction(self, claim: Claim) -> Claimed | Existing:
        transaction = self._open()
        found = transaction.claim(claim)
        if type(found) is not Claimed:
            self.close()
        return found

    def _open(self) -> Transaction:
        self.close()
        transaction = self._shared.store.transaction()
        transaction.__enter__()
        self._transaction = transaction
        return transaction

    def _perform(self, step: Any) -> object:
        session = self._shared.store if self._transaction is None else self._transaction
        match step:
            case Claim():
                if step.effects is Effects.TRANSACTIONAL:
                    found = self._claim_in_transaction(step)
                else:
                    found = session.claim(step)
                if type(found) is Claimed:
                    self._won(found)
                return found
            case Complete(own, response, key_us, body_us, keep):
                session.complete(own, response, key_us, body_us, keep_effects=keep)
                if self._asked_at:
                    self._tell_end("completed")
            case Notice():
                self._tell(step)
            case Begin():
                self._open().begin()
            case Commit():
                assert self._transaction is not None
                self._transaction.commit()
            case StartAnswer(own, head):
                session.start_answer(own, head)
            case Release(own):
                session.release(own)
                if self._asked_at:
                    self._tell_end("released")
            case Renew(own, lease_us):
                session.renew(own, lease_us)
                if self._asked_at:
                    self._tell_end("reopened")
            case Hold(own):
                session.hold(own)
                if self._asked_at:
                    self._tell_end("held")
            case Read(digest):
                self.close()
                return self._shared.store.read(digest)
            case Look(digest):
                store: Any = self._shared.store
                return getattr(store, "glance", store.read)(digest)
            case Wait(microseconds, digest, at_most):
                settled = None if digest is None else getattr(self._shared.store, "settled", None)
                if settled is None:
                    self._shared.pause(microseconds / 1_000_000)
                else:
                    began = perf_counter_ns()
                    settled(digest, at_most)
                    return (perf_counter_ns() - began) // 1000
        return None

    def _rebuild(self, request: Any) -> None:
        """Have the answer to a duplicate made anew, where the operation wants that."""
        operation = self.operation
        stored = to_rebuild(self.result, operation)
        if stored is not None:
            assert operation.rebuild is not None
            try:
                self.result = rebuilt(self.result, operation.rebuild(stored, request), operation.policy)
            except Exception as error:  # noqa: BLE001 - whatever it is, there is an answer without it
                self._tell(Notice("rebuild.failed", loud=True, error=not_rebuilt(error, operation)))
