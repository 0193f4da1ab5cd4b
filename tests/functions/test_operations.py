"""Operations of several steps: broken off anywhere, they go on from there, and everything happens once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.functions.killing import killed, lease_over
from tests.functions.shop import WINDOW, DeclinedError, K, Shop, UnreachableError
from twicesafe.core.phases import Advance, CommitPhase, RunPhase, Send
from twicesafe.errors import (
    AmbiguousWriteError,
    CallRejectedError,
    CallUnknownError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from twicesafe.once import Unclear, current
from twicesafe.resuming import Steps

ALL = ["reserve", "charged ch_1", "paid ch_2", "end"]


def test_each_step_is_taken_once(shop: Shop) -> None:
    """R24, R25, R32: one run takes every step once, and a second call gets the result without taking any."""
    buy = shop.operation(remembers=WINDOW)
    assert buy(K, 100) == buy(K, 100) == "ch_1 ch_2"
    assert shop.rows() == ALL
    assert len(shop.provider.charges) == len(shop.provider.asked) == 2
    assert shop.runs == 1


@pytest.mark.parametrize("number", [5, 6, 7])
def test_what_may_have_been_sent_is_looked_up(shop: Shop, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """R25: with a way to ask, nothing is sent that was carried out; what was not is sent."""
    killed(shop, monkeypatch, number, performed=True, look_up=shop.provider.find)
    sent_before = list(shop.provider.asked)
    result = shop.operation(shop.another(), look_up=shop.provider.find)(K, 100)
    assert len(shop.provider.charges) == len(shop.provider.asked) == 2
    assert result == ("found ch_2" if number == 6 else "ch_1 ch_2")
    assert len(sent_before) == (number > 5)


def test_past_the_window_it_is_not_sent_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25, I6, K: a provider that has forgotten the key would charge again; it is held, whoever asks."""
    killed(shop, monkeypatch, 6, performed=True, remembers=WINDOW)
    shop.clock.advance(timedelta(hours=23, minutes=59, seconds=30))
    buy = shop.operation(shop.another(), remembers=WINDOW)
    with pytest.raises((CallUnknownError, OutcomeUnknownError)):
        buy(K, 100)
    with pytest.raises(OutcomeUnknownError):
        buy(K, 100)
    assert len(shop.provider.asked) == 1
    assert shop.rows() == ["reserve"]


def test_a_provider_that_remembers_nothing_is_asked_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25: without a memory on the other side, what may have been sent is never sent again."""
    killed(shop, monkeypatch, 5, performed=True)
    buy = shop.operation(shop.another())
    with pytest.raises(CallUnknownError, match="remembers no keys"):
        buy(K, 100)
    with pytest.raises(OutcomeUnknownError):
        buy(K, 100)
    assert shop.provider.asked == []


def test_a_look_up_that_cannot_tell_falls_back_on_the_window(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25, R26: unclear is neither done nor not done; within the window the same key can be sent again."""
    killed(shop, monkeypatch, 6, performed=True, look_up=lambda key, cents: Unclear(), remembers=WINDOW)
    assert shop.operation(shop.another(), look_up=lambda key, cents: Unclear(), remembers=WINDOW)(K, 100)
    assert len(shop.provider.charges) == 2


# --- what a call comes to --------------------------------------------------------------------------------------------


def test_a_rejection_is_recorded(shop: Shop) -> None:
    """R25: no for good is an answer; every attempt gets it, and the provider is asked once."""

    def decline() -> None:
        raise DeclinedError("no money")

    shop.provider.after = decline
    buy = shop.operation(rejected=(DeclinedError,), remembers=WINDOW)
    for _ in range(2):
        with pytest.raises(CallRejectedError, match="DeclinedError: no money"):
            buy(K, 100)
        shop.clock.advance(timedelta(seconds=1))
    assert len(shop.provider.asked) == 1


