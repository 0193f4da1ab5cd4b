"""What dealings with a store have in common, blocking or asynchronous: all that waits for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from time import perf_counter_ns
from typing import Any, Final

from twicesafe.core.admission import Admission, admitted
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.exchange import exchange
from twicesafe.core.keys import derive
from twicesafe.core.limits import Limits
from twicesafe.core.policy import Operation
from twicesafe.core.problems import ATTEMPT
from twicesafe.core.record import Ownership
from twicesafe.core.steps import Exchange, Notice
from twicesafe.errors import RequestError
from twicesafe.observe import Event, Observer, counts, tell

USUAL_AT_MOST: Final = 1000
"""Operations whose usual time is remembered: their names may come from paths, which strangers make up."""


class Exchanges:
    """What the exchanges of one shell have in common."""

    __slots__ = ("admissions", "counts", "observer", "usual")

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.counts = counts(observer)
        self.admissions: dict[Limits, Admission] = {}
        """What is used up of each, as far as it was asked for."""
        self.usual: dict[str, int] = {}
        """Microseconds that an operation usually takes, a moving average: what a duplicate is told to wait."""

    def admission(self, limits: Limits) -> Admission:
        """What is used up of these."""
        found = self.admissions.get(limits)
        return self.admissions.setdefault(limits, Admission(limits, Lock())) if found is None else found

    def _lease_lost(self, own: Ownership) -> None:
        tell(self.observer, Event("lease.lost", "", own.digest.hex()[:8], loud=True))

    def refused(self, operation: Operation, error: RequestError) -> None:
        """A request cannot be claimed: it lacks a key, say. Nobody but those who count is told."""
        if self.counts:
            tell(self.observer, Event("refused", operation.name, "", loud=False, result=error.problem))


class Exchanging:
    """One exchange, and what is known of its claim."""

    operation: Operation
    _shared: Exchanges
    # On the class, so that a request pays for what it uses only.
    _claim: Claim | None = None
    _exchange: Exchange | None = None
    """Begun where something is for it to decide; until then all went as in core.plain."""
    _own: Ownership | None = None
    """The claim that is won and not settled yet."""
    _found: Claimed | None = None
    """How it was won, with what a lost run left."""
    _ran_at = 0
    """By the process's clock, in nanoseconds; 0 while no time is taken."""
    _asked_at = 0
    """The same of the claim, where the observer counts and does not know yet what came of it."""

    def _begin(self) -> None:
        """Begin the exchange: it stands at its claim."""
        claim = self._claim
        assert claim is not None
        self._exchange = self._exchange_of(claim)
        next(self._exchange)

    def _exchange_of(self, claim: Claim) -> Exchange:
        policy, shared = self.operation.policy, self._shared
        queue = shared.admission(policy.limits) if policy.wait_us else None
        return exchange(claim, policy, shared.usual.get(claim.operation, 0), queue)

    def _within_limits(self, inner: Exchange, claim: Claim) -> Exchange:
        """The exchange, for a caller who may use a new key."""
        policy = self.operation.policy
        return admitted(inner, claim, policy, self._shared.admission(policy.limits))

    def _going(self) -> Exchange:
        """The exchange, at the step at which the handler runs."""
        going, claim = self._exchange, self._claim
        if going is None:
            assert claim is not None and self._own is not None
            # As _begin does; not by it, because most exchanges that are begun at all are begun here.
            going = self._exchange = exchange(claim, self.operation.policy, self._shared.usual.get(claim.operation, 0))
            next(going)
            going.send(Claimed(self._own, 0))
        return going

    def _tell(self, notice: Notice) -> None:
        hint = "" if self._claim is None else self._claim.key_hint
        seconds, number = None, None
        if self._asked_at:
            seconds, number = (perf_counter_ns() - self._asked_at) / 1_000_000_000, self._number()
        name, loud, error = notice
        event = Event(name, self.operation.name, hint, loud, error, None, None, 1, seconds, None, number)
        tell(self._shared.observer, event)

    def _tell_end(self, name: str) -> None:
        """Tell what the run came to, if there was one and its end is not told yet. For observers that count."""
        if self._found is not None:
            self._tell(Notice(name))
            self._asked_at = 0

    def _number(self) -> int | None:
        """Which attempt the client says that this is. Read with suspicion: whatever is no number says nothing."""
        lines: Sequence[tuple[bytes, bytes]] = getattr(getattr(self._claim, "fingerprint", None), "headers", ())
        for name, line in lines:
            if name == ATTEMPT:
                return int(line) if line.isdigit() and len(line) < 6 else None
        return None

    def _note_duration(self) -> None:
        took = (perf_counter_ns() - self._ran_at) // 1000
        self._ran_at = 0
        usual, name = self._shared.usual, self.operation.name
        before = usual.get(name)
        if before is None and len(usual) >= USUAL_AT_MOST:
            # Another thread may have forgotten the same one.
            for oldest in list(usual)[:1]:
                usual.pop(oldest, None)
        usual[name] = took if before is None else before + (took - before) // 8


class ForHandlers(Exchanging):
    """What a handler may know of its request, whether it blocks or not."""

    key = ""
    """Empty where the request carries none."""
    _transaction: Any
    _repeatable = False

    @property
    def connection(self) -> Any:
        """The driver's connection of a transactional operation, inside its transaction. Do not commit it."""
        if self._transaction is None:
            raise LookupError("this request has no transaction: its operation is not transactional, or not entered yet")
        return self._transaction.connection

    def derived_key(self, call: str) -> str:
        """The key to send with the downstream call named `call`: the same on every attempt at this intent (R25)."""
        if self._claim is None:
            raise LookupError("no key can be derived before the operation is entered")
        return derive(self._claim.digest, call)

    def nothing_done(self) -> None:
        """Declare that the handler did nothing: whatever it answers, the key stays free (R15)."""
        self._repeatable = True
