"""An attempt as the server makes it: the real exchange, on the real steps of a store, down to single statements."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from copy import copy
from typing import Any, Final

from tests.model.state import Actor
from tests.model.wishes import Charge, Choose, Noticed, Reply, Undisturbed, Won
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Claim, Claimed, Found
from twicesafe.core.exchange import exchange
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.keys import derive, scoped_key
from twicesafe.core.lifecycle import outstanding
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, Instant, Ownership, Record
from twicesafe.core.steps import (
    Answer,
    Complete,
    Flow,
    Forward,
    Hold,
    Notice,
    Propagate,
    Read,
    Release,
    Renew,
    Run,
    StartAnswer,
    Wait,
)
from twicesafe.errors import StoreError
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sql.settled_here import SettledHere
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.sql.transactional import SqlTransactionSteps
from twicesafe.stores.steps import Statement
from twicesafe.testing.exploring import Place, Program, Told

SQL: Final = Queries(Dialect.SQLITE, Placeholder.QUESTION_MARK)
KEY: Final = "0190a1b2-key"
CHARGED: Final = 201

Handler = Callable[[Ownership, Record | None, "Attempt"], Generator[Any, Any, Responded | Raised]]


class Attempt:
    """One attempt's request, and how its server goes about it."""

    def __init__(
        self,
        number: int,
        policy: Policy,
        handler: Handler,
        *,
        request: str = "a",
        scope: str = "user-1",
        inserts_first: bool = False,
        worker: bool = False,
    ) -> None:
        """`inserts_first`: as stores over a network do, not as SQLite's. `worker`: it goes on with what it finds.

        `request` is a letter; a large one is the same request, made by somebody else.
        """
        digest, name, hint = scoped_key(scope, KEY)
        self.number = number
        self.request = request
        self.scope = scope
        self.policy = policy
        self.handler = handler
        self.worker = worker
        self.claimed_at: Instant = 0
        self.steps = SqlSteps(SQL)
        self.steps._looks_first = not inserts_first
        self.steps.settled_here = Forgetful()
        self.claim = Claim(
            digest,
            name,
            "POST /charges",
            hint,
            GivenFingerprint(b"\1" + request.lower().encode() * 32),
            policy.effects,
            token(number),
            policy.lease_us,
            policy.key_us,
        )

    def actor(self) -> Actor:
        """It has not begun."""
        return Actor(self.claim.owner, self.request, self.claim.digest, Place(lambda: Running(self).program()))


class Forgetful(SettledHere):
    """Whether a claim looks first is the scenario's to say; one that went by earlier schedules would not repeat."""

    def add(self, digest: bytes) -> None:
        """It stays unknown."""


def token(number: int) -> bytes:
    """The owner token of an attempt."""
    return b"%d" % number * 16


