"""Content codings undone, within bounds."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.content_coding import MAX_DECODED, decoded


@given(st.binary(max_size=500))
def test_a_coded_body_is_the_plain_body(body: bytes) -> None:
    """F1: gzip and deflate are undone to the very bytes."""
    assert decoded(b"", body) == decoded(b"identity", body) == body
    assert decoded(b"gzip", gzip.compress(body)) == body
    assert decoded(b"x-gzip", gzip.compress(body, 1)) == body
    assert decoded(b" Deflate\t", zlib.compress(body)) == body


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"compress", b"gzip, gzip", b"gzip,identity", b"\xff"])
def test_other_codings_are_not_undone(coding: bytes) -> None:
    """F1: what the standard library cannot decode is taken as sent."""
    assert decoded(coding, gzip.compress(b"x")) is None


def test_damage_is_not_repaired() -> None:
    """F1: cut, altered, or followed by something else, a coded body is taken as sent."""
    whole = gzip.compress(b"a body of some length " * 20)
    assert decoded(b"gzip", whole[:-1]) is None
    assert decoded(b"gzip", whole[:-5] + b"\0" + whole[-4:]) is None
    assert decoded(b"gzip", whole + whole) is None
    assert decoded(b"gzip", whole + b"x") is None
    assert decoded(b"gzip", b"") is None
    assert decoded(b"deflate", zlib.compress(b"x")[2:-4]) is None


def test_a_bomb_does_not_go_off() -> None:
    """F1: at most MAX_DECODED bytes are made of any body, and that many are."""
    assert decoded(b"gzip", gzip.compress(b"\0" * MAX_DECODED)) == b"\0" * MAX_DECODED
    assert decoded(b"gzip", gzip.compress(b"\0" * (MAX_DECODED + 1))) is None
    assert decoded(b"gzip", gzip.compress(b"\0" * (50 * MAX_DECODED))) is None


@given(st.binary(max_size=100), st.sampled_from([b"gzip", b"deflate", b"identity", b"?"]))
def test_no_body_makes_it_raise(body: bytes, coding: bytes) -> None:
    """K: any bytes under any coding are decoded or taken as sent."""
    found = decoded(coding, body)
    assert found is None or len(found) <= MAX_DECODED
