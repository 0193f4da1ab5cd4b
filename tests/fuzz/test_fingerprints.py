"""Fingerprints: requests that mean the same have one, and no others."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.json_texts import identity, neighbours, spellings, values
from tests.fuzz.bounded import bounded, octets, pieces
from twicesafe.core.canonical_json import canonical_json
from twicesafe.core.fingerprint import JSON, MULTIPART, RAW, Fingerprint, FingerprintRule, RequestFacts

TYPE = b"application/json"

json_like = pieces(
    b"{", b"}", b"[", b"]", b'"a"', b'""', b":", b",", b"1", b"0", b"-0", b".5", b"e1", b"E+9", b"true", b"null",
    b'"\\u0061"', b'"\\ud800"', b" ", b"\xef\xbb\xbf", b"NaN", b"9007199254740993",
)  # fmt: skip


def of(body: bytes, rule: FingerprintRule, content_type: bytes = TYPE, encoding: bytes = b"") -> bytes:
    """The fingerprint of a POST with this body."""
    headers = [(b"content-type", content_type), (b"content-encoding", encoding)]
    return Fingerprint(RequestFacts("POST", b"/orders", b"", headers, body), rule).value


def strictly(body: bytes) -> Any:
    """What a body of JSON says, numbers exactly; ValueError for what parsers read in different ways."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a member is named twice")
        return dict(pairs)

    def refuse(text: str) -> None:
        raise ValueError(text)

    return json.loads(
        body.decode(), parse_int=Decimal, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=once
    )


@bounded
@given(st.data(), values, st.booleans())
def test_equal_meaning_is_an_equal_fingerprint(data: st.DataObject, value: Any, squeezed: bool) -> None:
    """R8, I4: however a value is written, compressed or not, it has one fingerprint; any other value has another."""
    rule = FingerprintRule(JSON)
    one, other = data.draw(spellings(value)).encode(), data.draw(spellings(value)).encode()
    mine = of(one, rule)
    assert of(gzip.compress(other) if squeezed else other, rule, encoding=b"gzip" if squeezed else b"") == mine
    near = data.draw(st.sampled_from(list(neighbours(value))))
    assert of(data.draw(spellings(near)).encode(), rule) != mine


@bounded
@given(json_like, json_like)
def test_equal_fingerprints_are_an_equal_meaning(one: bytes, other: bytes) -> None:
    """R8, I4: two bodies that share a fingerprint are the same bytes, or say the same to a strict parser."""
    if of(one, FingerprintRule(JSON)) == of(other, FingerprintRule(JSON)) and one != other:
        assert identity(strictly(one)) == identity(strictly(other))


@bounded
@given(json_like)
def test_what_is_parsed_is_what_a_strict_parser_takes(body: bytes) -> None:
    """R8: a body has a canonical form only where it is JSON that all parsers read alike."""
    if canonical_json(TYPE, b"", body) is not None:
        strictly(body)


@bounded
@given(
    *(st.tuples(st.sampled_from(["POST", "PATCH", "post"]), octets, octets, octets, octets, octets) for _ in range(2)),
    st.sampled_from([RAW, JSON, MULTIPART]),
)
def test_no_two_requests_run_into_each_other(one: Any, other: Any, algorithm: Any) -> None:
    """R7, I4: wherever one part of a request ends and the next begins, another request has another fingerprint."""
    (mine, its), (theirs, others) = (
        (Fingerprint(facts, FingerprintRule(algorithm, (b"version",))).value, facts)
        for facts in (
            RequestFacts(method, path, query, [(b"content-type", kind), (b"version", version)], body)
            for method, path, query, kind, version, body in (one, other)
        )
    )
    assert its == others or mine != theirs or algorithm is not RAW


@bounded
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), octets), max_size=4),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), octets), max_size=4),
)
def test_parts_are_what_a_form_says(one: list[tuple[str, bytes]], other: list[tuple[str, bytes]]) -> None:
    """R8: forms have one fingerprint where they hold the same parts, whatever their boundaries, and only there."""
    rule = FingerprintRule(MULTIPART)

    def form(parts: list[tuple[str, bytes]], boundary: bytes) -> bytes:
        written = [
            b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, name.encode(), content)
            for name, content in parts
        ]
        body = b"".join(written) + b"--%b--\r\n" % boundary
        return of(body, rule, b"multipart/form-data; boundary=" + boundary)

    def said(parts: list[tuple[str, bytes]]) -> dict[str, list[bytes]]:
        return {name: [content for found, content in parts if found == name] for name, _ in parts}

    mine = form(one, b"first-boundary")
    assert form(one, b"second-boundary") == mine
    assert (form(other, b"third-boundary") == mine) == (said(one) == said(other))
