"""Fingerprints of requests whose bodies do not count."""

from __future__ import annotations

from tests.core.test_fingerprint import JSON_TYPE, by_name, facts, same
from twicesafe.core.fingerprint import ADDRESS, RAW, Fingerprint, FingerprintRule, compute


def test_by_the_address_alone_the_body_counts_for_nothing() -> None:
    """R8: ADDRESS compares method, path, query string and chosen headers as they were sent, whatever the body is."""
    rule = FingerprintRule(ADDRESS, (b"api-version",))
    first = facts(headers=(JSON_TYPE, (b"api-version", b"1")))
    for other in (
        first._replace(body=b'{"amount":2}'),
        first._replace(body=b""),
        first._replace(headers=((b"content-type", b"text/plain"), (b"api-version", b"1"))),
        first._replace(headers=((b"content-encoding", b"br"), (b"api-version", b"1"))),
    ):
        assert same(first, other, rule)
        assert same(first, by_name(other), rule)
    for other in (
        first._replace(method="PATCH"),
        first._replace(path=b"/jobs/"),
        first._replace(query=b"dry=1"),
        first._replace(headers=((b"api-version", b"2"),)),
        first._replace(headers=()),
    ):
        assert not same(first, other, rule)


def test_a_record_made_by_the_address_is_compared_by_it_and_no_other_is() -> None:
    """R8, F8: a policy that begins or ceases to look at bodies changes nothing for the keys that live."""
    by_address, by_body = compute(facts(), ADDRESS), compute(facts(), RAW)
    other = facts(body=b"[]")
    assert Fingerprint(other, FingerprintRule(RAW)).matches(by_address)
    assert not Fingerprint(other, FingerprintRule(ADDRESS)).matches(by_body)
    assert Fingerprint(facts(), FingerprintRule(ADDRESS)).matches(by_body)
