"""Keys: how they are written, whose they are, what is looked up, and what is derived from them."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from twicesafe.core.keys import (
    MAX_KEY_LENGTH,
    MAX_SCOPE_LENGTH,
    PUBLIC,
    KeyRule,
    KeySyntax,
    check_key,
    derive,
    derived_key,
    key_hint,
    parse_key,
    scoped_key,
)
from twicesafe.errors import ConfigurationError, InvalidKeyError, ScopeError

OPAQUE = KeyRule()
UUIDS = KeyRule(KeySyntax.UUID)
A_UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"

printable = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
keys = st.builds(
    lambda first, middle, last: first + middle + last,
    printable,
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40),
    printable,
)
scopes = st.one_of(st.just(PUBLIC), st.text(min_size=1, max_size=40))
operations = st.one_of(st.none(), st.text(max_size=40))


def quoted(key: str) -> str:
    """The key as a structured-field string."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- how a key is written --------------------------------------------------------------------------------------------


@given(keys)
@example('a"b')
@example("back\\slash")
def test_quoted_and_bare_are_one_key(key: str) -> None:
    """R4: the structured-field string of a key names the same key as its bare form."""
    assume(not key.startswith('"'))
    assert parse_key([key.encode()], OPAQUE) == parse_key([quoted(key).encode()], OPAQUE) == key


@given(keys)
def test_every_key_can_be_quoted(key: str) -> None:
    """R4: every key of the published format survives being written as a structured-field string."""
    assert parse_key([quoted(key)], OPAQUE) == key


@given(keys)
@example("x" * 255)
def test_a_canonical_key_is_its_own_canonical_form(key: str) -> None:
    """R4: checking a checked key changes nothing, in either syntax."""
    once = check_key(key, OPAQUE)
    assert check_key(once, OPAQUE) == once == key


@pytest.mark.parametrize("line", [b"  abc\t", b"abc", "abc", b'"abc"', b' "abc" '])
def test_blanks_around_the_field_do_not_count(line: bytes | str) -> None:
    """R4: white space around a header field's value belongs to HTTP, not to the key."""
    assert parse_key([line], OPAQUE) == "abc"


def test_no_line_is_no_key() -> None:
    """R3, G6: a request without the header has no key, which is not an error here."""
    assert parse_key([], OPAQUE) is None


@pytest.mark.parametrize("line", [b"", b" ", b"\t \t", b'""', b'"  "', ""])
def test_an_empty_key_is_an_error_and_never_no_key(line: bytes | str) -> None:
    """R4, G6: an empty or blank value is refused; it neither runs unprotected nor shares one constant key."""
    with pytest.raises(InvalidKeyError) as refusal:
        parse_key([line], OPAQUE)
    assert (refusal.value.status, refusal.value.problem) == (400, "key-invalid")


@pytest.mark.parametrize("value", [None, 0, b"bytes"])
def test_a_key_that_is_not_text_is_refused(value: object) -> None:
    """G6: None, 0 and bytes given as a key are refused by name of their type."""
    with pytest.raises(InvalidKeyError, match=type(value).__name__):
        check_key(value, OPAQUE)  # type: ignore[arg-type]
    if not isinstance(value, bytes):
        with pytest.raises(InvalidKeyError, match=type(value).__name__):
            parse_key([value], OPAQUE)  # type: ignore[list-item]


@pytest.mark.parametrize(
    "line",
    [
        "schlüssel".encode(),
        "schlüssel",
        b"tab\tinside",
        b"line\nbreak",
        b"nul\0inside",
        b"del\x7f",
        b"\xff\xfe",
        "non\u00a0breaking",
        b'" leading"',
        b'"trailing "',
    ],
)
def test_only_printable_ascii_without_blanks_at_the_ends(line: bytes | str) -> None:
    """R4, G5: controls and non-ASCII characters are refused wherever they stand, and blanks at the ends."""
    with pytest.raises(InvalidKeyError):
        parse_key([line], OPAQUE)


