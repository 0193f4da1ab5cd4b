"""Requests that a gateway does not pass on."""

from __future__ import annotations

import re

import pytest

from tests.gateway.scripted import problem_of
from twicesafe.errors import StoreUnavailableError
from twicesafe.gateway import PUBLIC

REFUSED = {
    "length and chunks": (400, "POST / HTTP/1.1", "Content-Length: 3", "Transfer-Encoding: chunked"),
    "chunks and length": (400, "POST / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 3"),
    "two lengths": (400, "POST / HTTP/1.1", "Content-Length: 3", "Content-Length: 4"),
    "a list of lengths": (400, "POST / HTTP/1.1", "Content-Length: 3, 4"),
    "a negative length": (400, "POST / HTTP/1.1", "Content-Length: -1"),
    "a signed length": (400, "POST / HTTP/1.1", "Content-Length: +3"),
    "another coding": (400, "POST / HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
    "chunked twice": (400, "POST / HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "a coding that is nearly one": (400, "POST / HTTP/1.1", "Transfer-Encoding: xchunked"),
    "a folded coding": (400, "POST / HTTP/1.1", "Transfer-Encoding:", " chunked", "Content-Length: 3"),
    "a blank before the colon": (400, "POST / HTTP/1.1", "Content-Length : 3"),
    "two hosts": (400, "POST / HTTP/1.1", "Host: b"),
    "a control character": (400, "POST / HTTP/1.1", "X-A: a\x00b"),
    "a tunnel": (501, "CONNECT a:443 HTTP/1.1"),
    "a socket": (501, "GET / HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "HTTP/1.0": (505, "POST / HTTP/1.0", "Content-Length: 1"),
    "no path": (400, "POST work HTTP/1.1"),
    "a caller who hides": (400, "POST / HTTP/1.1", "X-User-Id: ann", "Connection: close, X-User-Id"),
    "a host that hides": (400, "POST / HTTP/1.1", "Connection: Host"),
    "a key that hides": (400, "POST / HTTP/1.1", "Connection: idempotency-key"),
    "a caller with an underscore": (400, "POST / HTTP/1.1", "X_User_Id: bob"),
    "a key with an underscore": (400, "POST / HTTP/1.1", "idempotency_key: k-2"),
    "a length with an underscore": (400, "POST / HTTP/1.1", "Content_Length: 3"),
    "a coding with an underscore": (400, "POST / HTTP/1.1", "Transfer_Encoding: chunked"),
    "a host with a user": (400, "POST http://ann@b/ HTTP/1.1"),
    "an address that hides": (400, "POST / HTTP/1.1", "Connection: X-Forwarded-For"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_two_servers_could_read_differently_goes_no_further(rig, case):
    """R9: no request passes whose end, host or caller the service might see elsewhere; the connection is closed."""
    status, *lines = REFUSED[case]
    head = "\r\n".join([lines[0], "Host: a", *lines[1:]])
    with rig.connected() as wire:
        wire.send(
            f"{head}\r\nIdempotency-Key: k-1\r\n\r\n".encode("latin-1")
            + b"3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        answered = wire.rest()
    assert rig.service.asked == []
    assert int(answered[9:12]) == status
    assert len(re.findall(rb"HTTP/1\.1 \d{3} ", answered)) == 1


def test_a_refusal_is_a_problem_document(rig):
    """R21: it says what is wrong and repeats nothing of the request."""
    answered = rig.raw(b"GET /secret HTTP/1.0\r\n\r\n", "GET")
    assert rig.service.asked == []
    assert (answered.status, problem_of(answered)) == (505, "not-forwarded")
    assert b"proxy_http_version" in answered.body and b"secret" not in answered.body
    assert answered.values("connection") == ["close"]


@pytest.mark.parametrize("part", ["raw_path", "query_string"])
@pytest.mark.parametrize("character", [b"\xe9", b" ", b"\r\n"])
def test_a_target_that_is_no_target(rig, part, character):
    """R9: a server may be more liberal than HTTP; the gateway is not, and so never fails halfway."""
    sent = []
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "headers": [(b"host", b"a")], "path": "/",
        "raw_path": b"/", "query_string": b"",
    }  # fmt: skip

    async def send(message) -> None:
        sent.append(message)

    rig.front.run(rig.front.gateway({**scope, part: b"/a" + character}, None, send))
    assert (rig.service.asked, sent[0]["status"]) == ([], 400)


def test_options_of_the_whole_server(rig):
    """R2: OPTIONS * is a request like others."""
    rig.set_up(caller=PUBLIC)
    assert rig.ask("OPTIONS", "*", body=b"", user="").status == 201
    assert rig.service.asked[0].start == "OPTIONS * HTTP/1.1"


def test_an_offer_to_upgrade_is_declined(rig):
    """R2: whoever offers HTTP/2 in HTTP/1.1 is answered in HTTP/1.1, body and all."""
    answered = rig.ask(
        "POST", "/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM", body=b"abc", key="k"
    )
    assert answered.status == 201
    assert rig.service.asked[0].body == b"abc" and rig.service.asked[0].values("http2-settings") == []


def test_a_body_over_the_limit(rig):
    """R9: a keyed request has a limit and gets 413; without a key there is none."""
    assert rig.ask(key="k-1", body=b"x" * (1024 * 1024 + 1)).status == 413
    assert rig.service.asked == []
    assert rig.ask(body=b"x" * (1024 * 1024 + 1)).status == 201
    assert len(rig.service.asked[0].body) == 1024 * 1024 + 1


def test_health(rig):
    """R44: the gateway answers for itself and its store; the service is not asked."""
    rig.set_up(health="/healthz")
    healthy = rig.ask("GET", "/healthz", body=b"", user="")
    old = rig.raw(b"GET /healthz HTTP/1.0\r\n\r\n", "GET")

    async def fail() -> None:
        raise StoreUnavailableError("gone")

    rig.store.check_schema = fail
    ill = rig.ask("GET", "/healthz", body=b"", user="")
    assert rig.service.asked == []
    assert (healthy.status, healthy.body, old.status, ill.status) == (200, b"ok\n", 200, 503)
