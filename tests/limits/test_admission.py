"""How many new keys there is room for, by a clock that stands still until it is moved."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.records import DIGEST, ME, MINE, NOW, SECOND, record, standing_so
from tests.core.script import CHARGED, OWN, Played, play
from twicesafe.core.admission import Admission, admitted
from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.exchange import exchange
from twicesafe.core.lifecycle import Standing, Verdict
from twicesafe.core.limits import Limits
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, Instant
from twicesafe.core.steps import FORWARD, Answer
from twicesafe.errors import AmbiguousWriteError, ConfigurationError, SchemaError, StoreUnavailableError

MINUTE = 60 * SECOND


def admission(**limits: Any) -> Admission:
    return Admission(Limits(**limits), nullcontext())


def use(here: Admission, scope: str, now: Instant) -> bool:
    """One new key of this caller's, by a store that is asked what time it is. Whether there was room."""
    place = here.place(scope)
    if place.take(now):
        place.refuse(now)
        return False
    place.pay(now)
    return True


def used(here: Admission, scope: str, now: Instant, times: int) -> int:
    return sum(use(here, scope, now) for _ in range(times))


@pytest.mark.parametrize("keys", [1, 7, 60, 999, 1_000_000])
@pytest.mark.parametrize("within", [timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1, microseconds=1)])
def test_as_many_as_allowed(keys: int, within: timedelta) -> None:
    """R20: a limit of n lets n keys through at once, not one more or less, whatever its share of the window is."""
    here = admission(new_keys=keys, within=within)
    bucket = here.place("a")._caller
    bucket.unused_at = NOW * keys + (keys - 1) * here.limits.within_us
    assert (use(here, "a", NOW), use(here, "a", NOW)) == (True, False)


def test_a_window_brings_them_back() -> None:
    """R20: what is used up comes back evenly, and is all there again after a window."""
    here = admission(new_keys=6)
    assert used(here, "a", NOW, 10) == 6
    assert used(here, "a", NOW + 10 * SECOND - 1, 10) == 0
    assert used(here, "a", NOW + 10 * SECOND, 10) == 1
    assert used(here, "a", NOW + 9 * MINUTE, 10) == 6


def test_callers_do_not_share() -> None:
    """I7: what one caller has used up is none of another's."""
    here = admission(new_keys=2)
    assert (used(here, "a", NOW, 9), used(here, "b", NOW, 9)) == (2, 2)


def test_those_under_way_count() -> None:
    """I2: a thousand who come at once take their places before any of them has claimed; who leaves gives it back."""
    here = admission(new_keys=3)
    places = [here.place("a") for _ in range(1000)]
    taken = [place for place in places if not place.take(NOW)]
    assert len(taken) == 3
    for place in taken:
        place.leave()
        place.leave()
    assert used(here, "a", NOW, 9) == 3


def test_newcomers_get_half() -> None:
    """R20: a crowd of newcomers uses up half of what there is for all; regular callers have the other half."""
    here = admission(new_keys=10, new_keys_in_all=100)
    assert use(here, "regular", NOW) and use(here, "regular", NOW + MINUTE)
    later = NOW + 3 * MINUTE
    crowd = sum(use(here, f"new-{number}", later) for number in range(1000))
    assert (crowd, used(here, "regular", later, 20)) == (50, 10)


def test_a_crowd_that_stays_is_no_regular_one() -> None:
    """R20: who keeps running into a limit of their own stays a newcomer, however long."""
    here = admission(new_keys=2, new_keys_in_all=100)
    for second in range(600):
        used(here, "greedy", NOW + second * SECOND, 3)
        use(here, "steady", NOW + second * 60 * SECOND)
    assert list(here._regular) == ["steady"] and "greedy" in here._new


def test_a_regular_caller_who_runs_into_the_limit_is_one_no_more() -> None:
    """R20: being regular is no licence: it is lost at the limit and earned by another window."""
    here = admission(new_keys=2, new_keys_in_all=100)
    use(here, "a", NOW)
    use(here, "a", NOW + MINUTE)
    assert list(here._regular) == ["a"]
    assert used(here, "a", NOW + MINUTE, 9) == 1
    assert not here._regular
    use(here, "a", NOW + 2 * MINUTE - SECOND)
    assert not here._regular
    use(here, "a", NOW + 3 * MINUTE)
    assert list(here._regular) == ["a"]


def test_callers_are_remembered_in_a_fixed_space() -> None:
    """R20: a hundred thousand callers take the space of those that are remembered, and push no regular one out."""
    here = admission(new_keys=5, callers=50)
    for number in range(20):
        use(here, f"regular-{number}", NOW)
        use(here, f"regular-{number}", NOW + MINUTE)
    for number in range(100_000):
        use(here, f"new-{number}", NOW + MINUTE)
    assert (len(here), len(here._regular)) == (70, 20)


