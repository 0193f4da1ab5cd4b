"""Content-Type lines taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.media_type import MediaType, media_type


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"text/plain", MediaType(b"text/plain")),
        (b" Text/PLAIN\t", MediaType(b"text/plain")),
        (b"a/b;c=d", MediaType(b"a/b", ((b"c", b"d"),))),
        (b'a/b ; C="D e;f" ; g=H', MediaType(b"a/b", ((b"c", b"D e;f"), (b"g", b"H")))),
        (b"a/b;;c=d;", MediaType(b"a/b", ((b"c", b"d"),))),
        (b'a/b;c=""', MediaType(b"a/b", ((b"c", b""),))),
        (b"a/b;c=1;c=2", MediaType(b"a/b", ((b"c", b"1"), (b"c", b"2")))),
    ],
)
def test_well_formed_lines(line: bytes, expected: MediaType) -> None:
    """R8: capitals of names, blanks and quotes are spelling; values are kept."""
    assert media_type(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"", b" ", b"text", b"text/", b"/plain", b"text/plain/x", b"text /plain", b"text/plain x", b"a/b,c/d",
        b"a/b;c", b"a/b;c=", b"a/b;=d", b"a/b;c =d", b"a/b; c= d", b'a/b;c="d', b'a/b;c="d\\"e"', b'a/b;c="d"e',
        b"a/b\n", b"a/\xff",
    ],
)  # fmt: skip
def test_malformed_lines(line: bytes) -> None:
    """R8: what is not a media type is none, and its body is taken as sent."""
    assert media_type(line) is None


def test_a_type_without_one_of_its_parameters() -> None:
    """R8: what is left out makes no difference, and everything else does, order and value."""
    kind = media_type(b'multipart/form-data; boundary=x; a="b;c"; d=e')
    assert kind is not None
    assert kind.without(b"boundary") == b'multipart/form-data;a="b;c";d="e"'
    assert kind.values(b"boundary") == [b"x"]
    assert kind.values(b"charset") == []


pieces = st.text("abc; =", max_size=4).map(str.encode)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), pieces), max_size=3).map(tuple), st.data())
def test_two_types_never_share_a_spelling(parameters: tuple[tuple[bytes, bytes], ...], data: st.DataObject) -> None:
    """R8: the one spelling of a type can be read back."""
    kind = MediaType(b"x/y", parameters)
    assert media_type(kind.without(b"c")) == kind


@given(st.text(';=" \t/ab\\,', max_size=40).map(str.encode))
def test_no_line_makes_it_raise(line: bytes) -> None:
    """K: any line is a media type or none."""
    kind = media_type(line)
    assert kind is None or kind.essence == kind.essence.lower()


def test_a_long_line_is_read_in_one_go() -> None:
    """K: a hostile header costs no more than its length: these would take minutes otherwise."""
    for line in (b"a/b;" + b" " * 200_000 + b"\0", b"a/b" + b";" * 200_000 + b"\0", b" " * 200_000, b"a" * 200_000):
        assert media_type(line) is None
