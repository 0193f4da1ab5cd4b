"""Who may use a new key now, and who may wait: the state that Limits speak of, in a fixed amount of memory.

Theory of operation. Each limit is one number, the instant at which it will be unused again: every new key moves it on
by its share of the window, and there is room for another as long as it is less than a window ahead. A key takes its
place before it is claimed, so that a thousand who come at once count, and pays when the store says that it was new;
whoever comes again gives the place back. Time is the store's, as its answers tell it (I12). Between two answers it
stands still, so a limit can seem used up that is not: then the store is asked whether the key is known, which says what
time it is as well.

That look is also why nobody is refused who asks again for what is remembered. It is paid for by callers who have used
up their limit, and by nobody else.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import Final

from twicesafe.core.claims import Claim, Claimed, Found
from twicesafe.core.duplicates import ONE_SECOND, problem_answer
from twicesafe.core.exchange import no_store
from twicesafe.core.lifecycle import Standing, standing
from twicesafe.core.limits import Limits
from twicesafe.core.policy import Policy
from twicesafe.core.record import Instant, Micros
from twicesafe.core.steps import Exchange, Look, Notice, Result
from twicesafe.errors import StoreError

REFUSED_NOTICE: Final = Notice("keys.refused")

SET_BACK: Final[Micros] = 60 * ONE_SECOND
"""An answer that says so much less than one before was not late: the clock was wrong before, or is now."""


class _Bucket:
    """How far one limit is used up."""

    __slots__ = ("held", "keys", "unused_at", "within")

    def __init__(self, keys: int | None, within: Micros) -> None:
        self.keys = keys or 0
        """0 where any number may come."""
        self.within = within
        self.unused_at = 0
        """In parts of a microsecond, as many as there may be keys: then a key's share of the window is a whole
        number of them, and no limit allows one more or one less for its rounding."""
        self.held = 0
        """Places taken by keys that are being claimed."""

    def wait(self, now: Instant) -> Micros:
        """How long until there is room for one more; 0 for now."""
        keys = self.keys
        if not keys:
            return 0
        if self.unused_at > (now + self.within) * keys:
            # No limit is used up for longer than its window: the clock was ahead when that was paid.
            self.unused_at = (now + self.within) * keys
        ahead = max(self.unused_at - now * keys, 0) + (self.held + 1) * self.within - keys * self.within
        return max(0, -(-ahead // keys))

    def pay(self, now: Instant) -> None:
        """For one key."""
        self.unused_at = max(self.unused_at, now * self.keys) + self.within


class _Caller(_Bucket):
    """One caller's own."""

    __slots__ = ("good_since",)

    def __init__(self, keys: int | None, within: Micros) -> None:
        super().__init__(keys, within)
        self.good_since: Instant = 0
        """Since when this caller has been here without running into the limit; 0 before the first key."""


class Place:
    """One attempt's, from before its claim until that is known to be of a new key or not."""

    __slots__ = ("_admission", "_buckets", "_caller", "_held", "scope")

    def __init__(self, admission: Admission, scope: str, caller: _Caller, buckets: tuple[_Bucket, ...]) -> None:
        self._admission = admission
        self.scope = scope
        self._caller = caller
        self._buckets = buckets
        self._held = False

    def take(self, now: Instant = 0) -> Micros:
        """Take the place, if there is one by the time that is known, `now` if that is later. Otherwise how long to
        wait for it."""
        admission = self._admission
        with admission.guard:
            now = admission.tell(now)
            wait = max([bucket.wait(now) for bucket in self._buckets])
            if not wait:
                for bucket in self._buckets:
                    bucket.held += 1
                self._held = True
            return wait

    def refuse(self, now: Instant) -> None:
        """It is not to be had at `now`. Whose own limit it is begins anew as a newcomer."""
        with self._admission.guard:
            now = self._admission.tell(now)
            if self._caller.wait(now):
                self._admission.demote(self.scope, self._caller, now)

    def pay(self, now: Instant) -> None:
        """The key was new at `now`."""
        admission = self._admission
        with admission.guard:
            admission.tell(now)
            held, self._held = self._held, False
            for bucket in self._buckets:
                # At once: between giving back and paying, others would find room that is not there.
                bucket.held -= held
                bucket.pay(now)
            admission.promote(self.scope, self._caller, now)

    def leave(self) -> None:
        """Give the place back, if it is taken. Safe to call twice."""
        if self._held:
            self._held = False
            with self._admission.guard:
                for bucket in self._buckets:
                    bucket.held -= 1