def test_between_leaving_and_paying_there_is_no_room() -> None:
    """R20: a place is paid for in the moment in which it is given back: no thread in between finds one more."""

    class Guard:
        """Lets others in as soon as it is left."""

        then: Any = None

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            act, self.then = self.then, None
            if act is not None:
                act()

    guard = Guard()
    here = Admission(Limits(new_keys=1), guard)
    place, other = here.place("a"), here.place("a")
    assert not place.take(NOW)
    waits: list[int] = []
    guard.then = lambda: waits.append(other.take(NOW))
    place.pay(NOW)
    assert waits == [MINUTE]


DAY = 24 * 60 * MINUTE


def test_a_clock_that_was_set_back_takes_no_limit_away() -> None:
    """R20, I12: a store that was a day ahead for a moment and is right again still limits, and refuses nobody longer
    than a window."""
    here = admission(new_keys=6, new_keys_in_all=100)
    assert used(here, "a", NOW + DAY, 9) == 6
    assert used(here, "a", NOW, 9) == 0
    assert used(here, "a", NOW + MINUTE, 9) == 6
    assert used(here, "a", NOW + MINUTE, 9) == 0
    assert used(here, "b", NOW + MINUTE, 9) == 6
    use(here, "c", NOW + MINUTE)
    use(here, "c", NOW + 2 * MINUTE)
    assert "c" in here._regular


def test_a_late_answer_sets_nothing_back() -> None:
    """R20, I12: answers that overtake one another by a store's whole timeout bring no key back."""
    here = admission(new_keys=6)
    assert used(here, "a", NOW + 30 * SECOND, 9) == 6
    assert (used(here, "a", NOW, 9), here.now) == (0, NOW + 30 * SECOND)
    assert used(here, "a", NOW + 40 * SECOND, 9) == 1


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3 * SECOND), st.booleans()), max_size=200),
    st.integers(1, 5),
    st.integers(2, 9),
)
def test_whatever_comes_the_bounds_hold(arrivals: list[tuple[str, int, bool]], keys: int, in_all: int) -> None:
    """R20: in any time all callers together use no more than a window's worth and what came back in it, forgotten or
    not; with nobody under way every place is free."""
    here = admission(new_keys=keys, new_keys_in_all=in_all, within=timedelta(seconds=10), callers=3)
    now, paid, under_way = NOW, [], []
    for scope, later, is_new in arrivals:
        now += later
        place = here.place(scope)
        if not place.take(now):
            under_way.append(place)
        if under_way and is_new:
            first = under_way.pop(0)
            first.pay(now)
            paid.append((first.scope, now))
    for place in under_way:
        place.leave()
    assert not any(bucket.held for bucket in (here._all, here._newcomers, *here._new.values(), *here._regular.values()))
    for start, (_, since) in enumerate(paid):
        for end in range(start, len(paid)):
            back = (paid[end][1] - since) / (10 * SECOND)
            assert end - start + 1 <= in_all * (1 + back) + 1e-6


# --- the exchange -----------------------------------------------------------------------------------------------------

POLICY = Policy(limits=Limits(new_keys=1))
CLAIM = Claim(DIGEST, "user", "charge", "…9324", MINE, Effects.OPAQUE, ME, 30 * SECOND, 3600 * SECOND)


def attempt(here: Admission, *script: object, policy: Policy = POLICY) -> Played:
    return play(admitted(exchange(CLAIM, policy, 0, here), CLAIM, policy, here), *script)


def full() -> Admission:
    here = Admission(POLICY.limits, nullcontext())
    assert use(here, "user", NOW)
    return here


DONE = standing_so(Standing.COMPLETED)


def test_a_first_key_is_claimed_at_once() -> None:
    """R10: where there is room, an attempt takes no step more than without limits, and pays once."""
    here = Admission(POLICY.limits, nullcontext())
    assert attempt(here, Claimed(OWN, NOW), CHARGED, None).names == "Claim Run Complete"
    assert not use(here, "user", NOW)


def test_a_refused_key_is_not_claimed() -> None:
    """R15, R21: over the limit the store is only read, and Retry-After is the time until there is room."""
    played = attempt(full(), Found(None, NOW + 20 * SECOND))
    assert (played.names, played.told) == ("Look", "keys.refused")
    assert type(played.result) is Answer
    assert (played.result.status, played.result.kind) == (429, "too-many-keys")
    assert dict(played.result.headers)[b"retry-after"] == b"40"


