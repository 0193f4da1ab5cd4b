"""What is known of providers: how they take keys, for how long they know them, and what their answers prove."""

from __future__ import annotations

import json
from datetime import timedelta
from importlib.resources import files
from tomllib import loads
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twicesafe.core.carriers import with_member
from twicesafe.core.keys import KeyRule, KeySyntax, check_key, derive, fitted
from twicesafe.core.profiles import profiles
from twicesafe.core.provider import Fate, Heard, Provider
from twicesafe.errors import ConfigurationError, InvalidKeyError

KEYS = st.binary(min_size=32, max_size=32).map(lambda digest: derive(digest, "charge"))
KEY = "8e03978e-40d5-83e8-bc93-6894a57f9324"
RULES = (
    KeyRule(), KeyRule(max_length=36), KeyRule(max_length=32), KeyRule(max_length=31), KeyRule(max_length=25),
    KeyRule(max_length=24), KeyRule(max_length=22), KeyRule(punctuation=""), KeyRule(punctuation="_", max_length=30),
    KeyRule(KeySyntax.UUID),
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=str)
@settings(max_examples=15)
@given(one=KEYS, other=KEYS)
def test_a_fitted_key_is_taken_and_is_nobody_elses(rule: KeyRule, one: str, other: str) -> None:
    """R25, R5: in fewer characters it is still the whole key: taken, the same each time, and two never become one."""
    assert check_key(fitted(one, rule), rule) == fitted(one, rule) == fitted(one, rule)
    assert (fitted(one, rule) == fitted(other, rule)) == (one == other)


def test_fitted_keys_never_change() -> None:
    """R25, R33: another release finds what this one sent."""
    assert int(fitted(KEY, KeyRule(max_length=25)), 36) == UUID(KEY).int
    assert [fitted(KEY, KeyRule(max_length=length)) for length in (255, 32, 25, 22)] == [
        KEY,
        "8e03978e40d583e8bc936894a57f9324",
        "8eo7sexp4glm4oua78zbh9c84",
        "4jYydQ1cHo1v7p70pt49F2",
    ]


@pytest.mark.parametrize("rule", [KeyRule(max_length=21), KeyRule(min_length=37), KeyRule(KeySyntax.UUID, 1, 35)])
def test_a_rule_without_room_is_refused(rule: KeyRule) -> None:
    """R25: a part of a key may be another call's; no key is cut. It is told where the provider is declared."""
    with pytest.raises(ConfigurationError, match="no room"):
        fitted(KEY, rule)
    with pytest.raises(ConfigurationError, match="no room"):
        Provider(name="tiny", key=rule)


@pytest.mark.parametrize("profile", sorted(profiles().keys() - {"azure"}))
def test_every_profile_can_be_called(profile: str) -> None:
    """R5, R25: a derived key is one that the profile's own server takes, and fits its carrier."""
    provider = Provider.of(profile)
    assert check_key(provider.fitted(KEY), provider.key) == provider.fitted(KEY)
    assert bool(provider.member) != bool(provider.header)
    assert Provider.of(profile) == provider


def test_a_provider_that_compares_times_is_refused() -> None:
    """R5: what wants the time of the first attempt would take every retry for another request."""
    with pytest.raises(ConfigurationError, match="azure"):
        Provider.of("azure")
    with pytest.raises(ConfigurationError, match="there is no profile"):
        Provider.of("stripe")


@pytest.mark.parametrize(
    ("profile", "remembers"),
    [
        ("stripe-v1", timedelta(hours=24)),
        ("helcim", timedelta(minutes=5)),
        ("paypal", None),
        ("square", None),
    ],
)
def test_only_a_published_window_counts(profile: str, remembers: timedelta | None) -> None:
    """R25, K: a window that twicesafe chose for its own servers is no promise of the vendor's."""
    assert Provider.of(profile).remembers == remembers
    assert Provider.of(profile, remembers=timedelta(hours=6)).remembers == timedelta(hours=6)


@pytest.mark.parametrize(
    "changes",
    [
        {"remembers": timedelta(0)},
        {"remembers": 24},
        {"header": ""},
        {"header": "Idempotency Key"},
        {"refuses": frozenset({429})},
    ],
    ids=str,
)
def test_a_wrong_provider_is_refused_where_it_is_made(changes: dict[str, Any]) -> None:
    """R25: a setting that would send twice, or nowhere, is told before anything is called."""
    with pytest.raises(ConfigurationError):
        Provider.of("stripe-v1", **changes)


def test_what_callers_know_is_of_known_vendors() -> None:
    """R5: each fact has a public source, and each vendor a profile, unless it takes no keys."""
    known = loads(files("twicesafe.core").joinpath("providers.toml").read_text("utf-8"))
    assert {name for name, facts in known.items() if "keys" not in facts} <= profiles().keys()
    for name, facts in known.items():
        assert all(fact["from"].startswith("https://") for fact in facts.values()), name
        provider = Provider.of(name)
        assert provider.about_keys == tuple(facts.get("about_keys", {}).get("codes", ())), name
        assert bool(provider.methods) == ("keys" not in facts)
        if "directive" in facts:
            assert provider.directive == facts["directive"]["header"], name


