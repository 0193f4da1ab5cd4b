"""Keys, as header lines and as values of fields."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.bounded import bounded, pieces, texts
from twicesafe.core.keys import KeyRule, KeySyntax, check_key, parse_key, plain_key
from twicesafe.errors import InvalidKeyError

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"

lines = pieces(b'"', b"\\", b'\\"', b" ", b"\t", b",", b"a", b"Z9", b"-", b"\x7f", UUID.encode(), UUID.upper().encode())
rules = st.builds(
    lambda syntax, lengths, marks: KeyRule(syntax, *sorted(lengths), punctuation=marks).checked(),
    st.sampled_from(KeySyntax),
    st.tuples(st.integers(1, 255), st.integers(1, 255)),
    st.sampled_from([None, "", "-", "-_ ", '"', "]^\\-"]),
)
keys = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40).filter(
    lambda key: key == key.strip(" ")
)


def quoted(key: str) -> bytes:
    """The key as a string of Structured Fields."""
    return b'"' + key.replace("\\", "\\\\").replace('"', '\\"').encode() + b'"'


@bounded
@given(st.lists(st.one_of(lines, texts), max_size=3), rules)
def test_lines_are_a_key_or_an_error_with_a_name(found: list[bytes | str], rule: KeyRule) -> None:
    """R4: whatever the lines are, they name one key that the rule takes, no key, or are refused as no key."""
    try:
        key = parse_key(found, rule)
    except InvalidKeyError:
        return
    if not found:
        assert key is None
    else:
        assert key is not None
        assert check_key(key, rule) == key


@bounded
@given(lines, rules)
def test_the_quick_test_is_the_whole_reading(line: bytes, rule: KeyRule) -> None:
    """R4: where the quick test takes a line, the whole reading finds the very line as its key."""
    if plain_key(rule)(line):
        assert parse_key([line], rule) == line.decode("ascii")


@bounded
@given(keys, keys, st.sampled_from([b"", b" ", b"\t "]))
def test_bare_and_quoted_are_one_key(key: str, other: str, blank: bytes) -> None:
    """R4: bare, quoted and padded forms of a key are that key; with another one beside it they are refused."""
    rule = KeyRule()
    assert parse_key([blank + quoted(key) + blank], rule) == key
    if not key.startswith('"'):
        assert parse_key([key.encode(), quoted(key)], rule) == key
    try:
        both = parse_key([quoted(key), quoted(other)], rule)
    except InvalidKeyError:
        both = None
    assert both == (key if key == other else None)
