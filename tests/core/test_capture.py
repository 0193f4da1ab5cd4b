"""The handler's answer, collected: when it may leave, whether it is whole, and whether it is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twicesafe.core.capture import Capture, Progress

HOLD, WHOLE, FLOW = Progress.HOLD, Progress.WHOLE, Progress.FLOW


def length(value: object) -> tuple[bytes, bytes]:
    """A Content-Length line."""
    return b"Content-Length", str(value).encode()


EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


def capture(*headers: tuple[bytes, bytes], limit: int = 10, live: bool = True, status: int = 200) -> Capture:
    """A capture whose answer has started."""
    made = Capture(limit, live=live)
    made.start(status, list(headers))
    return made


def feed(made: Capture, *chunks: bytes, end: bool = True) -> list[Progress]:
    """What each chunk leads to; the last one ends the answer."""
    return [made.body(chunk, more=not end or place < len(chunks) - 1) for place, chunk in enumerate(chunks)]


def test_an_answer_in_one_piece() -> None:
    """I11, D2: status, header lines and body are kept as they came, and held until the answer is whole."""
    made = capture(length(7), (b"X", b"1"), (b"X", b"2"), status=201)
    assert feed(made, b"charged") == [WHOLE]
    assert (made.status, made.headers) == (201, (length(7), (b"X", b"1"), (b"X", b"2")))
    assert made.kept == b"charged" and made.whole and not made.flowing and made.recordable


def test_an_answer_of_known_length_is_held_until_its_end() -> None:
    """I11: in pieces, nothing leaves before the last one."""
    made = capture(length(6))
    assert feed(made, b"ab", b"", b"cd", b"ef") == [HOLD, HOLD, HOLD, WHOLE]
    assert made.kept == b"abcdef" and made.whole


def test_an_empty_answer_is_kept_as_empty() -> None:
    """A3, D6: no body is a body of no bytes, which is kept, and not a body that is not kept."""
    for headers in ((), (length(0),)):
        made = capture(*headers, status=204)
        assert feed(made, b"") == [WHOLE]
        assert made.kept == b"" and made.whole


def test_every_byte_is_kept() -> None:
    """D4: a binary body is kept byte for byte."""
    every = bytes(range(256))
    made = capture(length(512), limit=512)
    feed(made, every, every)
    assert made.kept == every + every


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=8), st.integers(0, 12), st.booleans(), st.booleans())
def test_all_of_it_or_nothing_is_kept(chunks: list[bytes], limit: int, live: bool, declared: bool) -> None:
    """R18, A4: a body is kept whole up to the limit, and not at all above it; however it is cut into chunks."""
    body = b"".join(chunks)
    made = capture(*([length(len(body))] if declared else []), limit=limit, live=live)
    progress = feed(made, *chunks)
    assert progress[-1] is WHOLE and made.whole
    assert made.size == len(body)
    assert made.kept == (body if len(body) <= limit else None)
    assert made.recordable == (len(body) <= limit)
    before = progress[:-1]
    assert WHOLE not in before
    assert sorted(before, key=[HOLD, FLOW].index) == before, "once it flows, it flows"


@pytest.mark.parametrize(("size", "kept"), [(9, True), (10, True), (11, False), (5_000_000, False)])
@pytest.mark.parametrize("live", [True, False])
def test_one_byte_over_the_limit(size: int, kept: bool, live: bool) -> None:
    """R18, A4: the limit itself still fits, one byte more does not, in one chunk as in two."""
    for chunks in ([b"x" * size], [b"x" * (size - 1), b"x"]):
        made = capture(length(size), live=live)
        feed(made, *chunks)
        assert (made.kept is not None) == kept
        assert made.whole


# --- complete or not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "sent", "whole"),
    [(3, b"abc", True), (4, b"abc", False), (2, b"abc", False), (0, b"", True), (1, b"", False)],
)
def test_an_answer_shorter_or_longer_than_it_says_is_not_whole(declared: int, sent: bytes, whole: bool) -> None:
    """D5, K: a body that stops half-way, or runs over, is never taken for a complete answer."""
    made = capture(length(declared))
    assert feed(made, sent) == [WHOLE]
    assert made.whole == whole


def test_an_answer_that_has_not_ended_is_not_whole() -> None:
    """D5, K: without its last chunk an answer is not complete, whatever has come so far."""
    made = capture(length(3))
    feed(made, b"abc", end=False)
    assert not made.whole


def test_not_modified_has_a_length_and_no_body() -> None:
    """R17: a 304 may say how long the body would be, and is whole without it."""
    made = capture(length(512), status=304)
    assert feed(made, b"") == [WHOLE]
    assert made.whole and made.kept == b""


@pytest.mark.parametrize("headers", [(), (length(10**6),), (EVENTS,)])
@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_ends_with_its_head(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """A3, I11: whoever has its head has it all, so the head is held back until the end, however late that is told."""
    made = capture(*headers, status=status)
    assert feed(made, b"", end=False) == [HOLD]
    assert feed(made, b"") == [WHOLE]
    assert made.kept == b""


@pytest.mark.parametrize("value", ["", "+3", "-3", "3.0", "three", "٣", "9" * 5000])
def test_a_length_that_is_none_does_not_count(value: str) -> None:
    """K: a Content-Length nobody can mean neither raises nor makes the answer incomplete."""
    made = capture((b"content-length", value.encode()))
    assert feed(made, b"abc") == [WHOLE]
    assert made.whole


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_body_of_unknown_length_flows_live() -> None:
    """R18, D5: the first chunk lets a stream through, and it is kept all the same if it ends under the limit."""
    made = capture()
    assert feed(made, b"", b"a", b"b", b"c") == [FLOW, FLOW, FLOW, WHOLE]
    assert made.flowing and made.kept == b"abc" and made.whole and made.recordable


def test_a_body_declared_too_large_flows_live() -> None:
    """R18, A4: what cannot be kept anyway is not held back."""
    made = capture(length(11))
    assert feed(made, b"x", b"x" * 10) == [FLOW, WHOLE]
    assert made.kept is None and made.whole


def test_a_body_larger_than_it_said_flows_once_it_is_over_the_limit() -> None:
    """R18: a declared length that turns out wrong does not make memory grow."""
    made = capture(length(4))
    assert feed(made, b"x" * 8, b"x" * 3, b"x") == [HOLD, FLOW, WHOLE]
    assert made.kept is None and not made.whole


def test_inside_a_transaction_a_stream_is_held_back_up_to_the_limit() -> None:
    """R18, R23: the commit comes before the first byte, so a short stream is held until its end."""
    made = capture(live=False)
    assert feed(made, b"abc", b"def") == [HOLD, WHOLE]
    assert made.kept == b"abcdef"
    longer = capture(live=False)
    assert feed(longer, b"x" * 10, b"x", b"x") == [HOLD, FLOW, WHOLE]
    assert longer.kept is None


@pytest.mark.parametrize("live", [True, False])
def test_server_sent_events_flow_at_once(live: bool) -> None:
    """R18, D5: an event stream is never held back, inside a transaction neither, and is marked as not repeatable."""
    made = capture(EVENTS, live=live)
    assert not made.recordable
    assert feed(made, b"data: 1\n\n", b"data: 2\n\n", end=False) == [FLOW, FLOW]
    assert not made.recordable and not made.whole


@pytest.mark.parametrize("line", [b" Text/Event-Stream", b"text/event-stream", b"text/event-stream;charset=utf-8"])
def test_an_event_stream_is_known_by_its_type(line: bytes) -> None:
    """D5: the type counts, in whatever case it is written."""
    assert not capture((b"CONTENT-TYPE", line)).recordable
    assert capture((b"content-type", b"text/plain"), (b"x-ctn-type12", b"text/event-stream")).recordable
