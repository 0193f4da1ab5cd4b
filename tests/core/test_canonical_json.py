"""JSON bodies in their canonical form: what makes no difference, what makes one, and what is left as it was sent."""

from __future__ import annotations

import gzip
import inspect
import json
import sys
import zlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.json_texts import identity, neighbours, spellings, values
from twicesafe.core.canonical_json import MAX_DEPTH, MAX_DIGITS, MAX_EXPONENT, canonical_json
from twicesafe.core.content_coding import MAX_DECODED

JSON = b"application/json"


def form(text: str | bytes) -> bytes | None:
    """The canonical form of a plain body."""
    found = canonical_json(JSON, b"", text.encode("utf-8") if isinstance(text, str) else text)
    return None if found is None else found[1]


# --- what makes no difference ----------------------------------------------------------------------------------------


@given(st.data(), values)
def test_writing_a_value_otherwise_changes_nothing(data: st.DataObject, value: Any) -> None:
    """R8, F2: white space, order of members, escapes and spellings of numbers never make another request."""
    one, other = data.draw(spellings(value)), data.draw(spellings(value))
    assert form(one) is not None
    assert form(one) == form(other)


@given(st.data(), values)
def test_changing_any_value_is_another_form(data: st.DataObject, value: Any) -> None:
    """R8: one leaf, one member or one place changed, and the form is another, however both are written."""
    changed = data.draw(st.sampled_from(list(neighbours(value))))
    assert identity(changed) != identity(value)
    assert form(data.draw(spellings(changed))) != form(data.draw(spellings(value)))


@given(st.data(), values)
def test_the_form_says_all_of_the_value(data: st.DataObject, value: Any) -> None:
    """R8: the value can be read back from the form, so that no two values can share one."""
    found = form(data.draw(spellings(value)))
    assert found is not None
    assert identity(meant(json.loads(found))) == identity(value)


def meant(value: Any) -> Any:
    """What a parsed form stands for: `{"":"15e-1"}` is a number and `{"":{...}}` an object with an empty name."""
    match value:
        case {"": str(number), **others} if not others:
            return Decimal(number)
        case {"": dict(members), **others} if not others:
            return {name: meant(member) for name, member in members.items()}
        case dict():
            return {name: meant(member) for name, member in value.items()}
        case list():
            return [meant(item) for item in value]
    return value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":{"x":1,"y":2}}', '{ "b" : {"y":2,\n"x":1},\t"a": 1 }'),
        ('"\\u00e9"', '"é"'),
        ('"\\ud83d\\ude00"', '"😀"'),
        ('"\\/"', '"/"'),
        ('{"\\u0061":1}', '{"a":1}'),
        ("1", "1.0"),
        ("1", "1e0"),
        ("100", "1E+2"),
        ("1.10", "11e-1"),
        ("0", "-0"),
        ("0", "-0.0e-7"),
        ("0", "0e999999999"),
        ("-5", "-0.5e1"),
        ("1e999999999", "10e999999998"),
        ("1e-999999999", "0.1e-999999998"),
        ("1" + "0" * 5000, "1e5000"),
        ("1" + "0" * MAX_DIGITS, f"1e{MAX_DIGITS}"),
        ("1" + "0" * (MAX_DIGITS - 1), f"1e{MAX_DIGITS - 1}"),
        ("0.1", "0.1000000000000000000000000000000000000000000000000000000"),
    ],
)
def test_one_value_two_spellings(one: str, other: str) -> None:
    """F2, K: these pairs are one request."""
    assert form(one) == form(other) != None  # noqa: E711 - both are parsed


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[1,2]", "[2,1]"),
        ("[]", "{}"),
        ("[]", "[[]]"),
        ("{}", '{"a":null}'),
        ("null", "false"),
        ("1", "true"),
        ("0", "false"),
        ('"1"', "1"),
        ('""', "null"),
        ('"true"', "true"),
        ("0.1", "0.1000000000000000055"),
        ("9007199254740993", "9007199254740992"),
        ("9007199254740993.0", "9007199254740992"),
        ("1" * 4301, "1" * 4300 + "2"),
        ("1e999999999", "1e999999998"),
        ("1e400", "1e401"),
        ("1e-400", "0"),
        ("1", "-1"),
        ("0.5", "-0.5"),
        ('"é"', '"e\u0301"'),
        ("1.5", '"15e-1"'),
        ("1.5", '{"":"15e-1"}'),
        ('{"":1.5}', '{"":"15e-1"}'),
        ('{"":{}}', '{"":{"":{}}}'),
        ('{"":{"":"15e-1"}}', '{"":1.5}'),
    ],
)
def test_two_values_are_two_requests(one: str, other: str) -> None:
    """R8: these pairs differ, although some reader or other would take them for the same."""
    assert form(one) != form(other)