class Running:
    """A program that has begun."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = copy(attempt)
        self._steps = attempt.steps
        self._transaction: SqlTransactionSteps | None = None
        self._answer: Responded | None = None

    def program(self) -> Program:
        claim = self._attempt.claim
        if self._attempt.worker:
            try:
                record, now = yield from undisturbed(self._steps.read(claim.digest))
            except StoreError:
                return None
            if not outstanding(record, now):
                return None
            claim = claim._replace(seen=record)
        generator = exchange(claim, self._attempt.policy)
        try:
            step = next(generator)
            while True:
                try:
                    came = yield from self._perform(step)
                except StoreError as error:
                    step = generator.throw(error)
                else:
                    step = generator.send(came)
        except StopIteration as end:
            result = end.value
        yield from self._leave()
        yield self._reply(result)
        return None

    def _reply(self, result: Any) -> Reply:
        if type(result) is Forward:
            assert self._answer is not None
            return Reply("forward", self._answer.status, self._answer.body)
        if type(result) is Answer:
            return Reply(result.kind, result.status, result.body)
        assert type(result) is Propagate, result
        return Reply("propagated", 500, None)

    def _perform(self, step: Any) -> Program:
        session: Any = self._transaction or self._steps
        match step:
            case Claim():
                return (yield from self._claim(step))
            case Run(own, previous):
                came = yield from self._attempt.handler(own, previous, self._attempt)
                self._answer = came if type(came) is Responded else None
                return came
            case Flow():
                assert self._answer is not None
                yield Reply("forward", self._answer.status, None)
                return self._answer
            case Complete(own, response, key_us, body_us, keep):
                if self._transaction is None:
                    return (yield from self._steps.complete(own, response, key_us, body_us))
                return (yield from self._transaction.complete(own, response, key_us, body_us, keep_effects=keep))
            case StartAnswer(own, head):
                return (yield from session.start_answer(own, head))
            case Release(own):
                return (yield from self._ended(self._steps.release, own))
            case Hold(own):
                return (yield from self._ended(self._steps.hold, own))
            case Renew(own, lease_us):
                return (yield from self._steps.renew(own, lease_us))
            case Read(digest):
                yield from self._leave()
                return (yield from undisturbed(self._steps.read(digest)))
            case Notice(name):
                yield Told(Noticed(name))
                return None
            case Wait():
                return None
        raise AssertionError(step)

    def _claim(self, claim: Claim) -> Program:
        if claim.effects is not Effects.TRANSACTIONAL:
            found = yield from self._steps.claim(claim)
            if type(found) is Claimed:
                self._attempt.claimed_at = found.now
                yield Told(Won(found.ownership, found.now + claim.lease_us))
            return found
        yield from self._leave()
        self._transaction = SqlTransactionSteps(SQL)
        found = yield from self._transaction.claim(claim)
        if type(found) is Claimed:
            yield Told(Won(found.ownership, None))
        return found

    def _ended(self, leased: Callable[[Ownership], Program], own: Ownership) -> Program:
        if self._transaction is None:
            return (yield from leased(own))
        return (yield from self._transaction.roll_back())

    def _leave(self) -> Program:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            yield from transaction.roll_back()
        return None


def undisturbed(steps: Generator[Any, Any, Found]) -> Program:
    """A look, as `Store.read` performs it on SQLite: while writers are kept out."""
    try:
        step = next(steps)
        while True:
            came = yield Undisturbed(step)
            step = steps.send(came)
    except StopIteration as end:
        return end.value


# --- handlers --------------------------------------------------------------------------------------------------------


def charging(own: Ownership, _: Record | None, attempt: Attempt) -> Program:
    """Charges in another system; under a key of its own where it says so."""
    key = derive(own.digest, "charge") if attempt.policy.effects is Effects.KEYED else None
    try:
        number = yield Charge(key)
    except ConnectionRefusedError:
        # Provably nothing was done, and the handler says so.
        return Responded(503, (), b"busy", entered=True)
    except ConnectionError as error:
        return Raised(error, entered=True)
    return charged(number, attempt)


def renewing(own: Ownership, previous: Record | None, attempt: Attempt) -> Program:
    """The same, and its lease may be renewed before."""
    if (yield Choose("nr")) == "r":
        yield from _renewed(own, attempt)
    return (yield from charging(own, previous, attempt))


def _renewed(own: Ownership, attempt: Attempt) -> Program:
    with suppress(StoreError):
        yield from attempt.steps.renew(own, attempt.policy.lease_us)
    return None


def inserting(own: Ownership, _: Record | None, attempt: Attempt) -> Program:
    """Writes a row in the transaction of its claim; it may fail then, or answer that it refuses."""
    try:
        rows = yield effect("charge")
    except StoreError as error:
        return Raised(error, entered=True)
    match (yield Choose("arf")):
        case "a":
            return charged(rows[0][0], attempt)
        case "r":
            return Responded(422, (), b"refused for %b" % attempt.request.encode(), entered=True)
        case _:
            return Raised(RuntimeError("handler"), entered=True)


def streaming(own: Ownership, previous: Record | None, attempt: Attempt) -> Program:
    """Charges, and answers by a stream."""
    came = yield from charging(own, previous, attempt)
    return came._replace(streaming=True) if type(came) is Responded and came.status == CHARGED else came


def charged(number: int, attempt: Attempt) -> Responded:
    """The answer of one who knows the charge's number."""
    return Responded(CHARGED, (), b"charge %d for %b" % (number, attempt.request.encode()), entered=True)


def effect(name: str) -> Statement:
    """A row of the application's own."""
    text = "INSERT INTO effects (name) VALUES (?) RETURNING id"
    return Statement("effect", text, (name,), writes=True, returns=True)
