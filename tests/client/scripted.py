"""A real server on loopback that does what a script says, an act for each connection on which something is said, and
counts what it fully read."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from tests.client.certificates import Certificate, showing


class Hit(NamedTuple):
    """One request that arrived whole: what a careless server would have charged for."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of a header line, by its name in lower case."""
        return next((value for line, value in self.headers if line == name), None)

    @property
    def key(self) -> str | None:
        return self.header("idempotency-key")

    @property
    def attempt(self) -> str | None:
        return self.header("twicesafe-attempt")


SHOWN_TO_PAGES = (
    "Access-Control-Allow-Origin: *",
    "Access-Control-Expose-Headers: Date, Idempotent-Replayed, Location, Retry-After, Via",
)
"""What a browser needs in an answer before it shows it to a page from elsewhere."""


class Turn:
    """What one act has come to. `settled` is set when it falls silent, and when it is over."""

    def __init__(self) -> None:
        self.settled = threading.Event()
        self.silent = False


class Exchange:
    """One connection, in the hands of an act. TLS, where the server speaks it, begins with what is read or sent."""

    def __init__(self, server: Scripted, sock: socket.socket) -> None:
        self.server = server
        self.turn = Turn()
        self._sock = sock
        self._bare = server.context is not None

    def _shake_hands(self) -> None:
        if self._bare:
            assert self.server.context is not None
            self._bare = False
            self._sock = self.server.context.wrap_socket(self._sock, server_side=True)

    def read(self) -> Hit:
        """The whole request; from here on it counts."""
        hit = self._request()
        self.server.hits.append(hit)
        return hit

    def grant(self) -> None:
        """A browser asks whether a page from elsewhere may ask: it may, whatever it is. This counts apart."""
        self.server.preflights.append(self._request())
        self.send(self.head(204, "Access-Control-Allow-Methods: *", "Access-Control-Allow-Headers: *"))

    def _request(self) -> Hit:
        self._shake_hands()
        stream = self._sock.makefile("rb")
        method, target, _ = stream.readline().decode("ascii").split(" ", 2)
        headers = []
        while line := stream.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        hit = Hit(method, target, tuple(headers), b"")
        if hit.header("transfer-encoding") == "chunked":
            body = b""
            while size := int(stream.readline(), 16):
                body += stream.read(size)
                stream.readline()
            stream.readline()
        else:
            body = stream.read(int(hit.header("content-length") or 0))
        stream.close()
        return hit._replace(body=body)

    def head(self, status: int, *lines: str) -> bytes:
        """The head of an answer."""
        shown = SHOWN_TO_PAGES if self.server.cors else ()
        return "\r\n".join([f"HTTP/1.1 {status} X", *lines, *shown, "Connection: close", "", ""]).encode("latin-1")

    def send(self, data: bytes) -> None:
        self._shake_hands()
        self._sock.sendall(data)

    def send_bare(self, data: bytes) -> None:
        """Past TLS, whatever it thinks of it."""
        os.write(self._sock.fileno(), data)

    def wait_for_bytes(self) -> bytes:
        """Until the client has begun to send. Returns the beginning, which can still be read."""
        return self._sock.recv(7, socket.MSG_PEEK)

    def reset(self) -> None:
        """End the connection so that the other side meets an error, not an end."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def wait_until_left(self, drip: bytes = b"", every: float = 10.0) -> None:
        """Stay silent until the client goes away, or send `drip` again and again."""
        self.turn.silent = True
        self.turn.settled.set()
        self._sock.settimeout(every)
        for _ in range(1000):
            try:
                if not self._sock.recv(65536):
                    return
            except TimeoutError:
                if not drip:
                    return
                self._sock.sendall(drip)

    def close(self) -> None:
        """Whichever socket it is by now: TLS takes the first one over."""
        self.turn.settled.set()
        self._sock.close()


Act = Callable[[Exchange], None]


class Scripted:
    """The server. `hits` grows as requests are read; `unplayed` holds the acts nobody has come for.

    One that is not `listening` refuses connections until it is told to `listen()`; one that is `leaving` refuses them
    from its last act on. With a `certificate` it speaks TLS. `elsewhere` is another server, to redirect to. With
    `cors` it serves pages from elsewhere.
    """

    def __init__(
        self,
        *acts: Act,
        listening: bool = True,
        leaving: bool = False,
        certificate: Certificate | None = None,
        elsewhere: Scripted | None = None,
        cors: bool = False,
    ) -> None:
        self.hits: list[Hit] = []
        self.preflights: list[Hit] = []
        self.cors = cors
        self.turns = [Turn() for _ in acts]
        self.unplayed = list(acts)
        self.surprises: list[str] = []
        self.elsewhere = elsewhere
        self.context = None if certificate is None else showing(certificate)
        self._sock = socket.create_server(("127.0.0.1", 0)) if listening else socket.socket()
        if not listening:
            self._sock.bind(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        self.origin = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self.port}"
        self._leaving = leaving
        self._workers: list[threading.Thread] = []
        if listening:
            self.start()

    def listen(self) -> None:
        """Until now every connection was refused."""
        self._sock.listen()
        self.start()

    def start(self) -> None:
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            worker = threading.Thread(target=self._play, args=(sock,), daemon=True)
            self._workers.append(worker)
            worker.start()

    def _next(self) -> tuple[Act | None, Turn]:
        if not self.unplayed:
            return None, Turn()
        turn = self.turns[-len(self.unplayed)]
        act = self.unplayed.pop(0)
        if self._leaving and not self.unplayed:
            self._refuse()
        return act, turn

    def _refuse(self) -> None:
        """From here on every connection is refused, and the one who accepts them is woken."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _play(self, sock: socket.socket) -> None:
        exchange = Exchange(self, sock)
        try:
            # Browsers and their kin open connections in advance.
            beginning = exchange.wait_for_bytes()
            if beginning == b"" or (self.cors and beginning == b"OPTIONS"):
                if beginning:
                    exchange.grant()
                return
            act, exchange.turn = self._next()
            if act is None:
                self.surprises.append("a request that the script does not have")
                answer(500)(exchange)
            else:
                act(exchange)
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError):
                self.surprises.append(repr(error))
        finally:
            exchange.close()

    def close(self) -> None:
        if hasattr(self, "_acceptor"):
            self._refuse()
            self._acceptor.join(5)
        self._sock.close()
        for worker in self._workers:
            worker.join(5)