def test_members_are_sorted_by_code_point() -> None:
    """R8: the order of members in the form is that of code points, which every language can compute."""
    assert (
        form('{"\U0001f600":1,"\ufb33":2,"b":3,"B":4,"":5}')
        == '{"":{"":5,"B":4,"b":3,"\ufb33":2,"\U0001f600":1}}'.encode()
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"b":[1,-2.50,1e-7],"a":"\\u00e9\\n\\u007f\\u2028"}',
            '{"a":"é\\n\x7f\u2028","b":[1,{"":"-25e-1"},{"":"1e-7"}]}',
        ),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("12345678901234567890123456789012345678901", '{"":"12345678901234567890123456789012345678901e0"}'),
        ("-1e999999999", '{"":"-1e999999999"}'),
        ('{"":[true,false,null]}', '{"":{"":[true,false,null]}}'),
    ],
)
def test_the_form_is_written_as_promised(text: str, expected: str) -> None:
    """R8: the form is stored in fingerprints, so its bytes are what the documentation says, for ever."""
    assert form(text) == expected.encode()


# --- what is left as it was sent -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"{'a':1}",
        b'{"a":1} x',
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"1e",
        b"NaN",
        b"[Infinity]",
        b'{"a":-Infinity}',
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":{"b":1,"c":2,"b":3}}]',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'{"\\ud800":1}',
        b'"tab\tinside"',
        b'"\xff"',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-16-le"),
        '"\ud800"'.encode("utf-8", "surrogatepass"),
    ],
)
def test_what_is_not_plain_json_is_taken_as_sent(text: bytes) -> None:
    """R8, K: duplicate names, NaN, half surrogates, other encodings and broken JSON are never merged with anything."""
    assert form(text) is None


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_deep_nesting_neither_raises_nor_crashes(opening: str) -> None:
    """K: 100,000 nested arrays are taken as sent."""
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    assert form(opening * 100_000 + "1" + closing * 100_000) is None
    assert form(opening * 100_000) is None


def test_depth_is_limited_by_what_was_sent_and_not_by_who_calls() -> None:
    """R8: whether a body is parsed depends on its levels alone; a retry deep inside an application finds the same."""
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert form(deepest) is not None
    assert form(f"[{deepest}]") is None

    def deep_down(levels: int) -> bytes | None:
        return deep_down(levels - 1) if levels else form(deepest)

    assert deep_down(sys.getrecursionlimit() - len(inspect.stack(0)) - 300) == form(deepest)


def test_a_stack_that_is_used_up_refuses_to_parse() -> None:
    """K: where Python's own recursion limit comes first, the body is taken as sent; nothing is raised."""
    levels = b"[" * 60 + b"]" * 60

    def deep_down(frames: int) -> bytes | None:
        return deep_down(frames - 1) if frames else form(levels)

    free = sys.getrecursionlimit() - len(inspect.stack(0))
    found = [deep_down(free - room) for room in (30, 40, 50, 60, 80, 300)]
    assert set(found) <= {None, levels}
    assert found[-1] == levels


def test_brackets_in_strings_are_no_levels() -> None:
    """R8: a text full of brackets, quotes and backslashes is one level."""
    text = json.dumps(["[{" * 500, '\\"[' * 300, "\\" * 301, ']"', "é["])
    assert form(text) is not None
    for before in ("\\", '"', '\\"', "\\\\"):
        assert form(json.dumps([before, "[{" * 200])) is not None, "a string ends where JSON says"
    assert form(json.dumps([[["[" * 200]]])) == b'[[["' + b"[" * 200 + b'"]]]'


