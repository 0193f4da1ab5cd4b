"""Policies: the defaults, and that a wrong setting is refused by name where it is made."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.fingerprint import JSON, RAW, FingerprintRule
from twicesafe.core.keys import KeyRule, KeySyntax
from twicesafe.core.policy import LONGEST, MIN_LEASE, REFUSED_BEFORE_WORK, Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError

MICROSECOND = timedelta(microseconds=1)


def test_the_defaults() -> None:
    """R2, R3, R8, R13, R15, R20: POST and PATCH, optional opaque keys, raw bytes, the worst assumed of the effects, 24
    hours."""
    policy = Policy()
    assert policy.effects is Effects.OPAQUE
    assert policy.methods == {"POST", "PATCH"}
    assert policy.required is False
    assert policy.header_name == b"idempotency-key"
    assert policy.key == KeyRule(KeySyntax.OPAQUE, 1, 255)
    assert policy.fingerprint == FingerprintRule(RAW, ())
    assert policy.key_us == policy.body_us == 24 * 3600 * 1_000_000
    assert policy.lease_us == 30 * 1_000_000
    assert policy.wait_us == 0
    assert policy.released == {408, 425, 429, 503}
    assert policy.repeatable == policy.commits == frozenset()
    assert (policy.store_cookies, policy.unknown_on_error, policy.per_operation_keys) == (False, False, False)
    assert not REFUSED_BEFORE_WORK & policy.released


@pytest.mark.parametrize("name", ["lease", "key_retention", "body_retention", "wait"])
@pytest.mark.parametrize("value", [None, 0, 1, 30.0, "30s", timedelta(microseconds=-1), timedelta(-1), timedelta.max])
def test_a_duration_is_never_nothing_and_never_for_ever(name: str, value: object) -> None:
    """B1: None, a bare number, a negative or an endless duration is refused, and the message names the setting."""
    with pytest.raises(ConfigurationError, match=f"^{name} must"):
        Policy(**{name: value})


@pytest.mark.parametrize("lease", [timedelta(0), timedelta(milliseconds=1), MIN_LEASE - MICROSECOND])
def test_a_lease_too_short_to_live_is_refused(lease: timedelta) -> None:
    """B1: 0 and 1 ms never come to mean "free now"."""
    with pytest.raises(ConfigurationError, match=r"^lease must"):
        Policy(lease=lease)
    assert Policy(lease=MIN_LEASE).lease_us == 100_000


def test_a_key_is_remembered_at_least_as_long_as_its_body() -> None:
    """R20: two settings; a body may be dropped at once, but not outlive its key."""
    assert Policy(body_retention=timedelta(0)).body_us == 0
    assert Policy(key_retention=LONGEST, body_retention=LONGEST).key_us < 2**62
    with pytest.raises(ConfigurationError, match="key_retention"):
        Policy(key_retention=timedelta(0))
    with pytest.raises(ConfigurationError, match=r"^body_retention must not be longer than key_retention"):
        Policy(key_retention=timedelta(hours=1))


@given(st.timedeltas(MIN_LEASE, timedelta(days=30)))
def test_durations_are_exact_to_the_microsecond(duration: timedelta) -> None:
    """R12: what the store is given is what was set."""
    policy = Policy(lease=duration, wait=duration)
    assert policy.lease_us * MICROSECOND == policy.wait_us * MICROSECOND == duration


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("effects", "atomic"),
        ("effects", None),
        ("methods", "POST"),
        ("methods", None),
        ("methods", {1}),
        ("methods", {"POST", "options"}),
        ("methods", {"GET", "head"}),
        ("header", ""),
        ("header", None),
        ("header", "Idempotency Key"),
        ("header", "Idempotency-Key:"),
        ("header", "Schlüssel"),
        ("header", "a\nb"),
        ("header", "a\0"),
        ("released", None),
        ("released", 429),
        ("released", {"429"}),
        ("released", {True}),
        ("repeatable", {99}),
        ("repeatable", {600}),
        ("commits", {100}),
        ("commits", {503}),
        ("body_limit", -1),
        ("body_limit", None),
        ("body_limit", 1e6),
        ("body_limit", True),
        ("response_limit", -1),
        ("response_limit", "1 MB"),
        ("key", KeyRule(max_length=0)),
        ("key", KeyRule(syntax="guid")),  # type: ignore[arg-type]
        ("fingerprint", FingerprintRule(9)),  # type: ignore[arg-type]
        ("fingerprint", FingerprintRule(RAW, "x")),  # type: ignore[arg-type]
    ],
)
def test_every_wrong_setting_is_refused_by_name(setting: str, value: Any) -> None:
    """B1: a setting that cannot be meant is refused where it is made, not while a request is served."""
    with pytest.raises(ConfigurationError, match=setting):
        Policy(**{setting: value})


def test_keeping_effects_and_having_done_nothing_exclude_each_other() -> None:
    """R15: a status cannot be in `commits` and be released too."""
    with pytest.raises(ConfigurationError, match="commits must not name 402"):
        Policy(commits=frozenset({402}), repeatable=frozenset({402}))
    policy = Policy(commits=frozenset({402}))
    assert [status for status in (200, 302, 400, 402, 500) if policy.keeps_effects(status)] == [200, 302, 402]


def test_settings_are_brought_into_one_form() -> None:
    """R2: text and lists as a configuration file has them mean the same as the typed values."""
    policy = Policy(
        effects="keyed",  # type: ignore[arg-type]
        methods=["post", "Put"],  # type: ignore[arg-type]
        released=[429],  # type: ignore[arg-type]
        key=KeyRule("uuid"),  # type: ignore[arg-type]
        fingerprint=FingerprintRule(JSON, (b"Api-Version",)),
        header="X-Idempotency-Key",
    )
    assert policy.effects is Effects.KEYED
    assert policy.methods == {"POST", "PUT"}
    assert policy.released == frozenset({429})
    assert policy.key.syntax is KeySyntax.UUID
    assert policy.fingerprint.headers == (b"api-version",)
    assert policy.header_name == b"x-idempotency-key"


def test_a_policy_does_not_change_under_its_users() -> None:
    """R13: a policy is made once; changing one makes another, checked again."""
    policy = Policy()
    with pytest.raises(FrozenInstanceError):
        policy.lease = timedelta(0)  # type: ignore[misc]
    longer = policy.but(lease=timedelta(minutes=5))
    assert (policy.lease_us, longer.lease_us) == (30_000_000, 300_000_000)
    assert longer.but(lease=timedelta(seconds=30)) == policy
    with pytest.raises(ConfigurationError, match="lease"):
        policy.but(lease=None)


def test_what_is_computed_cannot_be_set() -> None:
    """B1: the microseconds that stores are given follow from the durations and from nothing else."""
    for name in [field.name for field in fields(Policy) if not field.init]:
        with pytest.raises(TypeError):
            Policy(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "x" * 201, None, 7])
def test_an_operation_has_a_name(name: object) -> None:
    """R7: an operation without a name, or with one no store can hold, is refused."""
    with pytest.raises(ConfigurationError, match="name"):
        Operation(name)  # type: ignore[arg-type]
    assert Operation("x" * 200).policy == Policy()


def test_what_every_answer_says() -> None:
    """R20, R17: the retention in seconds, the marker of a replay, and by choice the key."""
    policy = Policy(key_retention=timedelta(days=30))
    assert policy.announced == ((b"idempotency-key-retention", b"2592000"),)
    assert policy.marked == ((b"idempotent-replayed", b"true"),)
    assert policy.announcements("k") == policy.announced
    silent = Policy(retention_header="", marker="")
    assert silent.announced == silent.marked == ()
    echoing = Policy(retention_header="", echo_key=True)
    assert echoing.announcements("k-1") == ((b"idempotency-key", b"k-1"),)
    assert echoing.announcements("") == ()


def test_failures_that_are_run_again_are_failures() -> None:
    """R15: `rerun` names statuses of failures only, and none whose effects are kept."""
    with pytest.raises(ConfigurationError, match="rerun"):
        Policy(rerun=frozenset({200}))
    with pytest.raises(ConfigurationError, match="rerun"):
        Policy(rerun=frozenset({500}), commits=frozenset({500}))
    assert 500 in Policy(rerun=frozenset({500})).unrecorded


@pytest.mark.parametrize("name", ["mismatch_status", "in_progress_status"])
def test_statuses_of_refusals_are_refusals(name: str) -> None:
    """R21: a refusal is a client error."""
    for wrong in (200, 500, "422"):
        with pytest.raises(ConfigurationError, match=name):
            Policy().but(**{name: wrong})


def test_problems_may_say_in_a_header_whether_to_ask_again() -> None:
    """R21: clients that read a header and no document are told the same by both."""
    policy = Policy(retryable_header="Stripe-Should-Retry")
    for kind, again in (("in-progress", b"true"), ("key-reused", b"false"), ("key-missing", b"false")):
        _, lines, body = policy.problem(kind, detail="why")
        assert dict(lines)[b"stripe-should-retry"] == again
        assert json.loads(body)["retryable"] == (again == b"true")
    assert b"stripe-should-retry" not in dict(Policy().problem("in-progress")[1])


def test_every_answer_may_say_whether_the_request_was_accepted() -> None:
    """R21: refusals say `rejected` and are not contradicted; all other answers say `accepted`, stored failures too."""
    policy = Policy(result_header="Repeatability-Result", retention_header="")
    line = b"repeatability-result"
    for kind in ("key-reused", "in-progress", "outcome-unknown", "first-sent-expired", "key-invalid"):
        refused = policy.problem(kind, detail="why")[1]
        assert dict(refused)[line] == b"rejected"
        assert policy.announcements("k", refused) == ()
    for kind in ("handler-failed", "result-not-kept"):
        told = policy.problem(kind)[1]
        assert line not in dict(told) and policy.announcements("k", told) == ((line, b"accepted"),)
    assert policy.announcements("k", ((b"content-type", b"text/plain"),)) == ((line, b"accepted"),)
    assert Policy().announcements("k") == ((b"idempotency-key-retention", b"86400"),)