@pytest.mark.parametrize("line", [b'"open', b'"a"b"', b'"\\x"', b'"', b'"abc"; p=1', b'"a", "b"', b'"tr\\"'])
def test_a_broken_string_is_refused(line: bytes) -> None:
    """R4: what begins with a quote is a structured-field string or an error."""
    with pytest.raises(InvalidKeyError, match="structured-field string"):
        parse_key([line], OPAQUE)


@pytest.mark.parametrize("length", [1, 2, 254, 255])
def test_lengths_within_the_limits_are_taken_whole(length: int) -> None:
    """R4, G5: a key of up to 255 characters is accepted and never cut."""
    key = "".join(chr(0x21 + (i * 37) % 0x5E) for i in range(length))
    assert parse_key([quoted(key)], OPAQUE) == key


@pytest.mark.parametrize("length", [256, 257, 5000])
def test_over_long_keys_are_refused(length: int) -> None:
    """R4, G5: a longer key is refused before anything is looked up, however random its characters are."""
    key = "".join(chr(0x23 + (i * 37) % 0x38) for i in range(length))
    with pytest.raises(InvalidKeyError, match=f"{length} characters"):
        parse_key([key.encode()], OPAQUE)


def test_length_is_counted_after_unquoting() -> None:
    """R4: quotes and backslashes of the carrier do not use up the key's length."""
    assert parse_key([quoted('"' * 255)], OPAQUE) == '"' * 255
    rule = KeyRule(min_length=3, max_length=4)
    assert parse_key([b'"abcd"'], rule) == "abcd"
    for line in (b'"ab"', b"abcde"):
        with pytest.raises(InvalidKeyError, match="3 to 4"):
            parse_key([line], rule)


def test_two_lines_with_one_key_are_one_key() -> None:
    """R4: an intermediary that doubles the line changes nothing, whatever form the second one has."""
    assert parse_key([b"abc", b'"abc"', b" abc "], OPAQUE) == "abc"


@pytest.mark.parametrize("lines", [[b"abc", b"abd"], [b"abc", b""], [b"abc", b'"ab'], [b"abc", b"ABC"]])
def test_two_lines_with_different_keys_are_refused(lines: list[bytes]) -> None:
    """R4: nobody can tell which of two keys was meant, so neither is taken."""
    with pytest.raises(InvalidKeyError):
        parse_key(lines, OPAQUE)


@given(st.uuids(), st.booleans(), st.booleans())
def test_a_uuid_is_compared_in_lower_case(uuid: UUID, upper: bool, quote: bool) -> None:
    """R4: where the syntax is UUID, capital digits and quotes change nothing."""
    text = str(uuid).upper() if upper else str(uuid)
    assert parse_key([quoted(text) if quote else text], UUIDS) == str(uuid)