def test_many_brackets_are_not_many_levels() -> None:
    """R8: the limit is on levels, not on how many arrays there are."""
    assert form("[" + ",".join(["[]", "{}"] * 1000) + "]") is not None


def test_long_exponents_are_taken_as_sent() -> None:
    """K: an exponent that nobody means is not computed."""
    assert form("1e" + "9" * MAX_EXPONENT) is not None
    assert form("1e-" + "9" * MAX_EXPONENT) is None
    assert form("1e" + "9" * 5000) is None


def test_a_huge_exponent_costs_what_it_costs_to_write() -> None:
    """K: 1e999999999 is not written out."""
    found = form("[" + ",".join(["1e999999999", "1e4299", f"1e{MAX_DIGITS}"] * 1000) + "]")
    assert found is not None and len(found) < 60_000


@pytest.mark.parametrize("digits", [4300, 4301, 100_000])
def test_long_numbers_neither_raise_nor_round(digits: int) -> None:
    """K: a 4,301-digit number is a number like any other, exact to the last digit."""
    text = "9" * digits
    assert form(text) == b'{"":"' + text.encode() + b'e0"}'
    assert form(f"0.{text}") == b'{"":"' + text.encode() + b'e-%d"}' % digits


# --- to which bodies it applies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (b"application/json", b"application/json"),
        (b"Application/JSON", b"application/json"),
        (b"application/json; charset=utf-8", b"application/json"),
        (b'application/json;charset="UTF-8"', b"application/json"),
        (b"application/json;", b"application/json"),
        (b"application/vnd.api+json", b"application/vnd.api+json"),
        (b"application/merge-patch+json ; charset=utf-8", b"application/merge-patch+json"),
        (b"application/json; profile=A; charset=utf-8", b'application/json;profile="A"'),
    ],
)
def test_the_media_type_is_the_essence(content_type: bytes, kind: bytes) -> None:
    """R8: capitals and charset=utf-8 make no difference; every other parameter does."""
    assert canonical_json(content_type, b"", b"{}") == (kind, b"{}")


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"text/plain",
        b"application/jsonx",
        b"application/json-seq",
        b"application/json, application/json",
        b"application/json; charset=utf-16",
        b"application/json; charset=latin-1",
        b"application/json; charset=utf-8; charset=latin-1",
        b'application/json; x="\\""',
        b"application/json; x",
        b"json",
    ],
)
def test_other_media_types_are_taken_as_sent(content_type: bytes) -> None:
    """R8: what is not JSON in UTF-8 is not parsed as such."""
    assert canonical_json(content_type, b"", b"{}") is None


@pytest.mark.parametrize("encoding", [b"gzip", b"x-gzip", b"GZIP", b" gzip "])
def test_a_gzipped_body_is_the_plain_one(encoding: bytes) -> None:
    """F1: one body, gzip-encoded once and plain once, is one request."""
    body = b'{ "a" : 1 }'
    plain = canonical_json(JSON, b"", body)
    assert plain is not None
    assert canonical_json(JSON, encoding, gzip.compress(body)) == plain
    assert canonical_json(JSON, b"deflate", zlib.compress(body)) == plain
    assert canonical_json(JSON, b"identity", body) == plain


def test_what_cannot_be_decoded_is_taken_as_sent() -> None:
    """F1: broken, unknown or exploding codings are not guessed at."""
    body = b"[" + b" " * MAX_DECODED + b"]"
    assert canonical_json(JSON, b"gzip", gzip.compress(body)) is None
    assert canonical_json(JSON, b"gzip", b"{}") is None
    assert canonical_json(JSON, b"br", b"{}") is None


@given(st.binary(max_size=200), st.sampled_from([b"", b"gzip", b"deflate", b"zstd"]))
def test_any_bytes_are_parsed_or_taken_as_sent(body: bytes, encoding: bytes) -> None:
    """K: no body whatever makes the fingerprint raise."""
    found = canonical_json(JSON, encoding, body)
    assert found is None or found[0] == JSON


@given(st.text(alphabet='[]{}",:\\ue0123dDcC89.-+ \ntrufalsn', max_size=60))
def test_what_is_no_json_is_not_parsed(text: str) -> None:
    """R8: what is no JSON to the standard library is not parsed here."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        assert form(text) is None