def test_the_store_says_what_time_it_is() -> None:
    """I12: the limit seems used up and is not, by the store's clock: the attempt runs."""
    assert attempt(full(), Found(None, NOW + MINUTE), Claimed(OWN, NOW + MINUTE), CHARGED, None).result is FORWARD


@pytest.mark.parametrize("verdict", [Verdict.REPLAY, Verdict.IN_PROGRESS, Verdict.UNKNOWN, Verdict.MISMATCH])
def test_a_known_key_is_never_refused(verdict: Verdict) -> None:
    """R11: whatever its caller has used up, a key that is remembered gets its own answer, and costs nothing."""
    here = full()
    known = DONE if verdict is Verdict.REPLAY else record()
    played = attempt(here, Found(known, NOW), Existing(verdict, known, NOW))
    assert played.names == "Look Claim" and played.result.kind != "too-many-keys"
    assert not any(bucket.held for bucket in (here._all, here._newcomers, here.place("user")._caller))


def test_taking_over_is_no_new_key() -> None:
    """R13: who goes on with what a lost attempt has begun is let through, and pays nothing."""
    here = Admission(POLICY.limits, nullcontext())
    attempt(here, Claimed(OWN, NOW, record()), CHARGED, None)
    assert use(here, "user", NOW)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(StoreUnavailableError("gone"), "store-unavailable"), (SchemaError("no"), "store-misconfigured")],
)
def test_a_store_that_cannot_be_read(error: Exception, kind: str) -> None:
    """R15: where nobody can say whether the key is known, nothing runs and nothing is claimed."""
    played = attempt(full(), error)
    assert (played.names, played.result.kind) == ("Look", kind)


def test_a_claim_whose_answer_was_lost_pays_once() -> None:
    """I1: the place is kept while the claim is asked for again, and paid for by the one that is won."""
    here = Admission(Limits(new_keys=2), nullcontext())
    attempt(here, AmbiguousWriteError("lost"), Claimed(OWN, NOW), CHARGED, None)
    assert used(here, "user", NOW, 9) == 1


@pytest.mark.parametrize("stop_after", [0, 1])
def test_an_attempt_that_is_given_up_gives_back_its_place(stop_after: int) -> None:
    """R12: closed before it has claimed, an exchange leaves no place taken."""
    here = Admission(Limits(new_keys=1), nullcontext())
    generator = admitted(exchange(CLAIM, POLICY, 0, here), CLAIM, POLICY, here)
    for _ in range(stop_after):
        next(generator)
    generator.close()
    assert use(here, "user", NOW)


# --- waiting ----------------------------------------------------------------------------------------------------------

PATIENT = Policy(wait=timedelta(seconds=5))
BUSY = Existing(Verdict.IN_PROGRESS, record(), NOW)


def waiting(here: Admission, scope: str) -> Any:
    """A duplicate of this caller's, at its wait or at its end."""
    generator = exchange(CLAIM._replace(scope=scope), PATIENT, 0, here)
    next(generator)
    return generator, generator.send(BUSY)


def test_waiters_have_places() -> None:
    """R11: so many of one caller and so many of all may wait; the next is told at once that it is in progress."""
    here = admission(waiters=2, waiters_in_all=3)
    duplicates = [(scope, *waiting(here, scope)) for scope in "aaabb"]
    came_to = [f"{scope} {type(step).__name__}" for scope, _, step in duplicates]
    assert came_to == ["a Wait", "a Wait", "a Notice", "b Wait", "b Notice"]
    for _, generator, _ in duplicates:
        generator.close()
    assert here.queue("a") and here.queue("a") and here.queue("b")


def test_a_waiter_keeps_its_place_until_it_knows() -> None:
    """R11: from one look to the next nobody else gets it; with the answer it is free."""
    here = admission(waiters=1)
    generator, _ = waiting(here, "a")
    assert type(generator.send(1000)) is Claim and not here.queue("a")
    generator.send(Existing(Verdict.REPLAY, DONE, NOW))
    with pytest.raises(StopIteration):
        generator.send(None)
    assert here.queue("a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"new_keys": 0},
        {"new_keys": 1.5},
        {"new_keys": True},
        {"new_keys_in_all": 1},
        {"callers": 0},
        {"callers": None},
        {"waiters": -1},
        {"waiters_in_all": 10_000_000},
        {"within": timedelta(milliseconds=999)},
        {"within": 60},
        {"within": timedelta.max},
    ],
    ids=repr,
)
def test_wrong_settings(wrong: dict[str, Any]) -> None:
    """House: a limit that means nothing is refused where it is made, under its name."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Limits(**wrong)
    with pytest.raises(ConfigurationError, match="limits must be a Limits"):
        Policy(limits=wrong)  # type: ignore[arg-type]