@contextmanager
def serving(*acts: Act, **how: Any) -> Iterator[Scripted]:
    """A server that plays `acts`, all of them and no more; `how` is as in Scripted."""
    server = Scripted(*acts, **how)
    try:
        yield server
    finally:
        server.close()
    assert (server.surprises, server.unplayed) == ([], []), f"surprises {server.surprises}, unplayed {server.unplayed}"


# --- acts ------------------------------------------------------------------------------------------------------------


def answer(status: int, *lines: str, body: bytes = b"", json_: object = None, kind: str = "application/json") -> Act:
    """Read, and answer as a good server would."""
    if json_ is not None:
        body, lines = json.dumps(json_).encode(), (*lines, f"Content-Type: {kind}")

    def act(exchange: Exchange) -> None:
        exchange.read()
        exchange.send(exchange.head(status, *lines, f"Content-Length: {len(body)}") + body)

    return act


def problem(status: int, kind: str, *lines: str, **members: object) -> Act:
    """Read, and answer with a problem document."""
    document = {"type": f"urn:twicesafe:problem:{kind}", "status": status, **members}
    return answer(status, *lines, json_=document, kind="application/problem+json")


def redirect(status: int, location: str) -> Act:
    """Read, and send the client to another place here."""
    return answer(status, f"Location: {location}")


def reset_before_reading(exchange: Exchange) -> None:
    """The connection breaks when the request begins to arrive, before it is read."""
    exchange.wait_for_bytes()
    exchange.reset()


def reset_after_commit(exchange: Exchange) -> None:
    """The work is done, the answer is lost."""
    exchange.read()
    exchange.reset()


def close_after_commit(exchange: Exchange) -> None:
    """The work is done, and the connection ends without a word."""
    exchange.read()


def half_head(exchange: Exchange) -> None:
    """The answer breaks off in its head."""
    exchange.read()
    exchange.send(b"HTTP/1.1 201 Crea")


def half_body(exchange: Exchange) -> None:
    """The answer breaks off in its body."""
    exchange.read()
    exchange.send(exchange.head(201, "Content-Length: 100") + b'{"charge":')


def half_error(exchange: Exchange) -> None:
    """A failure's answer breaks off in its body."""
    exchange.read()
    exchange.send(exchange.head(503, "Content-Type: application/json", "Content-Length: 100") + b'{"typ')


def broken_gzip(exchange: Exchange) -> None:
    """The answer arrives whole and cannot be decoded."""
    exchange.read()
    exchange.send(exchange.head(201, "Content-Encoding: gzip", "Content-Length: 8") + b"not gzip")


def garbage(exchange: Exchange) -> None:
    """What comes back is not HTTP."""
    exchange.read()
    exchange.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


def silence(exchange: Exchange) -> None:
    """The work is done, and the answer does not come in time."""
    exchange.read()
    exchange.wait_until_left()


def silence_in_body(exchange: Exchange) -> None:
    """The answer's head comes, its body does not."""
    exchange.read()
    exchange.send(exchange.head(201, "Content-Length: 100") + b"{")
    exchange.wait_until_left()


def drip_head(exchange: Exchange) -> None:
    """The answer's head comes, a byte at a time, for ever."""
    exchange.read()
    exchange.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    exchange.wait_until_left(drip=b"x", every=0.02)


def promise(exchange: Exchange) -> None:
    """One interim answer after another, and never the one."""
    exchange.read()
    exchange.wait_until_left(drip=b"HTTP/1.1 103 Early Hints\r\n\r\n", every=0.02)


def drip(exchange: Exchange) -> None:
    """The answer comes, a byte at a time, for ever."""
    exchange.read()
    exchange.send(exchange.head(200, "Content-Length: 1000000"))
    exchange.wait_until_left(drip=b"x", every=0.02)
