"""Requests that say when they were first sent: required with the key, good for a while, refused afterwards."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.first_sent import FirstSent, imf_fixdate
from twicesafe.core.policy import Policy
from twicesafe.core.presented import presented_key
from twicesafe.errors import ConfigurationError, FirstSentExpiredError, FirstSentInvalidError, MissingKeyError

DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"
SENT = 784111777.0
KEY = b"8e03978e-40d5-43e8-bc93-6894a57f9324"


def policy(now: float, **changes: object) -> Policy:
    """A policy that requires the second header, at some time."""
    return Policy(first_sent=FirstSent(), clock=lambda: now).but(**changes)


@pytest.mark.parametrize("apart", [0, 300, -300])
def test_within_the_window_the_key_counts(apart: float) -> None:
    """R4, R5: a request first sent up to five minutes ago, or ahead of the server's clock, presents its key."""
    assert presented_key(policy(SENT + apart), [KEY], first_sent=[DATE]) == KEY.decode()


@pytest.mark.parametrize("apart", [300.001, -300.001, 86_400.0, -SENT])
def test_outside_of_it_nothing_is_looked_up(apart: float) -> None:
    """R4, R20: what may have been done and forgotten is refused with 412, and a new key is not safe."""
    with pytest.raises(FirstSentExpiredError) as refusal:
        presented_key(policy(SENT + apart), [KEY], first_sent=[DATE])
    assert (refusal.value.status, refusal.value.problem) == (412, "first-sent-expired")


@pytest.mark.parametrize("lines", [[], [DATE, DATE], [b""], [b"784111777"], [b"06 Nov 1994 08:49:37 GMT"]])
def test_a_keyed_request_says_when_it_was_first_sent_once(lines: list[bytes]) -> None:
    """R4: with a key the second header is required; missing, twice or malformed it is 400 before any look-up."""
    with pytest.raises(FirstSentInvalidError) as refusal:
        presented_key(policy(SENT), [KEY], first_sent=lines)
    assert (refusal.value.status, refusal.value.problem) == (400, "first-sent-invalid")


def test_without_a_key_the_second_header_is_refused() -> None:
    """R3: who sends the second header alone believes to be protected and is told that nothing protects it."""
    with pytest.raises(FirstSentInvalidError, match="both, or neither"):
        presented_key(policy(SENT), [], first_sent=[DATE])
    assert presented_key(policy(SENT), []) is None
    with pytest.raises(MissingKeyError):
        presented_key(policy(SENT, required=True), [], first_sent=[DATE])


def test_no_header_line_is_taken_for_a_key_unread() -> None:
    """R4: a shell's quick look at the key never passes by the second header."""
    assert not policy(SENT).plain_key(KEY)
    assert Policy().plain_key(KEY)


def test_a_rule_that_cannot_hold_is_refused() -> None:
    """R20: no window without a clock, and no key is forgotten while requests under it are still taken."""
    with pytest.raises(ConfigurationError, match=r"clock=time\.time"):
        Policy(first_sent=FirstSent())
    with pytest.raises(ConfigurationError, match=r"twice the window of first_sent, 2 days"):
        policy(SENT, first_sent=FirstSent(within=timedelta(days=1)))
    short = timedelta(minutes=10)
    assert policy(SENT, key_retention=short, body_retention=short).first_sent == FirstSent()
    for wrong in (FirstSent(header=""), FirstSent(within=timedelta(0)), FirstSent(within=300)):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="first_sent must be"):
            policy(SENT, first_sent=wrong)


@pytest.mark.parametrize(
    "line",
    [
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
        b"Sun, 06 Nov 1994 08:49:37 +0000",
        b"Sun, 06 Nov 1994 24:49:37 GMT",
        b"Sun, 31 Feb 1994 08:49:37 GMT",
        b"Sun, 06 Nox 1994 08:49:37 GMT",
        b"Sun, 00 Nov 0000 08:49:37 GMT",
        b"\xff",
    ],
)
def test_only_the_preferred_form_of_a_date_is_a_time(line: bytes) -> None:
    """R4: other forms and times that there are not are malformed, and nothing raises."""
    assert imf_fixdate(line) is None


@given(st.binary(max_size=40))
def test_no_header_line_raises(line: bytes) -> None:
    """R4: whatever stands in the header is a time or none."""
    assert imf_fixdate(line) is None or imf_fixdate(line.strip()) == imf_fixdate(line)


def test_a_date_is_seconds_since_the_epoch() -> None:
    """R4: the example of RFC 9110, and the blanks around a header's value."""
    assert imf_fixdate(DATE) == imf_fixdate(b" " + DATE + b"\t") == SENT
