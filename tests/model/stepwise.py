"""An operation of several steps: two phases, and a call to another system between them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tests.model.attempts import SQL, Attempt, effect, undisturbed
from tests.model.wishes import Charge, Elapsed, LookUp, Noticed
from twicesafe.core import phases
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.journal import Journal
from twicesafe.core.phases import Phases, Progress, Sent
from twicesafe.core.record import Instant, Micros, Ownership, Record
from twicesafe.core.steps import Notice, Read, Wait
from twicesafe.declared import Answered, Calling, Done, NotDone, calling
from twicesafe.errors import CallRefusedError, StoreError, TwicesafeError
from twicesafe.resuming import Steps
from twicesafe.stores.sql.transactional import SqlTransactionSteps
from twicesafe.testing.exploring import Program, Told

REMEMBERS: Final = timedelta(hours=2)
"""For how long the other system knows a key."""


def charge(key: str) -> int:
    """What the call sends; its performing is the model's."""
    raise NotImplementedError(key)


def look_up(key: str) -> Answered:
    """The same."""
    raise NotImplementedError(key)


class Stepwise:
    """The handler of such an operation."""

    def __init__(self, *, looks_up: bool, remembers: timedelta | None = REMEMBERS, in_time: bool = True) -> None:
        """`in_time` False: as if nobody looked at the clock before a request's first byte leaves."""
        self._call = calling("charge", charge, (), look_up if looks_up else None, (), (ConnectionRefusedError,))
        self._remembers = remembers
        self._in_time = in_time

    def __call__(self, own: Ownership, previous: Record | None, attempt: Attempt) -> Program:
        try:
            journal = Journal() if previous is None else Journal.read(previous.recovery_data, previous.recovery_point)
            progress = Progress(own, attempt.claimed_at, journal)
            taking = _Taking(progress, attempt, self._call, in_time=self._in_time)
            yield from taking.steps(phases.phase(progress, "reserve"))
            call = phases.call(progress, "charge", self._call.contract(self._remembers))
            taken = yield from taking.steps(call)
            yield from taking.steps(phases.phase(progress, "end"))
            progress.check_end()
        except (TwicesafeError, ConnectionError) as error:
            return Raised(error, entered=True)
        number = taken.kept if taken.kept is not None else str(taken.value)
        return Responded(201, (), b"charge %b for %b" % (number.encode(), attempt.request.encode()), entered=True)


class _Taking:
    """Takes the steps of one run."""

    def __init__(self, progress: Progress, attempt: Attempt, call: Calling, *, in_time: bool) -> None:
        self._progress = progress
        self._attempt = attempt
        self._call = call
        self._in_time = in_time
        self._known_until: Instant = attempt.claimed_at + attempt.policy.lease_us
        self._asked_at: Instant = 0
        self._transaction: SqlTransactionSteps | None = None

    def steps(self, steps: Phases) -> Program:
        try:
            step: Any = next(steps)
            while True:
                try:
                    came = yield from self._perform(step)
                except (StoreError, ConnectionError) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(came)
        except StopIteration as end:
            taken = end.value
        except Exception:
            yield from self._leave()
            raise
        yield from self._leave()
        return taken

    def _perform(self, step: Any) -> Program:
        match step:
            case phases.BeginPhase():
                yield from self._leave()
                self._transaction = SqlTransactionSteps(SQL)
                return (yield from self._transaction.begin())
            case phases.RunPhase():
                yield effect(self._progress.busy or "")
                return "null", None
            case phases.Advance(own, seen, point, data):
                session: Any = self._transaction or self._attempt.steps
                return (yield from session.advance(own, seen, point, data))
            case phases.CommitPhase():
                assert self._transaction is not None
                yield from self._transaction.commit()
                return (yield from self._leave())
            case phases.Keep():
                return (yield from self._keep())
            case phases.Send(within):
                return (yield from self._send(within))
            case phases.LookUp():
                return (yield from self._look_up())
            case phases.Now():
                # What no step takes: this process's own clock, which shows the same.
                self._asked_at = yield from self._attempt.steps.now()
                return self._asked_at
            case Read(digest):
                yield from self._leave()
                return (yield from undisturbed(self._attempt.steps.read(digest)))
            case Notice(name):
                yield Told(Noticed(name))
                return None
            case Wait():
                return None
        raise AssertionError(step)

    def _keep(self) -> Program:
        lease_us = self._attempt.policy.lease_us
        now = yield Elapsed(self._known_until - lease_us // 2)
        if now is not None:
            yield from self._attempt.steps.renew(self._progress.ownership, lease_us)
            self._known_until = now + lease_us
        return None

    def _send(self, within: Micros | None) -> Program:
        outgoing = self._outgoing()
        until = self._known_until if within is None else min(self._known_until, self._asked_at + within)
        try:
            number = yield Charge(outgoing.key, until=until if self._in_time else None)
        except CallRefusedError:
            # As the transport does, right before the first byte would leave.
            return self._call.failed(outgoing, outgoing.refused("it is too late"))
        except ConnectionError as error:
            return self._call.failed(outgoing, error)
        return self._call.given(outgoing, number)

    def _look_up(self) -> Program:
        outgoing = self._outgoing()
        number = yield LookUp(outgoing.key)
        sent: Sent = self._call.found(outgoing, NotDone() if number is None else Done(number))
        return sent

    def _outgoing(self) -> Any:
        nobody: Any = None
        return Steps(nobody, self._progress, lambda _: None)._outgoing("charge", self._call)

    def _leave(self) -> Program:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            yield from transaction.roll_back()
        return None
