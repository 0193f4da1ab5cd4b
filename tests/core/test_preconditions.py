"""Preconditions: how they are written, which holds, and which one counts where there are several."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.preconditions import ETag, Precondition, Tags, etag, refusal, require_change
from twicesafe.errors import (
    ConfigurationError,
    PreconditionError,
    PreconditionFailedError,
    PreconditionInvalidError,
    PreconditionRequiredError,
)

A, B, WEAK_A = ETag("a"), ETag("b"), ETag("a", weak=True)
NOVEMBER = datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
SECOND = timedelta(seconds=1)

opaque = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0xFF).filter(lambda c: c != '"' and not "\x7f" <= c < "\x80")
)
tags = st.builds(ETag, opaque, st.booleans())


def holds(wanted: Precondition, current: Any, modified: datetime | None = None) -> bool:
    """Whether the change may be made."""
    try:
        wanted.check(current, modified=modified)
    except PreconditionFailedError:
        return False
    return True


# --- entity tags -----------------------------------------------------------------------------------------------------


@given(tags)
def test_a_tag_is_read_as_it_was_written(tag: ETag) -> None:
    """R31: what goes into the ETag header comes back from If-Match as the same tag."""
    assert etag(str(tag)) == tag
    assert Precondition.of([("If-Match", str(tag))]).match == Tags(False, (tag,))


@pytest.mark.parametrize(
    ("one", "other", "strong", "weak"),
    [
        (ETag("1", True), ETag("1", True), False, True),
        (ETag("1", True), ETag("2", True), False, False),
        (ETag("1", True), ETag("1"), False, True),
        (ETag("1"), ETag("1"), True, True),
    ],
)
def test_the_two_comparisons(one: ETag, other: ETag, strong: bool, weak: bool) -> None:
    """R31: the table of RFC 9110, 8.8.3.2."""
    assert (one.is_strongly(other), one.is_weakly(other)) == (strong, weak)
    assert (other.is_strongly(one), other.is_weakly(one)) == (strong, weak)


@pytest.mark.parametrize("current", ["abc", "", '"a', 'a"', 'w/"a"', '"a b"', '"a""', True, 1.0, b'"a"', ETag("a b")])
def test_what_is_no_tag_is_a_setting(current: object) -> None:
    """R31: a bare text is refused where it is made: as a tag it would match nothing, and every change would fail."""
    with pytest.raises(ConfigurationError):
        etag(current)  # type: ignore[arg-type]


def test_a_version_is_a_tag() -> None:
    """R31: the number of a version column is its strong entity tag."""
    assert str(etag(7)) == '"7"'
    assert holds(Precondition.of({"If-Match": '"7"'}), 7)
    assert not holds(Precondition.of({"If-Match": '"7"'}), 8)


# --- how they are written --------------------------------------------------------------------------------------------


@given(st.lists(tags, min_size=1, max_size=5), st.sampled_from([",", ", ", " ,\t", ",,", " , , "]))
def test_a_list_of_tags(listed: list[ETag], between: str) -> None:
    """R31: empty elements and white space do not count, and a comma inside of quotes parts nothing."""
    text = between.join(str(tag) for tag in listed)
    for written in (text, f" {text} ", f",{text},"):
        assert Precondition.of({"If-Match": written}).match == Tags(False, tuple(listed))
    assert Precondition.of([("if-match", str(tag)) for tag in listed]).match == Tags(False, tuple(listed))


@pytest.mark.parametrize(
    "headers",
    [
        {"If-None-Match": "*"},
        {"IF-NONE-MATCH": " * "},
        [("if-none-match", "*")],
        [(b"if-none-match", b"*")],
        [(b"If-None-Match", b"*"), (b"accept", b"\xff")],
    ],
)
def test_headers_of_any_framework(headers: Any) -> None:
    """R31: a mapping or pairs, text or bytes, names in any case."""
    assert Precondition.of(headers) == Precondition(none_match=Tags(True, ()))


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize(
    "text",
    ["", " ", ",", "abc", "1", "'a'", '"a', 'a"', '"a" "b"', '"a", b', '*, "a"', '"a", *', "**", 'w/"a"', 'W/ "a"',
     "W/a", '"a\x00b"', '"a\x7f"', '"a";b'],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(name: str, text: str) -> None:
    """R31: a change that was to be conditional is never made unconditionally; the message says how tags are written."""
    with pytest.raises(PreconditionInvalidError, match="in quotes") as refused:
        Precondition.of({name: text})
    assert (refused.value.status, refused.value.problem) == (400, "precondition-invalid")


@given(st.text(max_size=30))
def test_nothing_in_a_header_raises_anything_else(text: str) -> None:
    """R31: any text is a precondition, or is refused as one."""
    for name in ("If-Match", "If-None-Match", "If-Unmodified-Since", "If-Modified-Since"):
        try:
            found = Precondition.of({name: text})
        except PreconditionInvalidError:
            continue
        assert isinstance(found, Precondition)


@pytest.mark.parametrize("text", [DATE, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"])
def test_dates_have_three_forms(text: str) -> None:
    """R31: RFC 9110, 5.6.7."""
    assert Precondition.of({"If-Unmodified-Since": text}).unmodified_since == NOVEMBER


@pytest.mark.parametrize("lines", [["yesterday"], ["Sun, 99 Nov 1994 08:49:37 GMT"], ["9" * 5000], [DATE, DATE], [""]])
def test_a_date_that_cannot_be_read_is_ignored(lines: list[str]) -> None:
    """R31: RFC 9110, 13.1.4; but then nothing is there of what an operation may require."""
    pairs = [("If-Unmodified-Since", line) for line in lines]
    assert Precondition.of(pairs) == Precondition()
    with pytest.raises(PreconditionRequiredError):
        Precondition.of(pairs, required=True)


def test_a_precondition_may_be_required() -> None:
    """R31: a change without one is 428; If-Modified-Since is none, for it only asks whether to read."""
    for headers in ({}, {"If-Modified-Since": DATE}):
        with pytest.raises(PreconditionRequiredError) as refused:
            Precondition.of(headers, required=True)
        assert (refused.value.status, refused.value.problem) == (428, "precondition-required")
    for name, text in (("If-Match", '"a"'), ("If-None-Match", "*"), ("If-Unmodified-Since", DATE)):
        assert Precondition.of({name: text}, required=True) != Precondition(required=True)


# --- which holds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "current", "expected"),
    [
        ("If-Match", '"a"', A, True),
        ("If-Match", '"b", "a"', A, True),
        ("If-Match", '"b"', A, False),
        ("If-Match", '"a"', WEAK_A, False),
        ("If-Match", 'W/"a"', A, False),
        ("If-Match", 'W/"a"', WEAK_A, False),
        ("If-Match", '"a"', None, False),
        ("If-Match", "*", A, True),
        ("If-Match", "*", WEAK_A, True),
        ("If-Match", "*", None, False),
        ("If-None-Match", "*", None, True),
        ("If-None-Match", "*", A, False),
        ("If-None-Match", "*", WEAK_A, False),
        ("If-None-Match", '"a"', None, True),
        ("If-None-Match", '"a"', A, False),
        ("If-None-Match", 'W/"a"', A, False),
        ("If-None-Match", '"a"', WEAK_A, False),
        ("If-None-Match", '"b", "c"', A, True),
    ],
)
def test_tags(name: str, text: str, current: ETag | None, expected: bool) -> None:
    """R31: If-Match compares strongly, If-None-Match weakly; `*` is anything that is there."""
    assert holds(Precondition.of({name: text}), current) is expected


@pytest.mark.parametrize(
    ("modified", "expected"),
    [
        (NOVEMBER, True),
        (NOVEMBER - SECOND, True),
        (NOVEMBER + SECOND, False),
        (NOVEMBER + timedelta(microseconds=999_999), True),
        (NOVEMBER.astimezone(timezone(timedelta(hours=5))), True),
        (None, True),
    ],
)
def test_unmodified_since(modified: datetime | None, expected: bool) -> None:
    """R31: to the second, as HTTP dates are; ignored where nobody knows when it was modified."""
    assert holds(Precondition.of({"If-Unmodified-Since": DATE}), A, modified) is expected


def test_a_date_that_nobody_compares_is_no_precondition() -> None:
    """R31: where one is required, a date does not pass a check that knows of versions only."""
    wanted = Precondition.of({"If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}, required=True)
    with pytest.raises(PreconditionRequiredError):
        wanted.check(4)
    with pytest.raises(PreconditionFailedError):
        wanted.check(4, modified=datetime(1994, 11, 6, 8, 49, 38, tzinfo=UTC))
    wanted.check(4, modified=datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC))
    Precondition.of({"If-None-Match": '"4"'}, required=True).check(5)
    assert Precondition.of({"If-None-Match": '"4"'}, required=True).not_modified(4)


def test_a_time_without_a_zone_is_a_setting() -> None:
    """R31: a local time would be compared with another one."""
    with pytest.raises(ConfigurationError, match="time zone"):
        Precondition.of({"If-Unmodified-Since": DATE}).check(A, modified=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("current", [None, A, 1])
def test_without_a_precondition_everything_holds(current: Any) -> None:
    """R31: a request that says nothing of the state is for any state."""
    assert holds(Precondition.of({}), current, NOVEMBER)


# --- which counts ----------------------------------------------------------------------------------------------------


def test_a_tag_counts_before_a_date() -> None:
    """R31: RFC 9110, 13.2.2: where there is If-Match, If-Unmodified-Since does not count, either way."""
    later = NOVEMBER + SECOND
    assert holds(Precondition.of({"If-Match": '"a"', "If-Unmodified-Since": DATE}), A, later)
    assert not holds(Precondition.of({"If-Match": '"b"', "If-Unmodified-Since": DATE}), A, NOVEMBER)


def test_two_that_both_count_must_both_hold() -> None:
    """R31: RFC 9110, 13.2.2: after If-Match, or If-Unmodified-Since, comes If-None-Match."""
    both = {"If-Match": '"a", "b"', "If-None-Match": '"b"'}
    assert holds(Precondition.of(both), A)
    assert not holds(Precondition.of(both), B)
    dated = {"If-Unmodified-Since": DATE, "If-None-Match": '"b"'}
    assert holds(Precondition.of(dated), A, NOVEMBER)
    assert not holds(Precondition.of(dated), A, NOVEMBER + SECOND)
    assert not holds(Precondition.of(dated), B, NOVEMBER)


def test_a_change_does_not_mind_what_only_reads_ask() -> None:
    """R31: If-Modified-Since is for GET and HEAD."""
    assert holds(Precondition.of({"If-Modified-Since": DATE}), A, NOVEMBER - SECOND)


@pytest.mark.parametrize(
    ("headers", "current", "modified", "expected"),
    [
        ({"If-None-Match": '"a"'}, A, None, True),
        ({"If-None-Match": 'W/"a"'}, A, None, True),
        ({"If-None-Match": '"b"'}, A, None, False),
        ({"If-None-Match": "*"}, A, None, True),
        ({"If-None-Match": "*"}, None, None, False),
        ({"If-Modified-Since": DATE}, A, NOVEMBER, True),
        ({"If-Modified-Since": DATE}, A, NOVEMBER + SECOND, False),
        ({"If-Modified-Since": DATE}, A, None, False),
        ({"If-Modified-Since": DATE}, None, NOVEMBER, False),
        ({"If-None-Match": '"b"', "If-Modified-Since": DATE}, A, NOVEMBER, False),
        ({"If-None-Match": '"a"', "If-Modified-Since": DATE}, A, NOVEMBER + SECOND, True),
        ({"If-Match": '"a"', "If-None-Match": '"a"'}, A, None, True),
        ({}, A, NOVEMBER, False),
    ],
)
def test_whether_a_reader_has_it_already(
    headers: dict[str, str], current: ETag | None, modified: datetime | None, expected: bool
) -> None:
    """R31: a GET is answered 304 by If-None-Match, or by If-Modified-Since where there is no tag."""
    assert Precondition.of(headers).not_modified(current, modified=modified) is expected


def test_a_read_may_have_a_condition_that_fails() -> None:
    """R31: If-Match on a GET that does not hold is 412, before anything is said of 304."""
    with pytest.raises(PreconditionFailedError):
        Precondition.of({"If-Match": '"b"', "If-None-Match": '"a"'}).not_modified(A)


# --- conditional statements, answers ---------------------------------------------------------------------------------


def test_a_conditional_statement_that_changed_nothing() -> None:
    """R31: no row is a failed precondition, one or more are none; a driver that does not count is a setting."""
    require_change(1)
    require_change(2)
    with pytest.raises(PreconditionFailedError) as failed:
        require_change(0)
    assert (failed.value.status, failed.value.problem) == (412, "precondition-failed")
    with pytest.raises(ConfigurationError):
        require_change(-1)


@pytest.mark.parametrize(
    "error", [PreconditionFailedError("why"), PreconditionRequiredError("why"), PreconditionInvalidError("why")]
)
def test_a_refusal_is_a_problem_document(error: PreconditionError) -> None:
    """R21, R31: the same request is not to be sent again, and the document says why and nothing of anybody's state."""
    status, headers, body = refusal(error, base="https://example.com/problems/")
    document = json.loads(body)
    assert status == document["status"] == error.status
    assert headers["Content-Type"] == "application/problem+json"
    assert document["type"] == f"https://example.com/problems/{error.problem}"
    assert (document["detail"], document["retryable"]) == ("why", False)
    assert "safe_new_key" not in document
