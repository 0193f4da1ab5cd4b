"""Fingerprints: what makes two requests the same, and how the algorithm can change under live keys."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.json_texts import neighbours, spellings, values
from twicesafe.core.canonical_json import canonical_json
from twicesafe.core.fingerprint import (
    ADDRESS,
    JSON,
    MULTIPART,
    RAW,
    Fingerprint,
    FingerprintAlgorithm,
    FingerprintRule,
    GivenFingerprint,
    RequestFacts,
    compute,
)
from twicesafe.errors import ConfigurationError, FingerprintAlgorithmError, StoreError

EVERY = [algorithm for algorithm in FingerprintAlgorithm if algorithm is not ADDRESS]
"""But the one that does not look at bodies."""
JSON_TYPE = (b"content-type", b"application/json")


def facts(
    method: str = "POST",
    path: bytes = b"/jobs",
    query: bytes = b"",
    headers: tuple[tuple[bytes, bytes], ...] = (JSON_TYPE,),
    body: bytes = b'{"amount":1}',
) -> RequestFacts:
    """A request, plain where nothing else is said."""
    return RequestFacts(method, path, query, headers, body)


def same(one: RequestFacts, other: RequestFacts, rule: FingerprintRule) -> bool:
    """Whether the second request counts as the first one."""
    return Fingerprint(other, rule).matches(Fingerprint(one, rule).value)


texts = st.binary(max_size=6)
requests = st.builds(
    RequestFacts,
    st.sampled_from(["POST", "PATCH", "POS", "P"]),
    texts,
    texts,
    st.lists(
        st.tuples(st.sampled_from([b"content-type", b"content-encoding", b"x-version"]), texts.filter(bool)),
        max_size=2,
        unique_by=lambda header: header[0],
    ).map(tuple),
    texts,
    st.none(),
)


def by_name(one: RequestFacts) -> RequestFacts:
    """The same request as a shell tells of it that has the header lines by name."""
    return one._replace(lines=dict(one.headers))


@given(requests, st.sampled_from(EVERY), st.sampled_from([(), (b"x-version",)]))
def test_how_a_shell_holds_the_header_lines_does_not_count(
    one: RequestFacts, algorithm: FingerprintAlgorithm, names: tuple[bytes, ...]
) -> None:
    """R8: lines that are given by name as well give the same digest."""
    assert compute(by_name(one), algorithm, names) == compute(one, algorithm, names)


# --- what counts -----------------------------------------------------------------------------------------------------


@given(requests, requests, st.sampled_from(EVERY))
@example(facts(path=b"/a", query=b"b"), facts(path=b"/ab", query=b""), RAW)
@example(facts(method="P", path=b"OST"), facts(method="PO", path=b"ST"), RAW)
@example(facts(headers=(), body=b"ab"), facts(headers=((b"content-type", b"a"),), body=b"b"), RAW)
def test_no_two_requests_share_a_digest(
    one: RequestFacts, other: RequestFacts, algorithm: FingerprintAlgorithm
) -> None:
    """R8, G2, I4: method, path, query string, media type, content coding, chosen headers and body all count."""
    names = (b"x-version",)
    equal = one._replace(headers=sorted(one.headers)) == other._replace(headers=sorted(other.headers))
    if algorithm is RAW:
        assert (compute(one, algorithm, names) == compute(other, algorithm, names)) == equal
    elif equal:
        assert compute(one, algorithm, names) == compute(other, algorithm, names)


@pytest.mark.parametrize("algorithm", EVERY)
@pytest.mark.parametrize(
    "other",
    [
        facts(method="PATCH"),
        facts(query=b"dry=1"),
        facts(path=b"/jobs/"),
        facts(path=b"/JOBS"),
        facts(path=b"/%6Aobs"),
        facts(headers=((b"content-type", b"text/plain"),)),
        facts(headers=()),
        facts(headers=(JSON_TYPE, JSON_TYPE)),
        facts(headers=(JSON_TYPE, (b"content-encoding", b"br"))),
        facts(body=b'{"amount":2}'),
        facts(body=b""),
    ],
)
def test_another_request_is_a_mismatch(other: RequestFacts, algorithm: FingerprintAlgorithm) -> None:
    """R8, F3, G2, K: another method, path, query string, media type or body is another request, by every algorithm."""
    rule = FingerprintRule(algorithm)
    assert same(facts(), facts(), rule)
    assert not same(facts(), other, rule)


@pytest.mark.parametrize("algorithm", EVERY)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (facts(path=b"/a%2Fb"), facts(path=b"/a/b")),
        (facts(path=b"/%7Ea"), facts(path=b"/~a")),
        (facts(path=b"/tickets/1"), facts(path=b"/tickets/2")),
        (facts(query=b"a=1&b=2"), facts(query=b"b=2&a=1")),
        (facts(query=b"a=%20"), facts(query=b"a=+")),
    ],
)
def test_the_address_is_compared_as_it_was_sent(
    one: RequestFacts, other: RequestFacts, algorithm: FingerprintAlgorithm
) -> None:
    """F3, G2, K: %2F is not /, %7E is not ~, and the order of query parameters counts: one rule for all addresses."""
    assert not same(one, other, FingerprintRule(algorithm))


@pytest.mark.parametrize("algorithm", EVERY)
def test_what_changes_with_every_attempt_does_not_count(algorithm: FingerprintAlgorithm) -> None:
    """R6, F1, F5: a fresh token, trace, date, address or framing of the body is the same request."""
    noise = [
        (b"authorization", b"Bearer fresh"),
        (b"traceparent", b"00-1-1-01"),
        (b"date", b"Mon, 21 Oct 2026 07:28:00 GMT"),
        (b"user-agent", b"other"),
        (b"x-forwarded-for", b"192.0.2.7"),
        (b"signature", b"abc"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"12"),
        (b"expect", b"100-continue"),
        (b"cookie", b"session=2"),
        (b"idempotency-key", b'"k"'),
    ]
    assert same(facts(), facts(headers=(*noise[:5], JSON_TYPE, *noise[5:])), FingerprintRule(algorithm))


def test_chosen_headers_count() -> None:
    """R8: a header that changes what is asked for counts where the policy names it, line by line."""
    rule = FingerprintRule(RAW, (b"Api-Version", b"x-tenant")).checked()
    first = facts(headers=(JSON_TYPE, (b"api-version", b"1")))
    assert same(first, facts(headers=((b"api-version", b"1"), JSON_TYPE, (b"other", b"x"))), rule)
    for headers in (
        (JSON_TYPE,),
        (JSON_TYPE, (b"api-version", b"2")),
        (JSON_TYPE, (b"api-version", b"1"), (b"api-version", b"1")),
        (JSON_TYPE, (b"api-version", b"1"), (b"x-tenant", b"")),
        (JSON_TYPE, (b"x-tenant", b"1")),
    ):
        assert not same(first, facts(headers=headers), rule)


def test_two_lines_of_one_name_count_both() -> None:
    """R8: of two Content-Type or Content-Encoding lines none is ignored, whichever one an application reads."""
    for name in (b"content-type", b"content-encoding"):
        first = facts(headers=((name, b"a"), (name, b"c")))
        for lines in (((name, b"b"), (name, b"c")), ((name, b"a"), (name, b"d")), ((name, b"a"),), ((name, b"c"),)):
            assert not same(first, facts(headers=lines), FingerprintRule())


# --- JSON and forms --------------------------------------------------------------------------------------------------


@given(st.data(), values)
def test_reformatted_json_is_the_same_request(data: st.DataObject, value: Any) -> None:
    """R8, F2: by the JSON algorithm the same value, however written, is the same request, and a changed one never."""
    one = facts(body=data.draw(spellings(value)).encode())
    other = facts(body=data.draw(spellings(value)).encode())
    assert same(one, other, FingerprintRule(JSON))
    changed = data.draw(st.sampled_from(list(neighbours(value))))
    assert not same(one, facts(body=data.draw(spellings(changed)).encode()), FingerprintRule(JSON))


def test_the_default_takes_bytes_as_sent() -> None:
    """R8: without a choice one more blank is another request; that errs to refusing."""
    assert FingerprintRule().algorithm is RAW
    assert not same(facts(body=b"{}"), facts(body=b"{ }"), FingerprintRule())


@pytest.mark.parametrize(
    "body",
    [b'"\\ud800"', b"[" * 100_000 + b"]" * 100_000, b"9" * 4301 + b" ", b'{"a":1,"a":2}', b"\xff", b"", b"NaN"],
    ids=["half a surrogate pair", "deep", "4,301 digits", "named twice", "no UTF-8", "empty", "NaN"],
)
def test_what_cannot_be_parsed_is_compared_as_sent(body: bytes) -> None:
    """K: such a body neither raises nor matches any other body."""
    rule = FingerprintRule(JSON)
    assert same(facts(body=body), facts(body=body), rule)
    assert not same(facts(body=body), facts(body=body + b"x"), rule)


def test_a_parsed_body_never_meets_a_raw_one() -> None:
    """R8: bytes that equal another body's canonical form are not that body."""
    deepest = b"[" * 128 + b"1.5" + b"]" * 128
    parsed = canonical_json(JSON_TYPE[1], b"", deepest)
    assert parsed is not None
    imitation = facts(body=parsed[1])
    assert canonical_json(JSON_TYPE[1], b"", imitation.body) is None
    assert not same(facts(body=deepest), imitation, FingerprintRule(JSON))
    multipart = b"multipart/form-data; boundary=b"
    form = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nz\r\n--b--\r\n'
    imitated = b'39:content-disposition:form-data; name="a"1:z'
    sent = facts(headers=((b"content-type", multipart),), body=form)
    for content_type in (multipart, b"multipart/form-data"):
        imitation = facts(headers=((b"content-type", content_type),), body=imitated)
        assert not same(sent, imitation, FingerprintRule(MULTIPART))


