"""Streams, and callers who go away."""

from __future__ import annotations

import threading

import pytest

from tests.gateway.scripted import PATIENCE, answer, received

HEAD = "POST /jobs HTTP/1.1\r\nHost: shop.example\r\nX-User-Id: ann\r\n{}Content-Length: 1\r\n\r\nx"
KEY = "Idempotency-Key: k-1\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Steps:
    """A service that waits for the test between its steps, and tells it of the caller's end."""

    def __init__(self, *steps: bytes) -> None:
        self.steps = steps
        self.reached, self.go_on, self.closed = threading.Event(), threading.Semaphore(0), threading.Event()

    def __call__(self, wire) -> None:
        self.reached.set()
        for step in self.steps:
            assert self.go_on.acquire(timeout=PATIENCE)
            wire.send(step)
        if wire.ended():
            self.closed.set()


@pytest.mark.parametrize("kind", [b"text/event-stream", b"text/plain"])
@pytest.mark.parametrize("key", ["", KEY])
def test_an_answer_flows(rig, key, kind):
    """D5, R18: each piece reaches the caller while the service still makes the next one."""
    steps = rig.service.script = Steps(
        b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n",
        b"3\r\ntwo\r\n",
        b"0\r\n\r\n",
    )
    with rig.connected() as wire:
        wire.send(HEAD.format(key).encode())
        steps.go_on.release()
        wire.until(b"\r\n\r\n")
        assert wire.exactly(8) == b"3\r\none\r\n"
        steps.go_on.release()
        assert wire.exactly(8) == b"3\r\ntwo\r\n"
        steps.go_on.release()
        assert wire.exactly(5) == b"0\r\n\r\n"


def test_a_request_flows(rig):
    """R9: without a key the service has the first piece of a body while its caller still makes the next one."""
    pieces = []
    arrived = threading.Event()

    def read(wire) -> None:
        wire.head()
        pieces.append(wire.exactly(3))
        arrived.set()
        pieces.append(wire.exactly(3))
        wire.send(answer())

    rig.service.take_over = read
    with rig.connected() as wire:
        wire.send(b"POST /jobs HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 6\r\n\r\nabc")
        assert arrived.wait(PATIENCE)
        wire.send(b"def")
        assert received(wire).status == 201
    assert pieces == [b"abc", b"def"]


def test_without_a_key_a_hang_up_reaches_the_service(rig):
    """A7: the caller goes away before there is an answer, and the gateway closes its connection to the service."""
    steps = rig.service.script = Steps()
    with rig.connected() as wire:
        wire.send(HEAD.format("").encode())
        assert steps.reached.wait(PATIENCE)
    assert steps.closed.wait(PATIENCE)


def test_without_a_key_an_abandoned_stream_is_closed(rig):
    """A7: the caller goes away in the middle of an endless answer, and the service learns of it."""
    steps = rig.service.script = Steps(EVENTS + b"3\r\none\r\n")
    with rig.connected() as wire:
        wire.send(HEAD.format("").encode())
        steps.go_on.release()
        wire.until(b"one")
    assert steps.closed.wait(PATIENCE)


def test_under_a_key_a_hang_up_changes_nothing(rig):
    """A7, R14: the caller goes away; the service is not disturbed, its answer is recorded and replayed."""
    steps = rig.service.script = Steps(answer(b"after all"))
    with rig.connected() as wire:
        wire.send(HEAD.format(KEY).encode())
        assert steps.reached.wait(PATIENCE)
    assert rig.ask(key="k-1").status == 409
    assert not steps.closed.is_set()
    steps.go_on.release()
    rig.drained()
    again = rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert (again.status, again.body, again.values("idempotent-replayed")) == (201, b"after all", ["true"])


def test_events_that_nobody_reads_are_closed(rig):
    """R14, R18: events are not recorded, so that under a key too the service learns that their reader has gone."""
    steps = rig.service.script = Steps(EVENTS + b"3\r\none\r\n")
    with rig.connected() as wire:
        wire.send(HEAD.format(KEY).encode())
        steps.go_on.release()
        wire.until(b"one")
    assert steps.closed.wait(PATIENCE)
    rig.drained()
    again = rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert again.status == 200 and b"result-not-kept" in again.body
    assert "outcome.unknown" not in rig.told


def test_half_a_request_is_half_a_request(rig):
    """H1, R9: under a key it never reaches the service; without one the service sees that it broke off."""
    with rig.connected() as wire:
        wire.send(HEAD.format(KEY).encode().replace(b"Length: 1", b"Length: 5"))
    heads, begun, broken = [], threading.Event(), threading.Event()

    def read(wire) -> None:
        heads.append(wire.head())
        begun.set()
        if wire.exactly(1) == b"x" and wire.ended():
            broken.set()

    rig.service.take_over = read
    with rig.connected() as wire:
        wire.send(HEAD.format("").encode().replace(b"Length: 1", b"Length: 5"))
        assert begun.wait(PATIENCE)
    assert broken.wait(PATIENCE)
    assert len(heads) == 1