@pytest.mark.parametrize(
    "text",
    [
        "not-a-uuid",
        A_UUID.replace("-", ""),
        "{" + A_UUID + "}",
        "urn:uuid:" + A_UUID,
        A_UUID + "0",
        A_UUID[:-1],
        A_UUID.replace("e", "g"),
        A_UUID.replace("8", "٨"),
    ],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    """R4: where the syntax is UUID, only the hyphenated form is one."""
    with pytest.raises(InvalidKeyError):
        parse_key([text], UUIDS)


def test_opaque_keys_differ_by_case() -> None:
    """R4: opaque keys are compared character by character."""
    assert parse_key([b"Abc"], OPAQUE) != parse_key([b"abc"], OPAQUE)


@given(st.text(min_size=9, max_size=300), st.sampled_from([OPAQUE, UUIDS]))
def test_a_refusal_never_repeats_the_key(text: str, rule: KeyRule) -> None:
    """R22: whatever is sent as a key is either taken or refused, and a refusal does not quote it."""
    try:
        key = parse_key([text], rule)
    except InvalidKeyError as error:
        message = str(error)
    else:
        message = ""
        assert key is not None and key.isascii() and len(key) <= MAX_KEY_LENGTH
    assert text not in message


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(line: bytes) -> None:
    """G5: no header line makes the parser raise anything but its own error."""
    try:
        key = parse_key([line], OPAQUE)
    except InvalidKeyError:
        return
    assert key is not None and check_key(key, OPAQUE) == key


@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        (KeyRule(min_length=0), "min_length"),
        (KeyRule(min_length=-1), "min_length"),
        (KeyRule(min_length=9, max_length=8), "max_length"),
        (KeyRule(max_length=256), "max_length"),
        (KeyRule(max_length=None), "max_length"),  # type: ignore[arg-type]
        (KeyRule(min_length="1"), "min_length"),  # type: ignore[arg-type]
        (KeyRule(syntax="guid"), "syntax"),  # type: ignore[arg-type]
        (KeyRule(syntax=None), "syntax"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_key_rule_is_refused_by_name(rule: KeyRule, setting: str) -> None:
    """B1: a key rule that cannot be meant is refused where it is made, and the message names the setting."""
    with pytest.raises(ConfigurationError, match=setting):
        rule.checked()


def test_a_syntax_may_be_given_as_text() -> None:
    """R4: "uuid" as a string is the UUID syntax and not, silently, no check at all."""
    rule = KeyRule(syntax="uuid").checked()  # type: ignore[arg-type]
    assert rule.syntax is KeySyntax.UUID
    with pytest.raises(InvalidKeyError):
        parse_key([b"anything"], rule)


# --- whose it is -----------------------------------------------------------------------------------------------------


@given(st.tuples(scopes, keys, operations), st.tuples(scopes, keys, operations))
@example(("ab", "c", None), ("a", "bc", None))
@example(("a", "b", None), ("a", "b", ""))
@example((PUBLIC, "ab", None), ("a", "b", None))
@example(("a", "bo", "c"), ("a", "b", "oc"))
def test_no_two_identities_collide(one: tuple, other: tuple) -> None:
    """R7, I7: two tuples of scope, key and operation have one digest only if they are equal part by part."""
    assert (scoped_key(*one).digest == scoped_key(*other).digest) == (one == other)


@given(scopes, keys, operations)
def test_the_digest_is_the_identity(scope: object, key: str, operation: str | None) -> None:
    """R7: the look-up value has 32 bytes however long the parts are, and is the same on every machine."""
    found = scoped_key(scope, key, operation)  # type: ignore[arg-type]
    assert len(found.digest) == 32
    assert found == scoped_key(scope, key, operation)  # type: ignore[arg-type]


def test_the_longest_identity_is_no_longer_in_the_store() -> None:
    """G5: the longest scope with the longest key makes a look-up value like any other, and nothing is cut."""
    longest = scoped_key("t" * MAX_SCOPE_LENGTH, "k" * MAX_KEY_LENGTH)
    assert len(longest.digest) == 32
    assert longest.digest != scoped_key("t" * MAX_SCOPE_LENGTH, "k" * (MAX_KEY_LENGTH - 1)).digest
    assert longest.digest != scoped_key("t" * (MAX_SCOPE_LENGTH - 1), "k" * MAX_KEY_LENGTH).digest
    assert scoped_key("😀" * MAX_SCOPE_LENGTH, "k").scope == "😀" * MAX_SCOPE_LENGTH


@pytest.mark.parametrize("scope", [None, "", 0, False, 7, b"user", "u" * (MAX_SCOPE_LENGTH + 1), object(), ["u"], {}])
def test_nobody_is_no_scope(scope: object) -> None:
    """R6, G1: an identity that is missing, empty or no text is refused instead of shared by everybody who has none."""
    with pytest.raises(ScopeError, match="PUBLIC") as refusal:
        scoped_key(scope, "key")  # type: ignore[arg-type]
    assert refusal.value.problem == "caller-unknown"


def test_public_is_said_and_seen() -> None:
    """R6: the shared scope has a name of its own and is no user's."""
    assert repr(PUBLIC) == "PUBLIC"
    assert scoped_key(PUBLIC, "key").scope == ""
    assert scoped_key(PUBLIC, "key").digest != scoped_key("PUBLIC", "key").digest


def test_stored_digests_never_change() -> None:
    """R7: these values are in databases; a release that computes others loses every key."""
    assert scoped_key("user_1", A_UUID).digest.hex() == GOLDEN["user"]
    assert scoped_key(PUBLIC, "k").digest.hex() == GOLDEN["public"]
    assert scoped_key("user_1", A_UUID, "charge").digest.hex() == GOLDEN["operation"]


GOLDEN = {
    "user": "6db60906c1be61f5a873d1204ec5c94eecd1795eadfb418141b27aeaa18728c6",
    "public": "86df0f1f2b6a443557c8471cb5d8fd3339d3c6b4011995e53227d0751bc7eaaf",
    "operation": "efac79570a2709f884b9aea5668b8ea66d2321f9c2f04653c9f6e7fd2f715949",
}


@given(keys)
def test_a_hint_tells_at_most_four_characters(key: str) -> None:
    """R22: what operators and logs see of a key is its last four characters, and nothing of a short one."""
    hint = key_hint(key)
    assert hint == ("…" + key[-4:] if len(key) >= 16 else "…")
    assert scoped_key("user", key).hint == hint


# --- what is derived -------------------------------------------------------------------------------------------------

digests = st.binary(min_size=32, max_size=32)


@given(digests, st.text(max_size=60))
def test_a_derived_key_is_a_uuid_of_our_own_kind(digest: bytes, call: str) -> None:
    """R25: a downstream key has the form that every provider takes, a UUID of version 8."""
    text = derive(digest, call)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)
    assert UUID(text).version == 8
    assert text == derive(digest, call)
    assert check_key(text, UUIDS) == text


@given(st.tuples(digests, st.text(max_size=20)), st.tuples(digests, st.text(max_size=20)))
@example((b"\0" * 32, "a"), (b"\0" * 31 + b"\1", "a"))
@example((b"\0" * 32, "charge"), (b"\0" * 32, "charge "))
def test_calls_and_callers_never_share_a_derived_key(one: tuple[bytes, str], other: tuple[bytes, str]) -> None:
    """R25: the derived key is the same only for the same record and the same call."""
    assert (derive(*one) == derive(*other)) == (one == other)


def test_derived_keys_never_change() -> None:
    """R25, I8: these keys are at providers; a release that derives others charges twice."""
    digest = bytes.fromhex(GOLDEN["user"])
    assert derive(digest, "charge") == GOLDEN_DERIVED["charge"]
    assert derive(digest, "refund") == GOLDEN_DERIVED["refund"]


GOLDEN_DERIVED = {
    "charge": "0a457bd7-823b-8c97-88fc-3b622cb0a464",
    "refund": "926e3168-1afa-84a1-8364-1bd075a13571",
}


names = st.text(min_size=1, max_size=12)
parts = st.lists(st.one_of(st.text(min_size=1, max_size=8), st.integers(), st.uuids()), min_size=1, max_size=3)


@given(st.tuples(names, parts), st.tuples(names, parts))
@example(("a", ["bc"]), ("ab", ["c"]))
@example(("a", ["b", "c"]), ("a", ["bc"]))
@example(("a", [7]), ("a", ["7"]))
def test_named_intents_never_share_a_key(one: tuple[str, list], other: tuple[str, list]) -> None:
    """R1, R32, R33: a key made of an intent's own name is the same only for the same name and the same parts."""
    same = (one[0], [str(part) for part in one[1]]) == (other[0], [str(part) for part in other[1]])
    assert (derived_key(one[0], *one[1]) == derived_key(other[0], *other[1])) == same
    assert check_key(derived_key(one[0], *one[1]), UUIDS)


@pytest.mark.parametrize(
    "call",
    [
        ("charge",), ("", 1), (None, 1), (7, 1), ("charge", None), ("charge", ""), ("charge", 1, ""), ("charge", True),
        ("charge", 1.5), ("charge", b"x"), ("charge", []), ("charge", "\ud800"), ("\ud800", 1), ("charge", 10**5000),
    ],
    ids=range(14),
)  # fmt: skip
def test_an_intent_without_an_identity_gets_no_key(call: tuple) -> None:
    """R1, G6: what is missing is refused, or every intent without an id would share one key."""
    with pytest.raises(InvalidKeyError):
        derived_key(*call)


def test_keys_of_named_intents_never_change() -> None:
    """R33, I8: after a restart, on another machine, by the next release, it is the same key."""
    assert derived_key("renewal", "sub_123", "2026-10") == "907641ac-ffb3-88fd-93ea-ff2d9a554318"
