"""What one call sends, and what is known of it: never more than was proved."""

from __future__ import annotations

from typing import Any

import pytest

from twicesafe.core.journal import CALL, DONE, OPEN, UNSENT, Entry, Journal
from twicesafe.core.outgoing import Asking, Outgoing, is_exempt, may_have_been_sent
from twicesafe.core.provider import Fate, Heard
from twicesafe.errors import CallRefusedError

HERE = ("https", "pay.example", 443)
CHARGE = Asking("POST", "https://pay.example/charges", HERE, [("authorization", "me"), ("host", "pay")], b"1")


def call(*heard: Heard | bool, again: bool = False) -> Outgoing:
    """A call whose attempts came to this: an answer, or a failure that proves (True) that nothing was sent."""
    outgoing = Outgoing(lambda name: name, "charge", again=again)
    for one in heard:
        outgoing.admit(CHARGE)
        if isinstance(one, bool):
            outgoing.failed("dropped", unsent=one)
        else:
            outgoing.heard(one, "answer")
    return outgoing


DONE_, NO, AWAY, OPEN_ = (Heard(fate) for fate in (Fate.DONE, Fate.REFUSED, Fate.TURNED_AWAY, Fate.UNKNOWN))
RECORDED_NO = Heard(Fate.REFUSED, replayed=True)
LOST, NEVER_LEFT = False, True


@pytest.mark.parametrize(
    ("heard", "fate"),
    [
        ([], None),
        ([DONE_], Fate.DONE),
        ([NO], Fate.REFUSED),
        ([AWAY], Fate.TURNED_AWAY),
        ([NEVER_LEFT], Fate.UNSENT),
        ([LOST], Fate.UNKNOWN),
        ([OPEN_], Fate.UNKNOWN),
        ([NEVER_LEFT, AWAY, NO], Fate.REFUSED),
        ([LOST, NO], Fate.UNKNOWN),
        ([OPEN_, AWAY], Fate.UNKNOWN),
        ([LOST, NEVER_LEFT], Fate.UNKNOWN),
        ([LOST, DONE_], Fate.DONE),
        ([LOST, RECORDED_NO], Fate.REFUSED),
        ([LOST, NO, NO, RECORDED_NO], Fate.REFUSED),
        ([DONE_, OPEN_], Fate.DONE),
        ([DONE_, NO], Fate.DONE),
    ],
)
def test_what_is_known_never_turns_better_than_it_is(heard: list[Any], fate: Fate | None) -> None:
    """R37, I6: after an attempt that may have charged, only a success or the recorded answer settles anything."""
    assert call(*heard).fate is fate


@pytest.mark.parametrize(
    ("heard", "fate"),
    [(NO, Fate.UNKNOWN), (AWAY, Fate.UNKNOWN), (NEVER_LEFT, Fate.UNKNOWN), (RECORDED_NO, Fate.REFUSED)],
)
def test_another_process_counts_as_an_attempt(heard: Any, fate: Fate) -> None:
    """R37, I6: what an earlier attempt of the operation may have sent is no better known than what this one did."""
    outgoing = call(heard, again=True)
    assert outgoing.fate is fate
    assert outgoing.last is not Fate.UNKNOWN, "of its own attempt it knows more"


def test_while_it_is_under_way_it_is_unknown() -> None:
    """I6: what is broken off between sending and hearing may be done; and of two at once, either."""
    outgoing = Outgoing(lambda name: name, "charge")
    outgoing.admit(CHARGE)
    assert outgoing.fate is Fate.UNKNOWN
    outgoing.admit(CHARGE)
    outgoing.heard(NO, "402")
    assert outgoing.fate is Fate.UNKNOWN
    outgoing.heard(NO, "402")
    assert outgoing.fate is Fate.UNKNOWN


@pytest.mark.parametrize(
    "other",
    [
        CHARGE._replace(method="PUT"),
        CHARGE._replace(url="https://pay.example/fees"),
        CHARGE._replace(body=b"2"),
        CHARGE._replace(headers=[*CHARGE.headers, ("stripe-account", "b")]),
        CHARGE._replace(origin=("https", "evil.example", 443), redirected_from=HERE),
    ],
    ids=["method", "address", "body", "header", "origin"],
)
def test_it_is_one_request(other: Asking) -> None:
    """R1, R25, I8: whatever else is asked for is another intent, and refused; what was known before stays so."""
    for before in (DONE_, NO, AWAY):
        outgoing = call(before)
        with pytest.raises(CallRefusedError):
            outgoing.admit(other)
        assert outgoing.fate is before.fate


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "twicesafe-attempt", "date", "host", "content-length"])
def test_an_attempt_may_be_told_from_another(name: str) -> None:
    """R40: what tells attempts apart asks for nothing."""
    outgoing = call(LOST)
    outgoing.admit(CHARGE._replace(headers=[("authorization", "me"), (name, "2")]))
    outgoing.heard(DONE_, "201")
    assert outgoing.fate is Fate.DONE


def test_a_redirect_on_one_origin_is_the_same_request() -> None:
    """I8: and so is the first address afterwards."""
    outgoing = call(AWAY)
    moved = CHARGE._replace(url="https://pay.example/v2", redirected_from=HERE)
    for asking in (moved, CHARGE, moved._replace(redirected_from=None)):
        outgoing.admit(asking)
        outgoing.heard(AWAY, "307")
    assert outgoing.fate is Fate.TURNED_AWAY


def test_what_was_refused_here_was_not_sent() -> None:
    """R35: a request that is given up before it leaves proves that nothing was done; not if another had left."""
    outgoing = Outgoing(lambda name: name, "charge")
    assert "charge" in str(outgoing.refused("no"))
    assert (outgoing.fate, outgoing.last) == (Fate.UNSENT, Fate.UNSENT)
    lost = call(LOST)
    lost.not_sent()
    assert lost.fate is Fate.UNKNOWN


@pytest.mark.parametrize(
    ("entries", "sent"),
    [
        ([], False),
        ([Entry("charge", CALL, OPEN)], True),
        ([Entry("charge", CALL, OPEN, UNSENT)], False),
        ([Entry("charge", CALL, DONE, "1")], False),
        ([Entry("fee", CALL, OPEN)], False),
    ],
)
def test_an_open_entry_is_an_attempt(entries: list[Entry], *, sent: bool) -> None:
    """R25, I10: only the last entry may be open, and one that is says that it may have been sent."""
    assert may_have_been_sent(Journal(entries), "charge") is sent


def test_what_goes_out_as_it_is() -> None:
    """R36: safe methods, and what somebody answers for; never what is to be keyed."""
    assert is_exempt("GET", None)
    assert not is_exempt("POST", None)
    assert not is_exempt("PUT", None)
    assert is_exempt("POST", "never")
    assert not is_exempt("POST", "keyed")
    with pytest.raises(ValueError, match="twice"):
        is_exempt("POST", "twice")
