"""Keys of rules that name their punctuation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_keys import quoted
from twicesafe.core.keys import KeyRule, parse_key, plain_key
from twicesafe.errors import ConfigurationError, InvalidKeyError


@pytest.mark.parametrize(
    ("punctuation", "key"), [("-_ ", "a b_c-9"), ("_.:-", "A.b:c"), ("", "abc"), ("]^\\", "a]^\\")]
)
def test_a_rule_may_name_the_punctuation_of_its_keys(punctuation: str, key: str) -> None:
    """R4: letters, digits and the named characters are taken, bare and quoted; blanks at the ends never are."""
    rule = KeyRule(punctuation=punctuation).checked()
    assert parse_key([key.encode()], rule) == parse_key([quoted(key)], rule) == key
    assert plain_key(rule)(key.encode())
    assert parse_key([b" a "], rule) == "a" and not plain_key(rule)(b" a")
    with pytest.raises(InvalidKeyError):
        parse_key([b'" a"'], rule)


@pytest.mark.parametrize(("punctuation", "key"), [("-_ ", "a.b"), ("-", "a_b"), ("", "a-b"), ("-", "a b"), ("^", "a]")])
def test_other_punctuation_is_refused(punctuation: str, key: str) -> None:
    """R4: a character that the rule does not name is refused, and the message says which ones it takes, not the key."""
    rule = KeyRule(punctuation=punctuation)
    with pytest.raises(InvalidKeyError, match="letters, digits") as refusal:
        parse_key([key.encode()], rule)
    assert key not in str(refusal.value)
    assert not plain_key(rule)(key.encode())


@given(st.binary(max_size=12), st.sampled_from(["", "-", '"', "-_ ", "]^\\-", "!~"]))
def test_a_plain_key_is_what_would_be_parsed(line: bytes, punctuation: str) -> None:
    """R4: where the quick test holds, the whole reading gives the same key."""
    rule = KeyRule(max_length=9, punctuation=punctuation)
    if plain_key(rule)(line):
        assert parse_key([line], rule) == line.decode()


@pytest.mark.parametrize("punctuation", ["a", "0", "é", "\n", 1, ["-"]])
def test_punctuation_is_printable_and_no_letter(punctuation: object) -> None:
    """R4: a wrong setting is refused where it is made."""
    with pytest.raises(ConfigurationError, match="punctuation"):
        KeyRule(punctuation=punctuation).checked()  # type: ignore[arg-type]
