"""The gateway's command in front of an Express application that knows nothing of it, under uvicorn and granian."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.gateway.running import express, free_port, gateway, until
from tests.gateway.scripted import PATIENCE, problem_of
from twicesafe.gateway.application import POLICY

BODY = b'{"apples": 3}'
LARGE = bytes(range(256)) * 40_000


class Shop:
    """The two of them. `orders` are the effects."""

    def __init__(self, folder, *options: str) -> None:
        self.express = express(folder, free_port())
        self.gateway = gateway(
            folder, self.express.port, "--response-limit", "16777216", "--body-limit", "16777216", *options
        )

    def start(self):
        self.express.start()
        self.gateway.start()
        return self

    def stop(self) -> None:
        self.gateway.end()
        self.express.end()

    def post(self, path: str, what: str, *lines: str, body: bytes = BODY, key: str | None = None, **more):
        return self.gateway.ask(
            "POST", f"{path}?what={what}", "Content-Type: application/json", *lines, body=body,
            key=what if key is None else key, **more,
        )  # fmt: skip

    def orders(self, what: str) -> list[dict[str, str]]:
        return json.loads(self.express.ask("GET", f"/orders?what={what}", body=b"").body)

    def open(self, gate: str) -> None:
        assert self.express.ask("POST", f"/gates/{gate}", body=b"").status == 204

    def until_ordered(self, what: str) -> None:
        until(lambda: self.orders(what))

    def settled(self, path: str, what: str, **more):
        """Ask until no attempt is under way: a dead one is, until its lease has ended."""
        found = []

        def ask() -> bool:
            found.append(self.post(path, what, **more))
            return found[-1].status != 409 or problem_of(found[-1]) != "in-progress"

        until(ask)
        return found[-1]


@pytest.fixture(scope="module", params=["uvicorn", "granian"])
def shop(request, tmp_path_factory):
    made = Shop(
        tmp_path_factory.mktemp(request.param), "--server", request.param, "--store-cookies", "--lease", "2s"
    ).start()
    yield made
    made.stop()


def test_an_order_is_placed_once(shop):
    """R10, R17, R25: two requests, one order; the replay has Express's own lines; Express saw a derived key."""
    first, again = shop.post("/orders", "once"), shop.post("/orders", "once")
    (order,) = shop.orders("once")
    assert order["user"] == "ann" and order["key"] != "once" and len(order["key"]) == 36
    assert json.loads(first.body) == json.loads(again.body) == {"n": 1, "of": {"apples": 3}}
    assert again.values("idempotent-replayed") == ["true"]
    for name in ("set-cookie", "location", "content-type", "etag", "x-powered-by"):
        assert first.values(name) == again.values(name) != []
    assert len(again.values("set-cookie")) == 2
    assert len(first.values("date")) == len(again.values("date")) == 1


def test_sixteen_at_once_place_one_order(shop):
    """C1, R42: sixteen connections send one request at once: one order, 201 or 409 for everybody."""
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: shop.post("/orders", "rivals"), range(16)))
    assert len(shop.orders("rivals")) == 1
    assert {answered.status for answered in answers} <= {201, 409}


def test_ten_megabytes_of_every_value(shop):
    """D1, R18: a body of ten megabytes goes there and back, and back again, byte for byte."""
    first, again = (shop.post("/bytes", "large", body=LARGE) for _ in range(2))
    assert len(shop.orders("large")) == 1
    assert first.body == again.body == LARGE
    assert (first.status, again.values("idempotent-replayed")) == (200, ["true"])


def test_another_body_is_refused(shop):
    """I4: the same key with another body places no order."""
    shop.post("/orders", "changed")
    refused = shop.post("/orders", "changed", body=b'{"apples": 4}')
    assert len(shop.orders("changed")) == 1
    assert (refused.status, problem_of(refused)) == (422, "key-reused")


def test_express_says_no(shop):
    """R15: what Express refuses is an answer; without a key each request gets its own."""
    first, again = (shop.post("/nowhere", "no") for _ in range(2))
    assert (first.status, again.status, first.body == again.body) == (404, 404, True)
    assert again.values("idempotent-replayed") == ["true"]
    assert [json.loads(shop.post("/orders", "no", key="").body)["n"] for _ in range(2)] == [1, 2]


