"""The gate between browser and servers, by hand: what it lets through, what it cuts, and what never happens."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.demo.service import PATIENCE, Demo
from tests.demo.visitor import Visitor

pytestmark = pytest.mark.xdist_group("demo")

AMOUNT = 84_00


@pytest.fixture
def visitor(service: Demo) -> Visitor:
    """One of their own."""
    return Visitor(service)


def test_faults_come_from_the_switches_alone(visitor: Visitor) -> None:
    """R6: what a client writes about itself, or about its fate, is neither believed nor passed on."""
    servers = visitor.service.children()
    answer = visitor.send(visitor.request("safe", "key-1", None, "Demo-Fault: kill", "Demo-Request: 1 2 3"))
    assert visitor.charges("safe") == [AMOUNT]
    assert answer.startswith(b"HTTP/1.1 201")
    assert visitor.service.children() == servers


@pytest.mark.parametrize("lane", ["naive", "safe"])
def test_an_armed_fault_strikes_once(visitor: Visitor, lane: str) -> None:
    """R42: the answer is thrown away after the charge is committed; the next request's is not."""
    visitor.arm("key-1", "lose")
    request = visitor.request(lane, "key-1")
    assert visitor.send(request) == b""
    assert visitor.charges(lane) == [AMOUNT]
    answer = visitor.send(request)
    assert answer.startswith(b"HTTP/1.1 201")
    assert visitor.charges(lane) == ([AMOUNT] if lane == "safe" else [AMOUNT] * 2)
    assert (b"idempotent-replayed: true" in answer) is (lane == "safe")


def test_a_fault_is_one_shoppers_alone(visitor: Visitor) -> None:
    """I7: faults armed for one shopper's key do not strike another who uses the same key."""
    visitor.arm("key-1", "lose")
    other = Visitor(visitor.service)
    assert other.send(other.request("safe", "key-1")).startswith(b"HTTP/1.1 201")
    assert other.charges("safe") == [AMOUNT]


def test_one_key_of_two_shoppers_is_two_intents(visitor: Visitor) -> None:
    """I7, G1: the same key and body of another shopper is another charge, and nobody's answer is replayed to them."""
    other = Visitor(visitor.service)
    request = visitor.request("safe", "key-1")
    assert visitor.send(request).startswith(b"HTTP/1.1 201")
    answer = other.send(request.replace(visitor.shopper.encode(), other.shopper.encode()))
    assert (visitor.charges("safe"), other.charges("safe")) == ([AMOUNT], [AMOUNT])
    assert b"idempotent-replayed" not in answer


def test_many_at_once_are_one_charge(visitor: Visitor) -> None:
    """R10, C1: sixteen requests with one key at the same moment; one charge, and nobody gets a server error."""
    request = visitor.request("safe", "key-1")
    answers: list[bytes] = []
    together = threading.Barrier(16)

    def rival() -> None:
        together.wait(PATIENCE)
        answers.append(visitor.send(request))

    rivals = [threading.Thread(target=rival) for _ in range(16)]
    for thread in rivals:
        thread.start()
    for thread in rivals:
        thread.join(PATIENCE)
    assert visitor.charges("safe") == [AMOUNT]
    assert len(answers) == 16
    assert {answer[9:12] for answer in answers} <= {b"201", b"409"}


def test_a_client_that_hangs_up_changes_nothing(visitor: Visitor) -> None:
    """R14, A1: the work of a client that has gone is finished and recorded; its retry gets the answer."""
    request = visitor.request("safe", "key-1")
    visitor.send(request, hang_up=True)
    for _ in range(100):
        answer = visitor.send(request)
        if not answer.startswith(b"HTTP/1.1 409"):  # the first is at it, which takes a busy machine its time
            break
    assert visitor.charges("safe") == [AMOUNT]
    assert answer.startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize("lane", ["naive", "safe"])
def test_half_a_request_is_none(visitor: Visitor, lane: str) -> None:
    """R9: a body that stops midway charges nothing."""
    with socket.create_connection(("127.0.0.1", visitor.port), timeout=PATIENCE) as connection:
        connection.sendall(visitor.request(lane, "key-1", length=200))
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert visitor.charges(lane) == []


def test_what_is_no_request_is_cut_off(visitor: Visitor) -> None:
    """House: noise, and bodies nobody asked for, end their own connection and no other."""
    for noise in (b"\x16\x03\x01\x02\x00\x01", b"POST / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"):
        assert visitor.send(noise + b"\r\n\r\n") == b""
    assert visitor.send(visitor.request("safe", "key-1", b" " * 200_000)) == b""
    assert visitor.charges("safe") == []
    assert visitor.send(visitor.request("safe", "key-1")).startswith(b"HTTP/1.1 201")


def test_a_key_is_required(visitor: Visitor) -> None:
    """R3: the safe endpoint answers 400 to a request without a key, and charges nothing."""
    request = visitor.request("safe", "key-1").replace(b"Idempotency-Key: key-1\r\n", b"")
    assert visitor.send(request).startswith(b"HTTP/1.1 400")
    assert visitor.charges("safe") == []


@pytest.mark.parametrize("lane", ["naive", "safe"])
def test_a_request_without_a_name_is_answered(visitor: Visitor, lane: str) -> None:
    """R21: what a client left out is said in an answer, and no reason to reset its connection."""
    request = visitor.request(lane, "key-1").replace(b"X-Request-Id: by-hand\r\n", b"")
    assert visitor.send(request).startswith(b"HTTP/1.1 422")
    assert visitor.charges(lane) == []


@pytest.mark.parametrize("cups", [b"false", b'"2"', b"1e400"])
def test_an_order_of_something_else_is_refused(visitor: Visitor, cups: bytes) -> None:
    """R15: what the document does not take as a number is none, and nothing is charged for it."""
    body = b'{"cart": "8e03978e-40d5-43e8-bc93-6894a57f9324", "espresso": 1, "moka": %b}' % cups
    assert visitor.send(visitor.request("safe", "key-1", body)).startswith(b"HTTP/1.1 422")
    assert visitor.charges("safe") == []


def test_a_held_payment_goes_on_when_it_is_let_go(visitor: Visitor) -> None:
    """R42: a payment at work waits for whoever checks the demo, and is made once, however often it is asked for."""
    visitor.arm("key-1", "hold")
    request, name = visitor.request("safe", "key-1"), f"held-{visitor.shopper}"
    request = request.replace(b"by-hand", name.encode())
    answers: list[bytes] = []
    paying = threading.Thread(target=lambda: answers.append(visitor.send(request)))
    paying.start()
    while visitor.ask("GET", f"/demo/held?request={name}") != 204:
        """Each time it waits for some seconds by itself."""
    assert visitor.charges("safe") == [] and answers == []
    assert visitor.ask("POST", f"/demo/go?request={name}") == 204
    paying.join(PATIENCE)
    assert answers[0].startswith(b"HTTP/1.1 201")
    assert visitor.send(request).startswith(b"HTTP/1.1 201")
    assert visitor.charges("safe") == [AMOUNT]


def test_the_documents_are_served(visitor: Visitor) -> None:
    """R20: the OpenAPI document of each lane is at its address, and that of the safe one says what its keys are."""
    for lane in ("naive", "safe"):
        asked = f"GET /{lane}/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        head, _, body = visitor.send(asked).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert (b"x-idempotency" in body) is (lane == "safe")