def test_a_directive_is_told_once() -> None:
    """R36: what a profile says of a server, a caller reads there."""
    assert Provider.of("stripe-v1").directive == Provider.of("stripe-v2").directive == "Stripe-Should-Retry"
    assert Provider.of("adyen").directive == ""


def test_a_status_that_says_two_things_is_not_taken_for_an_attempt_at_work() -> None:
    """I6: where a mismatch or a duplicate is answered alike, or nobody publishes it, there is nothing to wait for."""
    published = {name: Provider.of(name).in_progress for name in profiles().keys() - {"azure"}}
    assert published["stripe-v1"] == published["dwolla"] == 409 and published["checkout"] == 429
    assert {published[name] for name in ("gocardless", "increase", "mangopay", "moov", "paypal", "adyen")} == {None}


# --- what an answer proves -------------------------------------------------------------------------------------------

REPLAYED = (b"Idempotent-Replayed", b"true")


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        *[(status, Fate.DONE) for status in (200, 201, 202, 204, 303)],
        *[(status, Fate.UNKNOWN) for status in (301, 302, 304, 408, 409, 500, 501, 502, 503, 504, 599)],
        *[(status, Fate.TURNED_AWAY) for status in (307, 308, 401, 403, 407, 425, 429)],
        *[(status, Fate.REFUSED) for status in (400, 402, 404, 405, 410, 412, 413, 415, 422)],
    ],
)
def test_what_a_status_proves(status: int, fate: Fate) -> None:
    """R25, R35, E1: a refusal proves that nothing was done; a failure, a conflict and a page prove nothing."""
    assert Provider(name="any").hear(status, (), b"") == Heard(fate)


@pytest.mark.parametrize(
    ("status", "heard"),
    [(201, Heard(Fate.DONE, True)), (402, Heard(Fate.REFUSED, True)), (500, Heard(Fate.UNKNOWN))],
)
def test_what_a_recorded_answer_proves(status: int, heard: Heard) -> None:
    """R37: it tells of all attempts; that one of them failed halfway still says nothing of what it had done."""
    assert Provider(name="any").hear(status, (REPLAYED,), b"") == heard
    assert Provider.of("ppro").hear(status, ((b"request-idempotency", b"True"),), b"") == heard


def test_who_is_at_work_is_no_reason_to_send_elsewhere() -> None:
    """R25: where 429 means that the first attempt is at work, it does not mean that nothing was done."""
    assert Provider.of("checkout").hear(429, (), b"").fate is Fate.UNKNOWN


@pytest.mark.parametrize("kind", ["key-reused", "in-progress", "outcome-unknown", "already-done"])
def test_problems_about_the_key_are_no_refusals(kind: str) -> None:
    """R37, I6: what a server of twicesafe says of the key is taken for what it means."""
    headers = ((b"content-type", b"application/problem+json"),)
    body = json.dumps({"type": f"urn:twicesafe:problem:{kind}"}).encode()
    assert Provider(name="any").hear(422, headers, body).fate is Fate.UNKNOWN
    assert Provider(name="any").hear(422, headers, b'{"safe_new_key": false}').fate is Fate.UNKNOWN


# --- keys in bodies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "signed"),
    [
        (b"{}", b'{"k":"1"}'),
        (b' {\n} ', b' {"k":"1"\n} '),
        (b'{"a":1.50}', b'{"k":"1","a":1.50}'),
        (b'{"a":{"k":"2"}}', b'{"k":"1","a":{"k":"2"}}'),
        (b'{"k":"1","a":1}', b'{"k":"1","a":1}'),
        ('{"é":"{"}'.encode(), '{"k":"1","é":"{"}'.encode()),
    ],
)  # fmt: skip
def test_the_key_is_put_in_front(body: bytes, signed: bytes) -> None:
    """R5, R33: one member more, and not one byte of the others changed; signed again, it stays as it is."""
    assert with_member(body, "k", "1") == signed
    assert with_member(signed, "k", "1") == signed
    assert json.loads(signed) == {"k": "1", **json.loads(body)}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b'"{"', b"1", b"{", b"null", b'{"k":"2"}', b'{"k":""}', b'{"k":null}', b'{"k":1}',
        b'{"k":"1","k":"2"}', b'{"k":"2","k":"1"}', "{}".encode("utf-16"), b"\xff{}", b"[" * 100_000,
    ],
    ids=lambda body: str(body[:20]),
)  # fmt: skip
def test_a_body_without_a_place_for_it_is_refused(body: bytes) -> None:
    """R5, K: no object, no UTF-8, another key, or two: nothing is sent whose key could be read in two ways."""
    with pytest.raises(InvalidKeyError):
        with_member(body, "k", "1")


def test_the_number_of_a_key_is_not_lost() -> None:
    """R25: small keys keep their leading digits: all are as long."""
    zero = str(UUID(int=0))
    assert fitted(zero, KeyRule(max_length=25)) == "0" * 25
    assert fitted(zero, KeyRule(max_length=22)) == "0" * 22
