"""What a page of another origin has to be allowed."""

from __future__ import annotations

import time
from datetime import timedelta

from twicesafe import JsonMember, Policy
from twicesafe.core.first_sent import FirstSent
from twicesafe.core.problems import ATTEMPT as NUMBER
from twicesafe.core.problems import ATTEMPT_LIMIT, OPERATION_ID
from twicesafe.cors import CORS_ALLOW_HEADERS, CORS_EXPOSE_HEADERS, cors_headers

ATTEMPT = ("Twicesafe-Attempt", "Twicesafe-Attempt-Limit", "Twicesafe-Operation")
"""What attempts say of themselves: a page's client that says so sends nothing where that is not allowed."""


def test_the_constants_are_those_of_the_default_policy() -> None:
    """G8: one list to allow and one to expose, for whoever changes no name."""
    assert cors_headers() == cors_headers(Policy()) == (CORS_ALLOW_HEADERS, CORS_EXPOSE_HEADERS)


def test_what_an_attempt_says_of_itself_is_allowed() -> None:
    """R40, G8: under the names that clients send."""
    assert tuple(name.lower().encode() for name in ATTEMPT) == (NUMBER, ATTEMPT_LIMIT, OPERATION_ID)
    assert set(ATTEMPT) < set(CORS_ALLOW_HEADERS)


def test_other_names_are_taken_from_the_policies() -> None:
    """G8, R5: each name once, whatever its case, and none that a policy does without."""
    one = Policy(header="PayPal-Request-Id", marker="", retention_header="")
    other = Policy(header="paypal-request-id", marker="X-Again", echo_key=True, retention_header="")
    assert cors_headers(one, other).allow == ("PayPal-Request-Id", *ATTEMPT)
    assert cors_headers(one, other).expose == ("X-Again", "paypal-request-id", "Retry-After", "Location")
    carried = Policy(header="", fields=(JsonMember("key"),), retention_header="", retryable_header="Should-Retry")
    assert cors_headers(carried) == (ATTEMPT, ("Idempotent-Replayed", "Should-Retry", "Retry-After", "Location"))


def test_a_second_header_is_allowed_too() -> None:
    """G8: where requests say when they were first sent, a page may say so."""
    first = FirstSent("Repeatability-First-Sent", timedelta(minutes=5))
    policy = Policy(header="Repeatability-Request-ID", first_sent=first, clock=time.time)
    assert cors_headers(policy).allow == ("Repeatability-Request-ID", "Repeatability-First-Sent", *ATTEMPT)