class WordlessError(DeclinedError):
    """Cannot be put in words."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [WordlessError(), DeclinedError("x" * 2_000_000), DeclinedError("\ud800\0")])
def test_a_rejection_is_recorded_whatever_its_words_are(shop: Shop, error: DeclinedError) -> None:
    """R25, A6: an error without words, with a page of them or with half a character is a rejection like any other; of
    its words so many are kept as a person reads."""

    def decline() -> None:
        raise error

    shop.provider.after = decline
    buy = shop.operation(rejected=(DeclinedError,))
    told = set()
    for _ in range(2):
        with pytest.raises(CallRejectedError) as caught:
            buy(K, 100)
        told.add(str(caught.value))
        shop.clock.advance(timedelta(seconds=1))
    assert len(shop.provider.asked) == 1
    assert len(told) == 1
    assert all(len(words) < 1100 and words.encode("utf-8") for words in told)


def test_what_provably_was_not_sent_is_sent_later(shop: Shop) -> None:
    """R25: even to a provider that remembers nothing."""

    def refuse() -> None:
        raise UnreachableError

    shop.provider.before = refuse
    buy = shop.operation(unsent=(UnreachableError,))
    with pytest.raises(UnreachableError):
        buy(K, 100)
    shop.clock.advance(timedelta(days=0, seconds=1))
    shop.provider.before = lambda: None
    assert buy(K, 100) == "ch_1 ch_2"
    assert len(shop.provider.asked) == 2


def test_after_a_time_out_it_goes_on_under_the_same_key(shop: Shop) -> None:
    """R25: the answer was lost; the next attempt sends the same key, and the provider charges once."""
    fails = [True]

    def lose() -> None:
        if fails:
            fails.clear()
            raise TimeoutError

    shop.provider.after = lose
    buy = shop.operation(remembers=WINDOW)
    with pytest.raises(TimeoutError):
        buy(K, 100)
    shop.clock.advance(timedelta(seconds=1))
    assert buy(K, 100) == "ch_1 ch_2"
    assert len(shop.provider.charges) == 2
    assert len(shop.provider.asked) == 3


def test_an_operation_must_not_end_while_a_call_is_open(shop: Shop) -> None:
    """I6: unknown is not failed: an answer that hides a lost one is not recorded as the outcome."""

    def lose(key: str) -> str:
        raise TimeoutError

    @shop.once.operation(key=lambda: K, effects="resumable")
    def hides() -> str:
        try:
            current().call("charge", lose, remembers=WINDOW)
        except TimeoutError:
            return "failed"
        return "paid"

    with pytest.raises(TimeoutError):
        hides()
    found = shop.store.read(
        shop.once._claim(shop.once._resumables[f"{__name__}.{hides.__qualname__}"][0], K, "shop", (), {}).digest
    )
    assert found.record is not None
    assert found.record.response is None


# --- phases ----------------------------------------------------------------------------------------------------------


def test_a_phase_that_raises_leaves_nothing(shop: Shop) -> None:
    """R24, H2: rolled back; the attempt ends; the next one runs it."""
    fails = [True]

    def write(connection: Any) -> int:
        connection.execute("INSERT INTO steps VALUES ('x')")
        if fails:
            fails.clear()
            raise ValueError("no")
        return 1

    @shop.once.operation(key=lambda: K, effects="resumable", name="op")
    def op() -> int:
        try:
            one = current().phase("a", write)
        except ValueError:
            # Whatever it does now, a next attempt could do in another order.
            current().phase("b", write)
            raise
        return one

    with pytest.raises(ValueError, match="no"):
        op()
    assert shop.rows() == []
    shop.clock.advance(timedelta(seconds=1))
    assert op() == 1
    assert shop.rows() == ["x"]


def test_a_commit_whose_answer_was_lost_is_read_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1, K: the recovery point says whether the phase was committed; it is run again only where it was not."""
    perform = Steps._perform
    for made in (True, False):
        lost = [True]

        def losing(steps: Any, step: Any, *others: Any, made: bool = made, lost: list[bool] = lost) -> Any:
            if type(step) is CommitPhase and lost:
                lost.clear()
                if made:
                    perform(steps, step, *others)
                raise AmbiguousWriteError("lost")
            return perform(steps, step, *others)

        with monkeypatch.context() as patched:
            patched.setattr(Steps, "_perform", losing)
            assert shop.operation(shop.another(), remembers=WINDOW)(f"order-{made}", 100)
    assert shop.rows().count("reserve") == 2


def test_a_store_that_fails_before_a_call_sends_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25: what could not be written down is not sent."""
    perform = Steps._perform
    seen: list[str] = []

    def failing(steps: Any, step: Any, *others: Any) -> Any:
        seen.append(type(step).__name__)
        if type(step) is Advance and seen.count("Advance") == 2:
            raise StoreUnavailableError("away")
        return perform(steps, step, *others)

    with monkeypatch.context() as patched:
        patched.setattr(Steps, "_perform", failing)
        with pytest.raises(StoreUnavailableError):
            shop.operation(shop.another(), remembers=WINDOW)(K, 100)
    assert shop.provider.asked == []
    assert Send.__name__ not in seen
    shop.clock.advance(timedelta(seconds=1))
    assert shop.operation(shop.another(), remembers=WINDOW)(K, 100) == "ch_1 ch_2"
    assert shop.rows() == ALL


def test_a_late_owner_commits_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3, I10, R23: whoever lost the claim rolls its phase back, however far it came."""
    perform = Steps._perform
    taken_over = [False]

    def slow(steps: Any, step: Any, *others: Any) -> Any:
        if type(step) is RunPhase and not taken_over[0]:
            taken_over[0] = True
            # Its transaction has not written yet, so the rival is not kept waiting.
            steps._leave()
            lease_over(shop)
            assert shop.operation(shop.another(), remembers=WINDOW)(K, 100) == "ch_1 ch_2"
            steps._transaction = transaction = steps._store.transaction()
            transaction.__enter__()
            transaction.begin()
        return perform(steps, step, *others)

    monkeypatch.setattr(Steps, "_perform", slow)
    with pytest.raises(Exception, match="no longer this owner's"):
        shop.operation(shop.another(), remembers=WINDOW)(K, 100)
    assert shop.rows() == ALL
    assert len(shop.provider.charges) == 2