def test_a_random_boundary_is_the_same_request() -> None:
    """F1: by the multipart algorithm a form sent again under another boundary is the same request."""

    def sent(boundary: bytes, content: bytes) -> RequestFacts:
        head = b'\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n'
        return facts(
            headers=((b"content-type", b"multipart/form-data; boundary=" + boundary),),
            body=b"--" + boundary + head + content + b"\r\n--" + boundary + b"--\r\n",
        )

    rule = FingerprintRule(MULTIPART)
    assert same(sent(b"one", b"\0\xff"), sent(b"two", b"\0\xff"), rule)
    assert not same(sent(b"one", b"\0\xff"), sent(b"two", b"\0\xfe"), rule)
    assert not same(sent(b"one", b"z"), sent(b"two", b"z"), FingerprintRule(RAW))


def test_a_gzipped_body_is_the_same_request() -> None:
    """F1: by the JSON algorithm a body gzip-encoded once and plain once is the same request; raw it is another."""
    packed = facts(headers=(JSON_TYPE, (b"content-encoding", b"gzip")), body=gzip.compress(facts().body))
    assert same(facts(), packed, FingerprintRule(JSON))
    assert not same(facts(), packed, FingerprintRule(RAW))


@pytest.mark.parametrize("algorithm", [JSON, MULTIPART])
def test_other_bodies_are_taken_as_sent(algorithm: FingerprintAlgorithm) -> None:
    """R8: by every algorithm, bodies it is not made for count byte by byte."""
    rule = FingerprintRule(algorithm)
    plain = ((b"content-type", b"text/plain"),)
    assert same(facts(headers=plain, body=b"{}"), facts(headers=plain, body=b"{}"), rule)
    assert not same(facts(headers=plain, body=b"{}"), facts(headers=plain, body=b"{ }"), rule)


