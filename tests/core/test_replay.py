"""Which header lines a replay sends again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.replay import HOP_BY_HOP, PER_EXCHANGE, forgotten, remembered

KEPT = (
    (b"Link", b'<https://a.example/?a=1,2>; rel="next"'),
    (b"Link", b'<https://b.example/>; rel="prev"'),
    (b"content-disposition", b'attachment; filename="a, b.txt"'),
    (b"Expires", b"Mon, 21 Oct 2026 07:28:00 GMT"),
    (b"X-Latin", b"caf\xe9"),
    (b"location", b"/charges/1"),
    (b"ETag", b'"abc"'),
    (b"content-type", b"application/json; charset=utf-8"),
    (b"Retry-After", b"3"),
    (b"content-encoding", b"gzip"),
    (b"empty", b""),
)
COOKIES = (
    (b"Set-Cookie", b"a=1; Expires=Mon, 21 Oct 2026 07:28:00 GMT"),
    (b"set-cookie", b"b=2"),
)


def test_lines_are_kept_one_by_one() -> None:
    """R17, D1, D2, K: count, order and bytes of the lines stay; nothing is joined, split, decoded or renamed."""
    assert remembered(KEPT, forgotten(store_cookies=False)) == KEPT


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP | PER_EXCHANGE))
def test_what_belongs_to_one_exchange_is_not_repeated(name: bytes) -> None:
    """R17, D3: hop-by-hop fields, dates, limits, request ids and challenges are not handed out again."""
    for spelled in (name, name.title(), name.upper()):
        assert remembered((*KEPT, (spelled, b"x"), *KEPT), forgotten(store_cookies=True)) == KEPT + KEPT


@pytest.mark.parametrize(
    "name",
    [
        b"Set-Cookie", b"WWW-Authenticate", b"Date", b"X-Request-Id", b"X-RateLimit-Remaining", b"Connection",
        b"Transfer-Encoding",
    ],
)  # fmt: skip
def test_the_reported_headers_are_among_them(name: bytes) -> None:
    """D3: an old session, challenge, date, request id, limit or framing never comes back by default."""
    assert remembered([(name, b"x")], forgotten(store_cookies=False)) == ()


def test_cookies_by_a_stated_rule() -> None:
    """R17, D1, D3: cookies are left out, unless the policy stores them; then each line is kept as it is."""
    lines = (*KEPT, *COOKIES)
    assert remembered(lines, forgotten(store_cookies=False)) == KEPT
    assert remembered(lines, forgotten(store_cookies=True)) == lines


def test_what_connection_names_goes_with_it() -> None:
    """R17, D3: fields that Connection declares to be hop-by-hop are (RFC 9110, 7.6.1)."""
    lines = (
        (b"X-Hop", b"1"),
        *KEPT,
        (b"Connection", b"close, x-hop"),
        (b"connection", b" X-Other ,"),
        (b"x-other", b"2"),
        (b"x-otherwise", b"3"),
    )
    assert remembered(lines, forgotten(store_cookies=False)) == (*KEPT, (b"x-otherwise", b"3"))


names = st.sampled_from([b"date", b"Link", b"set-cookie", b"connection", b"X-A", b"location"])


@given(st.lists(st.tuples(names, st.sampled_from([b"x-a", b"link, date", b"1"])), max_size=8), st.booleans())
def test_what_is_kept_was_there_in_that_order(lines: list[tuple[bytes, bytes]], cookies: bool) -> None:
    """D1: nothing is made up, moved or doubled, and what was remembered once is remembered the same again."""
    kept = remembered(lines, forgotten(store_cookies=cookies))
    rest = iter(lines)
    assert all(line in rest for line in kept)
    assert remembered(kept, forgotten(store_cookies=cookies)) == kept
    assert cookies or not any(name == b"set-cookie" for name, _ in kept)
