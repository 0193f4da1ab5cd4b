"""A real server on loopback that does what a script says, an act for each connection, and counts what it fully read."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple


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


class Exchange:
    """One connection, in the hands of an act."""

    def __init__(self, server: Scripted, sock: socket.socket) -> None:
        self._server = server
        self._sock = sock

    def read(self) -> Hit:
        """The whole request; from here on it counts."""
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
        hit = hit._replace(body=body)
        self._server.hits.append(hit)
        return hit

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def wait_for_bytes(self) -> None:
        """Until the client has begun to send."""
        self._sock.recv(1, socket.MSG_PEEK)

    def reset(self) -> None:
        """End the connection so that the other side meets an error, not an end."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def wait_until_left(self, drip: bytes = b"", every: float = 10.0) -> None:
        """Stay silent until the client goes away, or send `drip` again and again."""
        self._sock.settimeout(every)
        for _ in range(1000):
            try:
                if not self._sock.recv(65536):
                    return
            except TimeoutError:
                if not drip:
                    return
                self._sock.sendall(drip)


Act = Callable[[Exchange], None]


class Scripted:
    """The server. `hits` grows as requests are read; `unplayed` holds the acts nobody has come for."""

    def __init__(self, *acts: Act, listening: bool = True) -> None:
        self.hits: list[Hit] = []
        self.unplayed = list(acts)
        self.surprises: list[str] = []
        self._sock = socket.create_server(("127.0.0.1", 0)) if listening else socket.socket()
        if not listening:
            self._sock.bind(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self._workers: list[threading.Thread] = []
        self._closing = False
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
            if self._closing:
                sock.close()
                return
            act = self.unplayed.pop(0) if self.unplayed else None
            worker = threading.Thread(target=self._play, args=(sock, act), daemon=True)
            self._workers.append(worker)
            worker.start()

    def _play(self, sock: socket.socket, act: Act | None) -> None:
        exchange = Exchange(self, sock)
        try:
            if act is None:
                self.surprises.append("a request that the script does not have")
                answer(500)(exchange)
            else:
                act(exchange)
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError):
                self.surprises.append(repr(error))
        finally:
            sock.close()

    def close(self) -> None:
        self._closing = True
        if hasattr(self, "_acceptor"):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            self._acceptor.join(5)
        self._sock.close()
        for worker in self._workers:
            worker.join(5)


@contextmanager
def serving(*acts: Act, listening: bool = True) -> Iterator[Scripted]:
    """A server that plays `acts`, all of them and no more."""
    server = Scripted(*acts, listening=listening)
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
        exchange.send(_head(status, *lines, f"Content-Length: {len(body)}") + body)

    return act


def problem(status: int, kind: str, *lines: str, **members: object) -> Act:
    """Read, and answer with a problem document."""
    document = {"type": f"urn:twicesafe:problem:{kind}", "status": status, **members}
    return answer(status, *lines, json_=document, kind="application/problem+json")


def redirect(status: int, location: str) -> Act:
    """Read, and send the client elsewhere."""
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
    exchange.send(_head(201, "Content-Length: 100") + b'{"charge":')


def half_error(exchange: Exchange) -> None:
    """A failure's answer breaks off in its body."""
    exchange.read()
    exchange.send(_head(503, "Content-Type: application/json", "Content-Length: 100") + b'{"typ')


def broken_gzip(exchange: Exchange) -> None:
    """The answer arrives whole and cannot be decoded."""
    exchange.read()
    exchange.send(_head(201, "Content-Encoding: gzip", "Content-Length: 8") + b"not gzip")


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
    exchange.send(_head(201, "Content-Length: 100") + b"{")
    exchange.wait_until_left()


def drip(exchange: Exchange) -> None:
    """The answer comes, a byte at a time, for ever."""
    exchange.read()
    exchange.send(_head(200, "Content-Length: 1000000"))
    exchange.wait_until_left(drip=b"x", every=0.02)


def _head(status: int, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "Connection: close", "", ""]).encode("latin-1")