# --- algorithms change under live keys -------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", EVERY)
@pytest.mark.parametrize("current", EVERY)
def test_a_record_is_compared_by_its_own_algorithm(stored: FingerprintAlgorithm, current: FingerprintAlgorithm) -> None:
    """R8, F8: after the policy changed its algorithm, a retry still matches the record of its first attempt."""
    before = compute(facts(), stored)
    now = Fingerprint(facts(), FingerprintRule(current))
    assert before[0] == stored and now.value[0] == current
    assert now.matches(before)
    assert not Fingerprint(facts(body=b"[]"), FingerprintRule(current)).matches(before)
    assert Fingerprint(facts(body=b'{ "amount": 1 }'), FingerprintRule(current)).matches(before) == (stored is JSON)


def test_chosen_headers_count_by_every_algorithm() -> None:
    """R8, F8: a record of an older algorithm is compared by the headers that the policy names, too."""
    first = facts(headers=(JSON_TYPE, (b"api-version", b"1")))
    other = facts(headers=(JSON_TYPE, (b"api-version", b"2")))
    for algorithm in EVERY:
        stored = compute(first, algorithm, (b"api-version",))
        assert Fingerprint(first, FingerprintRule(RAW, (b"api-version",))).matches(stored)
        assert not Fingerprint(other, FingerprintRule(RAW, (b"api-version",))).matches(stored)


def test_algorithms_never_share_a_value() -> None:
    """R8: the first byte names the algorithm, so that values of two of them are never equal by chance."""
    values = {compute(facts(), algorithm) for algorithm in FingerprintAlgorithm}
    assert len(values) == len(FingerprintAlgorithm)
    assert {len(value) for value in values} == {33}


