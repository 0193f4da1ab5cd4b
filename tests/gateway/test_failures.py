"""A service that does not answer, or not to the end: what is told, what is kept, and what is sent again."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.gateway.scripted import PATIENCE, answer, problem_of, received
from twicesafe import Effects, Policy
from twicesafe.errors import StoreUnavailableError
from twicesafe.gateway import Timeouts
from twicesafe.gateway.application import POLICY, RERUN

KEYED = POLICY.but(effects="keyed", rerun=RERUN[Effects.KEYED])


def nowhere() -> str:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        return f"http://127.0.0.1:{gone.getsockname()[1]}"


@pytest.mark.parametrize("url", ["http://nobody.invalid", "refused", "tls"])
def test_what_was_never_sent_leaves_the_key_free(rig, url):
    """R15, R35: no address, no connection, no TLS: 503, nothing happened, and the key may even name another request."""
    rig.service.take_over = lambda wire: wire.send(b"what is TLS?")
    rig.set_up(url={"refused": nowhere(), "tls": rig.service.url.replace("http", "https")}.get(url, url))
    answered = rig.ask(key="k-1")
    assert rig.service.asked == []
    assert (answered.status, problem_of(answered)) == (503, "upstream-unreachable")
    assert answered.values("retry-after") == ["1"]
    rig.service.take_over = None
    rig.set_up()
    assert rig.ask(key="k-1", body=b"other").status == 201
    assert [asked.body for asked in rig.service.asked] == [b"other"]


def test_under_a_derived_key_the_request_stays_the_same(rig):
    """I4, R25: after an attempt that may have got through, one that was never sent does not free the key."""
    rig.service.script = lambda wire: wire.socket.close()
    rig.set_up(KEYED)
    assert rig.ask(key="k-1").status == 502
    rig.set_up(KEYED, url=nowhere())
    assert [rig.ask(key="k-1").status for _ in range(2)] == [503, 503]
    rig.service.script = lambda wire: wire.send(answer())
    rig.set_up(KEYED)
    assert rig.ask(key="k-1", body=b"other").status == 422
    assert rig.ask(key="k-1").status == 201
    assert [asked.body for asked in rig.service.asked] == [b"x", b"x"]


def test_no_connection_became_free(rig):
    """R15: where the service has all the connections that it may have, nothing was sent."""
    rig.set_up(connections=1, timeouts=Timeouts(connect=0.5))
    reached, go_on = threading.Event(), threading.Event()
    rig.service.script = lambda wire: (reached.set(), go_on.wait(PATIENCE), wire.send(answer()))
    with rig.connected() as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        assert reached.wait(PATIENCE)
        refused = rig.ask(key="k-1")
        go_on.set()
        assert received(wire).status == 201
    assert (refused.status, problem_of(refused)) == (503, "upstream-unreachable")
    assert rig.ask(key="k-1").status == 201


def silent(wire) -> None:
    """Never answers. The gateway gives up."""
    assert wire.ended()


def cut(wire) -> None:
    wire.send(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf")
    wire.socket.close()


def patience(status: int) -> Timeouts:
    """Short where the gateway has to lose it."""
    return Timeouts(read=0.2 if status == 504 else PATIENCE)


FAILURES = {
    "silence": (silent, 504),
    "closed": (lambda wire: wire.socket.close(), 502),
    "reset": (lambda wire: wire.reset(), 502),
    "half a head": (lambda wire: (wire.send(b"HTTP/1.1 201 Cre"), wire.socket.close()), 502),
    "half a body": (cut, 502),
    "no HTTP": (lambda wire: (wire.send(b"220 smtp ready\r\n\r\n"), wire.socket.close()), 502),
    "101": (lambda wire: wire.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), 502),
    "a status beyond HTTP's": (lambda wire: wire.send(answer(status=b"999 Denied")), 502),
    "no body in time": (
        lambda wire: (wire.send(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n"), silent(wire)),
        504,
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_lost_answer_to_opaque_work_is_unknown(rig, failure):
    """I6, A3, R13: once something was sent nobody knows: 502 or 504 for the first caller, then outcome-unknown."""
    rig.service.script, status = FAILURES[failure]
    rig.set_up(timeouts=patience(status))
    first = rig.ask(key="k-1")
    again = rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert (first.status, problem_of(first)) == (status, "upstream-failed")
    assert (again.status, problem_of(again)) == (409, "outcome-unknown")
    assert rig.told == ["outcome.unknown", "upstream.failed", "outcome.unknown"]


@pytest.mark.parametrize("failure", ["silence", "reset", "half a body"])
def test_a_lost_answer_to_keyed_work_is_asked_for_again(rig, failure):
    """R13, R25: the next attempt is sent under the same derived key, and another request under it never is."""
    rig.service.script, status = FAILURES[failure]
    rig.set_up(KEYED, timeouts=patience(status))
    first = rig.ask(key="k-1")
    rig.service.script = lambda wire: wire.send(answer())
    rig.set_up(KEYED)
    assert rig.ask(key="k-1", body=b"other").status == 422
    again, replayed = rig.ask(key="k-1"), rig.ask(key="k-1")
    assert [asked.body for asked in rig.service.asked] == [b"x", b"x"]
    assert len({asked.value("idempotency-key") for asked in rig.service.asked}) == 1
    assert (first.status, problem_of(first)) == (status, "upstream-failed")
    assert (again.status, replayed.status, replayed.values("idempotent-replayed")) == (201, 201, ["true"])


@pytest.mark.parametrize("failure", FAILURES)
def test_without_a_key_a_failure_is_told(rig, failure):
    """R21: a request without a key is answered 502 or 504 too, and whatever began is seen to be broken."""
    rig.service.script, status = FAILURES[failure]
    rig.set_up(timeouts=patience(status))
    answered = rig.ask()
    assert len(rig.service.asked) == 1
    if "body" in failure:
        assert answered.status == 201 and answered.broken
    else:
        assert (answered.status, problem_of(answered)) == (status, "upstream-failed")


@pytest.mark.parametrize("key", ["", "k-1"])
@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked", b"Content-Length: 2000000"])
def test_a_broken_body_is_never_whole(rig, framing, key):
    """D5, I6: an answer that flows and breaks off has no end for its caller either; under a key it is unknown."""
    chunk = b"3\r\nabc\r\n" if b"chunked" in framing else b"abc"
    rig.service.script = lambda wire: (
        wire.send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + chunk),
        wire.socket.close(),
    )
    answered = rig.ask(key=key)
    assert (answered.status, answered.body, answered.broken) == (200, b"abc", True)
    if key:
        assert problem_of(rig.ask(key=key)) == "outcome-unknown"
        assert len(rig.service.asked) == 1
        rig.set_up(KEYED)
        assert rig.ask(key="k-2").broken
        assert problem_of(rig.ask(key="k-2")) == "outcome-unknown"
        assert len(rig.service.asked) == 2


@pytest.mark.parametrize("status", [b"502 Bad Gateway", b"504 Gateway Timeout"])
def test_another_gateway_behind_this_one(rig, status):
    """R13, R15: what it says when it got no answer leaves open what was done: unknown, or keyed and run again."""
    rig.service.script = lambda wire: wire.send(answer(b"sorry", status=status))
    assert rig.ask(key="k-1").status == int(status[:3])
    assert problem_of(rig.ask(key="k-1")) == "outcome-unknown"
    assert len(rig.service.asked) == 1
    rig.set_up(KEYED)
    assert [rig.ask(key="k-2").status for _ in range(2)] == [int(status[:3])] * 2
    assert len(rig.service.asked) == 3


def test_what_a_status_means_is_policy(rig):
    """R15: 503 is released, 500 is stored, and other statuses may be released by choice."""
    rig.service.script = lambda wire: wire.send(answer(status=b"503 Service Unavailable"))
    assert [rig.ask(key="k-1").status for _ in range(2)] == [503, 503]
    assert len(rig.service.asked) == 2
    rig.service.script = lambda wire: wire.send(answer(status=b"500 Oh"))
    assert [rig.ask(key="k-2").status for _ in range(2)] == [500, 500]
    assert len(rig.service.asked) == 3
    rig.set_up(Policy(released=frozenset({500})))
    assert [rig.ask(key="k-3").status for _ in range(2)] == [500, 500]
    assert len(rig.service.asked) == 5


def test_an_answer_before_the_request_was_read(rig):
    """F2, R15: a service that refuses a large body early and closes is understood, and 413 leaves the key free."""

    def refuse(wire) -> None:
        wire.send(answer(b"too large", b"Connection: close", status=b"413 Content Too Large"))
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(65536):
            pass

    rig.service.take_over = refuse
    assert [rig.ask(key="k-1", body=b"x" * 900_000).status for _ in range(2)] == [413, 413]
    assert rig.service.connections == 2


def test_an_idle_connection_that_the_service_closed(rig):
    """R35: a connection seen to be closed is not used; the request goes out on a new one, once."""
    closed = threading.Event()
    rig.service.script = lambda wire: (wire.send(answer()), wire.socket.close(), closed.set())
    for number in range(3):
        assert rig.ask(key=f"k-{number}").status == 201
        assert closed.wait(PATIENCE)
        closed.clear()
    assert (rig.service.connections, len(rig.service.asked)) == (3, 3)


def test_an_idle_connection_has_its_time(rig):
    """R35: a connection is not used again after the time for which the service is trusted to keep it."""
    rig.set_up(keep_alive=0.0)
    assert [rig.ask(key=f"k-{number}").status for number in range(3)] == [201] * 3
    assert rig.service.connections == 3


def test_without_a_store_nothing_is_sent(rig):
    """R22, I2: a store that fails means 503 and no request to the service; requests without a key go on."""

    async def fail(*_: object) -> None:
        raise StoreUnavailableError("gone")

    rig.store.claim = fail
    answered = rig.ask(key="k-1")
    assert rig.service.asked == []
    assert (answered.status, problem_of(answered)) == (503, "store-unavailable")
    assert rig.ask().status == 201