def test_a_caller_goes_away(shop):
    """A7, R14: the socket is closed while Express works; the order is placed once and its answer replayed."""
    with shop.gateway.connected() as wire:
        wire.send(
            b"POST /slow?what=gone HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n"
            b"X-User-Id: ann\r\nContent-Type: application/json\r\nIdempotency-Key: gone\r\n\r\n"
        )
        shop.until_ordered("gone")
    assert shop.post("/slow", "gone", body=b"").status == 409
    shop.open("gone")
    again = shop.settled("/slow", "gone", body=b"")
    assert len(shop.orders("gone")) == 1
    assert (again.status, again.values("idempotent-replayed")) == (201, ["true"])


@pytest.mark.parametrize("key", ["", "Idempotency-Key: {}\r\n"])
def test_events_flow(shop, key):
    """D5: an event arrives while Express still waits to make the next; abandoned, Express learns of it."""
    what = f"events-{bool(key)}"
    head = f"POST /events?what={what} HTTP/1.1\r\nHost: shop.example\r\nX-User-Id: ann\r\nContent-Length: 0\r\n"
    with shop.gateway.connected() as wire:
        wire.send((head + key.format(what) + "\r\n").encode())
        wire.until(b"data: one\n\n")
        shop.open(what)
        wire.until(b"data: two\n\n")
    what += "-abandoned"
    with shop.gateway.connected() as wire:
        wire.send((head.replace("what=", f"what={what}&x=") + key.format(what) + "\r\n").encode())
        wire.until(b"data: one\n\n")
    assert shop.express.ask("GET", f"/closed?what={what}", body=b"").status == 204


def test_half_an_answer(shop):
    """I6: Express breaks its answer off: it is broken for the caller as well, and unknown from then on."""
    broken = shop.post("/broken", "broken")
    again = shop.post("/broken", "broken")
    assert len(shop.orders("broken")) == 1
    assert broken.broken and (again.status, problem_of(again)) == (409, "outcome-unknown")


def test_keyed_work_is_sent_again(shop, rig):
    """R13, R25: a service that does a key's work once is asked again under the derived key: one order, one answer."""
    rig.set_up(POLICY.but(effects="keyed"), url=f"http://127.0.0.1:{shop.express.port}")
    what = f"known-{shop.gateway.port}"
    first, again = (rig.ask("POST", f"/known?what={what}", key=what) for _ in range(2))
    assert len(shop.orders(what)) == 1
    assert (first.status, problem_of(first)) == (502, "upstream-failed")
    assert (again.status, json.loads(again.body)) == (201, {"n": 1})


def test_express_dies(shop):
    """R13, R15: down, nothing was sent and the key is free; killed at work, the outcome is unknown."""
    shop.express.end(signal.SIGKILL)
    assert problem_of(shop.post("/orders", "down")) == "upstream-unreachable"
    shop.express.start()
    assert shop.post("/orders", "down").status == 201
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(lambda: shop.post("/slow", "torn"))
        shop.until_ordered("torn")
        shop.express.end(signal.SIGKILL)
        assert (lost.result().status, problem_of(lost.result())) == (502, "upstream-failed")
    shop.express.start()
    assert problem_of(shop.post("/slow", "torn")) == "outcome-unknown"
    assert shop.orders("torn") == []


def test_the_gateway_dies(shop):
    """I6, R13: killed while Express works, an opaque order is placed once and unknown, by whatever gateway is asked."""
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(lambda: shop.post("/slow", "killed"))
        shop.until_ordered("killed")
        shop.gateway.end(signal.SIGKILL)
        assert lost.exception(PATIENCE) is not None
    shop.gateway.start()
    again = shop.settled("/slow", "killed")
    assert len(shop.orders("killed")) == 1
    assert (again.status, problem_of(again)) == (409, "outcome-unknown")


def test_a_stop_waits_for_requests(shop):
    """R14: SIGTERM takes no new requests, lets the open ones end, and ends the gateway with success."""
    with ThreadPoolExecutor(2) as threads:
        answered = threads.submit(lambda: shop.post("/slow", "drained"))
        shop.until_ordered("drained")
        ended = threads.submit(shop.gateway.end)
        until(lambda: not shop.gateway.listens())
        assert not answered.done() and not ended.done()
        shop.open("drained")
        assert answered.result().status == 201
        assert ended.result() == 0
    shop.gateway.start()
    assert shop.post("/slow", "drained").values("idempotent-replayed") == ["true"]
    assert len(shop.orders("drained")) == 1
