"""What a transport's trace proves, event by event, and what clips its time-outs."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from twicesafe.client import Sent
from twicesafe.client._wire import AsyncWire, ClippedTimeouts, Wire, in_time_for_the_pool


class Traced(NamedTuple):
    """The part of a traced request that matters."""

    method: bytes


POST, CONNECT = {"request": Traced(b"POST")}, {"request": Traced(b"CONNECT")}

COURSES = [
    ("nothing", [], Sent.MAYBE),
    ("connecting", [("connection.connect_tcp.started", {})], Sent.NO),
    ("refused", [("connection.connect_tcp.started", {}), ("connection.connect_tcp.failed", {})], Sent.NO),
    ("TLS", [("connection.connect_tcp.complete", {}), ("connection.start_tls.failed", {})], Sent.NO),
    ("HTTP/1.1", [("http11.send_request_headers.started", POST)], Sent.YES),
    ("HTTP/2", [("http2.send_connection_init.started", {}), ("http2.send_request_headers.started", POST)], Sent.YES),
    ("HTTP/2, not yet", [("http2.send_connection_init.started", {})], Sent.NO),
    ("tunnel", [("http11.send_request_headers.started", CONNECT)], Sent.NO),
    (
        "through it",
        [("http11.send_request_headers.started", CONNECT), ("http11.send_request_headers.started", POST)],
        Sent.YES,
    ),
    ("broke off", [("http11.send_request_headers.started", POST), ("http11.response_closed.started", {})], Sent.YES),
]


@pytest.mark.parametrize(("events", "sent"), [course[1:] for course in COURSES], ids=[c[0] for c in COURSES])
def test_what_the_trace_proves(events: list[tuple[str, dict[str, Any]]], sent: Sent) -> None:
    """R35: sent from the first event that can put a byte on the wire; not sent only where the transport says so."""
    wire, awire = Wire({}), AsyncWire({})
    for event, info in events:
        wire(event, info)
        asyncio.run(awire(event, info))
    assert wire.sent(never_connected=False) is awire.sent(never_connected=False) is sent


def test_who_says_that_it_had_no_connection_sent_nothing() -> None:
    """R35: unless it had sent before."""
    wire = Wire({})
    assert wire.sent(never_connected=True) is Sent.NO
    wire("http11.send_request_headers.started", POST)
    assert wire.sent(never_connected=True) is Sent.YES


def test_the_wire_is_left_alone_once_it_has_told() -> None:
    """R40: after the first byte the caller's own trace has its place back, and an unwatched request is not traced."""
    seen: list[str] = []
    extensions: dict[str, Any] = {"trace": lambda event, info: seen.append(event)}
    own = extensions["trace"]
    wire = Wire(extensions)
    assert extensions["trace"] is wire
    wire("http11.send_request_headers.started", POST)
    assert extensions["trace"] is own and seen == ["http11.send_request_headers.started"]
    unwatched: dict[str, Any] = {}
    Wire(unwatched)("http11.send_request_headers.started", POST)
    assert unwatched == {}


def test_timeouts_shrink_with_the_time_that_is_left() -> None:
    """R39: each phase gets the smaller of its own time-out and what is left when it begins, and never 0."""
    now = [0.0]
    timeouts = ClippedTimeouts({"connect": 5.0, "read": 1.0, "write": None}, 4.0, lambda: now[0])
    assert [timeouts.get(name) for name in ("connect", "read", "write", "pool")] == [4.0, 1.0, 4.0, 4.0]
    now[0] = 3.5
    assert [timeouts["connect"], timeouts["read"], timeouts.get("pool", 9.0)] == [0.5, 0.5, 0.5]
    now[0] = 10.0
    assert 0 < timeouts.get("read") <= 0.001
    timeouts.release()
    assert [timeouts.get(name) for name in ("connect", "read", "write", "pool")] == [5.0, 1.0, None, None]


@pytest.mark.parametrize(
    ("own", "seconds", "pool"),
    [
        (None, 10.0, 9.9),
        (None, 1.0, 0.9),
        (None, 0.1, 0.09),
        (None, 0.0005, 0.001),
        (20.0, 10.0, 9.9),
        (0.3, 10.0, 0.3),
    ],
)
def test_the_pool_gives_up_before_anybody_interrupts_it(own: float | None, seconds: float, pool: float) -> None:
    """R35: that nobody had a connection proves that nothing was sent; an interruption says nothing."""
    timeouts = in_time_for_the_pool({"read": None, "pool": own}, seconds)
    assert timeouts == {"read": None, "pool": pytest.approx(pool)}
