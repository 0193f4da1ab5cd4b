"""Header lines that others write: when to come back, dates, signatures; and documents about what went wrong."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.bounded import bounded, octets, pieces, texts
from twicesafe.conformance.findings import Answer
from twicesafe.conformance.retry_after import named_wait
from twicesafe.core.answers import Again, judge, problem_of
from twicesafe.core.contract import Contract
from twicesafe.core.first_sent import FirstSent, imf_fixdate
from twicesafe.core.problems import DETAILS, PROBLEMS, problem
from twicesafe.core.retry_after import retry_after
from twicesafe.core.signatures import SIGNATURE, TIMESTAMP, read_secrets, sign, verify
from twicesafe.errors import ConfigurationError, InvalidMessageError, RequestError, SignatureError

SECRETS = read_secrets(["whsec_" + "MDEyMzQ1Njc4OTAxMjM0NQ==", "whsec_" + "YWJjZGVmZ2hpamtsbW5vcA=="])
NOW = 1_800_000_000

dates = pieces(
    b"Sun, ", b"06 Nov 1994 ", b"08:49:37", b" GMT", b"Nov", b"-", b":", b"99", b"0", b"31 Feb 2026", b" ", b"+9999",
    b"Sunday, 06-Nov-94 08:49:37 GMT", b"Sun Nov  6 08:49:37 1994", b"-0000", b"10000",
)  # fmt: skip
waits = st.one_of(
    dates, octets, st.integers(0, 10**12).map(lambda number: b"%d" % number), pieces(b"1", b".", b"e9", b"-")
)


@bounded
@given(st.lists(st.tuples(st.sampled_from([b"Retry-After", b"date", b"x"]), waits), max_size=4), st.floats(0, 4e9))
def test_a_retry_after_is_a_time_or_nothing(headers: list[tuple[bytes, bytes]], wall: float) -> None:
    """R38: whatever its lines hold, the client waits for a time that is not below nothing, or knows of none."""
    wait = retry_after(headers, wall)
    assert wait is None or (wait >= 0 and not math.isnan(wait))
    lines = tuple((name.decode(), value.decode("latin-1")) for name, value in headers)
    told = named_wait(Answer(409, lines, b""))
    assert told is None or told >= 0


@bounded
@given(st.integers(0, 10**7), st.integers(0, 59))
def test_a_plain_retry_after_is_its_seconds(seconds: int, zeros: int) -> None:
    """R38: whole seconds are those seconds, however many zeros stand before them."""
    line = b"0" * zeros + b"%d" % seconds
    assert retry_after([(b"retry-after", line)], NOW) == seconds


@bounded
@given(dates)
def test_a_date_is_itself_or_none(line: bytes) -> None:
    """R5: the time of a first attempt is read in the one form that is published; other text is no time."""
    found = imf_fixdate(line)
    if found is not None:
        epoch = b"Thu, 01 Jan 1970 00:00:00 GMT"
        assert max(found, 0.0) == retry_after([(b"retry-after", line.strip()), (b"date", epoch)], 0)


@bounded
@given(st.lists(dates, max_size=2), st.booleans(), st.integers(0, 2**33))
def test_a_first_attempt_is_recent_or_refused(lines: list[bytes], keyed: bool, now: int) -> None:
    """R5: a request whose first attempt cannot be told, or was too long ago, is refused by name."""
    rule = FirstSent(within=timedelta(minutes=5))
    try:
        rule.check(lines, now, keyed=keyed)
    except RequestError:
        return
    if not keyed:
        assert not lines
    else:
        sent = imf_fixdate(lines[0])
        assert sent is not None and abs(sent - now) <= 300


@bounded
@given(texts.filter(bool), octets, st.integers(NOW - 250, NOW + 250), st.sampled_from(["id", "body", "time", "none"]))
def test_a_signature_is_of_what_was_signed(message_id: str, body: bytes, at: int, changed: str) -> None:
    """R28: what was signed is taken, and nothing else: no other id, body or time."""
    try:
        headers = dict(sign(SECRETS, message_id, at, body))
    except InvalidMessageError:
        # What could be read as another id at another time is not signed at all.
        assert "." in message_id
        return
    if changed == "id":
        headers["webhook-id"] += "x"
    elif changed == "body":
        body += b"\0"
    elif changed == "time":
        headers[TIMESTAMP] = str(at + 1)
    try:
        found = verify(SECRETS, headers, body, NOW)
    except SignatureError:
        assert changed != "none"
    else:
        assert (changed, found) == ("none", message_id)


@bounded
@given(
    st.dictionaries(st.sampled_from(["webhook-id", TIMESTAMP, SIGNATURE]), st.one_of(texts, st.just(str(NOW)))),
    octets,
)
def test_nobody_signs_by_chance(headers: dict[str, str], body: bytes) -> None:
    """R28: headers that anybody made up are refused by name."""
    try:
        verify(SECRETS, headers, body, NOW)
    except SignatureError:
        return
    raise AssertionError(headers)


@bounded
@given(texts)
def test_a_secret_is_read_or_refused(text: str) -> None:
    """R28: a text is a secret of enough bytes, or refused when the sender is set up, and never printed."""
    try:
        secrets = read_secrets(text)
    except ConfigurationError:
        return
    assert all(len(key) >= 16 for key in secrets.keys)


@bounded
@given(
    st.sampled_from(sorted(PROBLEMS)), texts, texts, texts, st.booleans(), st.one_of(st.none(), st.integers(0, 10**6))
)
def test_a_problem_is_a_document(kind: str, header: str, base: str, text: str, told: bool, wait: int | None) -> None:
    """R21: a refusal is JSON of the length it says, with its status and its flags, and no line of it breaks."""
    detail = text if told or kind not in DETAILS else None
    status, lines, body = problem(kind, header=header, base=base, detail=detail, retry_after=wait)
    said = json.loads(body)
    found = dict(lines)
    assert found[b"content-length"] == b"%d" % len(body)
    assert said["status"] == status == PROBLEMS[kind].status
    assert (said["retryable"], said["safe_new_key"]) == (PROBLEMS[kind].retryable, PROBLEMS[kind].safe_new_key)
    assert said["type"].endswith(kind) and said["title"] == PROBLEMS[kind].title
    assert detail is None or said["detail"] == detail
    assert not {*b"\r\n"} & {*b"".join(name + value for name, value in lines)}


answers = st.one_of(
    octets,
    pieces(b"{", b"}", b'"type":', b'"retryable":true', b'"title":', b'"x:in-progress"', b",", b"null", b"[", b"]"),
)


@bounded
@given(
    st.integers(100, 599),
    st.lists(
        st.tuples(
            st.sampled_from([b"content-type", b"retry-after", b"Idempotent-Replayed", b"via"]),
            st.one_of(octets, st.sampled_from([b"application/problem+json", b"true", b"application/json; x"])),
        ),
        max_size=4,
    ),
    st.one_of(st.none(), answers),
    st.sampled_from(Contract),
)
def test_any_answer_is_judged(status: int, headers: Any, body: bytes | None, contract: Contract) -> None:
    """R36, R37: whatever a server answers, the client comes to a judgment, and nothing but a failure is asked again."""
    problem_of(headers, body)
    judgment = judge(status, headers, body, contract=contract)
    assert judgment.again is Again.NO or status >= 300
    assert str(status) in judgment.reason