@pytest.mark.parametrize("stored", [b"\xff" + bytes(32), b"\x00" + bytes(32), b""])
def test_an_algorithm_of_a_newer_release_refuses_to_judge(stored: bytes) -> None:
    """R8, I4: what this release cannot compare is neither replayed nor run; the caller is told to ask again."""
    with pytest.raises(FingerprintAlgorithmError, match="finish the upgrade") as refusal:
        Fingerprint(facts(), FingerprintRule()).matches(stored)
    assert isinstance(refusal.value, StoreError)


def test_a_given_fingerprint_is_compared_as_it_stands() -> None:
    """R1, R8: a fingerprint made elsewhere matches itself and nothing else."""
    assert GivenFingerprint(b"x").matches(b"x")
    assert not GivenFingerprint(b"x").matches(b"y")
    assert not GivenFingerprint(b"x").matches(b"")


FORM = facts(
    headers=((b"content-type", b"multipart/form-data; boundary=b"),),
    body=b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nz\r\n--b--\r\n',
)

GOLDEN = [
    (RAW, facts(), "01f37aa28ebf44f48bde95fa695df2a5d4101db61831578bc7c6f64a743950db96"),
    (
        RAW,
        facts("PATCH", b"/a%2Fb", b"q=1", ((b"content-encoding", b"br"),), b"\0\xff"),
        "01abd84c6e8e57ce35c36d30c2a730b1e4fbc65555daa4626b7556dedc24a45f37",
    ),
    (
        JSON,
        facts(body=b'{"b":[1.50,1e400,true,null],"a":"\\u00e9","":0}'),
        "024ae5b34eef5fbde1aec0779173509aa4b0ff3c93a4c890251bd8747c9f480834",
    ),
    (JSON, facts(body=b"{not json"), "02b993f2103d820a4ddaa1fff73ac21a8edca4c4fbba52a855e604e3eebbc54d5d"),
    (MULTIPART, FORM, "032a0beab591349ada718b8d1e0f2ca5d72590278a688e3a93bb1ef83075ce1230"),
    (MULTIPART, facts(), "03f37aa28ebf44f48bde95fa695df2a5d4101db61831578bc7c6f64a743950db96"),
    (ADDRESS, facts(query=b"q=1"), "04d3de71da3075c12874426dfd6293368932e72b61d13146a2574a536183f06c14"),
]


@pytest.mark.parametrize(("algorithm", "request_facts", "expected"), GOLDEN)
def test_stored_fingerprints_never_change(
    algorithm: FingerprintAlgorithm, request_facts: RequestFacts, expected: str
) -> None:
    """R8: these values are in databases; a release that computes others refuses every true retry."""
    assert compute(request_facts, algorithm).hex() == expected


def test_chosen_headers_are_stored_in_one_order() -> None:
    """R8: the order in which a policy names its headers changes nothing, and the value never changes either."""
    request_facts = facts(headers=((b"b", b"2"), (b"a", b"1"), (b"a", b"0")))
    one = FingerprintRule(RAW, (b"A", b"b")).checked()
    two = FingerprintRule(RAW, (b"b", b"a", b"B")).checked()
    assert one == two == FingerprintRule(RAW, (b"a", b"b"))
    assert (
        Fingerprint(request_facts, one).value.hex()
        == "01d0265ec7880035eaa465764e3cff6e2050a0201df1a8afeda9cda31204e8c1be"
    )


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [0, 99, None, "json"])
def test_an_unknown_algorithm_is_refused(algorithm: object) -> None:
    """B1: a fingerprint rule with an algorithm that does not exist is refused where it is made."""
    with pytest.raises(ConfigurationError, match="algorithm"):
        FingerprintRule(algorithm).checked()  # type: ignore[arg-type]


@pytest.mark.parametrize("headers", ["api-version", b"api-version", ("api-version",), (b"a", None), None, 7])
def test_header_names_that_would_never_match_are_refused(headers: object) -> None:
    """R8: a name given as text would equal no header's name and silently not count."""
    with pytest.raises(ConfigurationError, match="headers"):
        FingerprintRule(RAW, headers).checked()  # type: ignore[arg-type]


def test_an_algorithm_may_be_given_by_number() -> None:
    """R8: a rule read from a file, with its algorithm's number, is the rule."""
    assert FingerprintRule(2).checked() == FingerprintRule(JSON)  # type: ignore[arg-type]
