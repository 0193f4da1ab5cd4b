"""What servers do in many cases."""

from __future__ import annotations

import gzip
import json

from tests.client.scripted import Act, Exchange, answer, problem, redirect

OK = answer(201, json_={"charge": 1})
REPLAY = answer(201, "Idempotent-Replayed: true", json_={"charge": 1})
IN_PROGRESS = problem(409, "in-progress", "Retry-After: 1", retryable=True)
DOWN = answer(503)
BUSY = answer(503, "Retry-After: 2")


def nobody(exchange: Exchange) -> None:
    """No server: the connection is refused. Stands at the beginning or at the end of a case, and is never played."""
    raise AssertionError("a connection came about that was to be refused")


def redirect_elsewhere(status: int, path: str = "/") -> Act:
    """Read, and send the client to another origin."""

    def act(exchange: Exchange) -> None:
        assert exchange.server.elsewhere is not None
        redirect(status, f"{exchange.server.elsewhere.origin}{path}")(exchange)

    return act


def zipped(status: int, *lines: str, json_: object, kind: str = "application/problem+json") -> Act:
    """Read, and answer in a content coding."""
    body = gzip.compress(json.dumps(json_).encode())
    return answer(status, *lines, "Content-Encoding: gzip", f"Content-Type: {kind}", body=body)


def kept_then_reset(exchange: Exchange) -> None:
    """Busy, on a connection that is kept; and when the next request has come by it and was done, it breaks."""
    exchange.read()
    exchange.send(b"HTTP/1.1 503 X\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
    exchange.read()
    exchange.reset()


def half_chunks(exchange: Exchange) -> None:
    """The answer breaks off between two chunks, where only the last one would have said that it is whole."""
    exchange.read()
    # Where the head says that the connection will be closed, Node.js takes its end for the end of the answer.
    exchange.send(b'HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\na\r\n{"charge":\r\n')


def silence_in_head(exchange: Exchange) -> None:
    """The answer begins, and does not get beyond its status."""
    exchange.read()
    exchange.send(b"HTTP/1.1 201 Created\r\n")
    exchange.wait_until_left()


def word_by_word(status: int, body: bytes) -> Act:
    """The whole answer, in many small pieces."""

    def act(exchange: Exchange) -> None:
        exchange.read()
        whole = exchange.head(status, "Content-Type: application/json", f"Content-Length: {len(body)}") + body
        for start in range(0, len(whole), 7):
            exchange.send(whole[start : start + 7])

    return act


def continued(status: int, body: bytes) -> Act:
    """An interim answer that nobody asked for, and then the answer."""

    def act(exchange: Exchange) -> None:
        exchange.read()
        head = exchange.head(status, "Content-Type: application/json", f"Content-Length: {len(body)}")
        exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n" + head + body)

    return act


# --- acts of a server that speaks TLS --------------------------------------------------------------------------------


def reset_in_handshake(exchange: Exchange) -> None:
    """The connection breaks before anything can be said in secret."""
    exchange.wait_for_bytes()
    exchange.reset()


def no_tls(exchange: Exchange) -> None:
    """What answers there does not speak TLS."""
    exchange.wait_for_bytes()
    exchange.send_bare(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    exchange.wait_until_left()


def corrupt_record(exchange: Exchange) -> None:
    """The work is done, and the record that should tell so fails its check."""
    exchange.read()
    exchange.send_bare(b"\x17\x03\x03\x00\x40" + bytes(64))
    exchange.wait_until_left()