class Admission:
    """What the requests of one shell under equal limits have used up. `guard` is held while it is looked at."""

    def __init__(self, limits: Limits, guard: AbstractContextManager[object]) -> None:
        within = limits.within_us
        self.limits = limits
        self.guard = guard
        self.now: Instant = 0
        """The latest that the store has told, unless its clock was set back since."""
        every = limits.new_keys_in_all
        self._all = _Bucket(every, within)
        self._newcomers = _Bucket(None if every is None else every // 2, within)
        self._new: OrderedDict[str, _Caller] = OrderedDict()
        self._regular: OrderedDict[str, _Caller] = OrderedDict()
        self._waiting: dict[str, int] = {}
        self._waiting_in_all = 0

    def __len__(self) -> int:
        """How many callers are remembered."""
        return len(self._new) + len(self._regular)

    def tell(self, now: Instant) -> Instant:
        """The store has said what time it is, 0 for nothing. Gives the time by which places are judged."""
        if now > self.now or 0 < now < self.now - SET_BACK:
            self.now = now
        return self.now

    def place(self, scope: str) -> Place:
        """A place for a key of this caller's. It is not taken yet."""
        with self.guard:
            caller = self._regular.get(scope)
            if caller is not None:
                self._regular.move_to_end(scope)
                return Place(self, scope, caller, (caller, self._all))
            caller = self._new.get(scope)
            if caller is None:
                caller = _Caller(self.limits.new_keys, self.limits.within_us)
                self._remember(self._new, scope, caller)
            else:
                self._new.move_to_end(scope)
            return Place(self, scope, caller, (caller, self._newcomers, self._all))

    def promote(self, scope: str, caller: _Caller, now: Instant) -> None:
        """This caller has used a new key: a regular one, after a window of them."""
        # Not since a time that is still to come, by a clock that was set back.
        caller.good_since = min(caller.good_since or now, now)
        if now - caller.good_since >= self.limits.within_us and self._new.get(scope) is caller:
            del self._new[scope]
            self._remember(self._regular, scope, caller)

    def demote(self, scope: str, caller: _Caller, now: Instant) -> None:
        """This caller has run into the limit: whoever is no regular one by that begins anew."""
        caller.good_since = now
        if self._regular.get(scope) is caller:
            del self._regular[scope]
            self._remember(self._new, scope, caller)

    def _remember(self, among: OrderedDict[str, _Caller], scope: str, caller: _Caller) -> None:
        among[scope] = caller
        if len(among) > self.limits.callers:
            among.popitem(last=False)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def queue(self, scope: str) -> bool:
        """Whether this caller may wait. If so, `leave_queue` afterwards."""
        with self.guard:
            here = self._waiting.get(scope, 0)
            if here >= self.limits.waiters or self._waiting_in_all >= self.limits.waiters_in_all:
                return False
            self._waiting[scope] = here + 1
            self._waiting_in_all += 1
            return True

    def leave_queue(self, scope: str) -> None:
        """The waiting is over."""
        with self.guard:
            self._waiting_in_all -= 1
            left = self._waiting[scope] - 1
            if left:
                self._waiting[scope] = left
            else:
                del self._waiting[scope]


def admitted(inner: Exchange, claim: Claim, policy: Policy, admission: Admission) -> Exchange:
    """An exchange that begins with its claim, for whom there is room; for others, what they are told instead."""
    place = admission.place(claim.scope)
    try:
        if place.take():
            try:
                found = yield Look(claim.digest)
            except StoreError as error:
                return (yield from no_store("store.unavailable", error, policy))
            assert type(found) is Found, found
            if standing(found.record, found.now) is Standing.FREE:
                wait = place.take(found.now)
                if wait:
                    place.refuse(found.now)
                    yield REFUSED_NOTICE
                    return problem_answer("too-many-keys", policy, retry_after=-(-wait // ONE_SECOND))
        return (yield from _paying(inner, place))
    finally:
        inner.close()
        place.leave()


def _paying(inner: Exchange, place: Place) -> Exchange:
    """The exchange itself, with an ear for what becomes of its claim."""
    value: object = None
    error: StoreError | None = None
    while True:
        try:
            step = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        value = error = None
        try:
            value = yield step
        except StoreError as met:
            error = met
            continue
        if type(step) is not Claim:
            continue
        if type(value) is Claimed and value.previous is None:
            place.pay(value.now)
        else:
            place.leave()
