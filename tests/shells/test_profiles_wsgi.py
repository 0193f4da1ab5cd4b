"""Profiles behind the WSGI middleware: what needs more than the key's header reaches core from there too."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults

from twicesafe import PUBLIC, Policy
from twicesafe.stores.memory import MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware

NOW = 784111777.0
A_UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
SENT = "Sun, 06 Nov 1994 08:49:37 GMT"


class Served:
    """An application that counts, under a policy."""

    def __init__(self, policy: Policy) -> None:
        self.runs = 0
        self.safe = IdempotencyMiddleware(self.application, MemoryStore(), scope=PUBLIC, policy=policy)

    def application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.runs += 1
        start_response("201 Created", [("Content-Type", "text/plain"), ("Location", "/things/1")])
        return [b"made"]

    def ask(self, body: bytes = b"{}", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, header lines and body of one request's answer."""
        environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": "/things", "CONTENT_TYPE": "application/json"}
        setup_testing_defaults(environ)
        environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
        environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        began: list[Any] = []
        pieces = self.safe(environ, lambda status, lines, error=None: began.append((status, lines)))
        answer = b"".join(pieces)
        status, lines = began[-1]
        names = [name.lower() for name, _ in lines]
        assert len(names) == len(set(names)), lines
        return int(status.split()[0]), {name.lower(): value for name, value in lines}, answer


def test_azure() -> None:
    """R5, R21: both headers or 400, 412 outside of the window, and every answer says accepted or rejected, once."""
    clock = [NOW]
    served = Served(Policy.profile("azure", clock=lambda: clock[0]))
    both = {"repeatability_request_id": A_UUID, "repeatability_first_sent": SENT}
    told = [served.ask(**both), served.ask(**both)]
    assert served.runs == 1
    assert [(status, lines["repeatability-result"]) for status, lines, _ in told] == [(201, "accepted")] * 2
    for headers in ({"repeatability_request_id": A_UUID}, {"repeatability_first_sent": SENT}):
        status, lines, _ = served.ask(**headers)
        assert (status, lines["repeatability-result"]) == (400, "rejected")
    assert served.ask(b"[]", **both)[0] == 400
    clock[0] += 301
    status, lines, _ = served.ask(**both)
    assert (status, lines["repeatability-result"], served.runs) == (412, "rejected", 1)


def test_square_and_gocardless() -> None:
    """R5, R19: a key in the body, and a duplicate that is refused with the place of the result."""
    square = Served(Policy.profile("square"))
    body = json.dumps({"idempotency_key": "k", "amount": 1}).encode()
    assert [square.ask(body)[0] for _ in range(2)] == [201, 201]
    assert (square.ask()[0], square.runs) == (400, 1)
    gocardless = Served(Policy.profile("gocardless"))
    assert gocardless.ask(idempotency_key="k")[0] == 201
    status, lines, answer = gocardless.ask(idempotency_key="k")
    assert (status, lines["location"], gocardless.runs) == (409, "/things/1", 1)
    assert json.loads(answer)["type"].endswith("already-done")


def test_stripe_and_adyen() -> None:
    """R21: whether to ask again stands in a header of the problem, and the key is echoed, on WSGI too."""
    stripe = Served(Policy.profile("stripe-v1"))
    stripe.ask(idempotency_key="k")
    status, lines, _ = stripe.ask(b"[]", idempotency_key="k")
    assert (status, lines["stripe-should-retry"], stripe.runs) == (400, "false", 1)
    adyen = Served(Policy.profile("adyen"))
    assert [adyen.ask(idempotency_key="k")[1]["idempotency-key"] for _ in range(2)] == ["k", "k"]
    assert adyen.runs == 1
