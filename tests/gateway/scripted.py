"""An upstream that does on its socket what a test tells it, and callers that write their requests themselves."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPResponse
from typing import Any, NamedTuple

PATIENCE = 20.0

Lines = list[tuple[str, str]]


class Asked(NamedTuple):
    """One request, as it came over the wire."""

    start: str
    lines: Lines
    body: bytes

    def values(self, name: str) -> list[str]:
        return [line for found, line in self.lines if found.lower() == name.lower()]

    def value(self, name: str) -> str:
        (line,) = self.values(name)
        return line


class Wire:
    """One connection, read as HTTP/1.1 is read."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""

    def until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        if not piece:
            raise EOFError
        self._buffer += piece

    def head(self) -> tuple[str, Lines]:
        start, *rest = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        return start, [(name, line.strip()) for name, _, line in (one.partition(":") for one in rest)]

    def asked(self) -> Asked:
        start, lines = self.head()
        asked = Asked(start, lines, b"")
        if asked.values("transfer-encoding"):
            parts = []
            while size := int(self.until(b"\r\n"), 16):
                parts.append(self.exactly(size))
                self.exactly(2)
            self.until(b"\r\n")
            return asked._replace(body=b"".join(parts))
        return asked._replace(body=self.exactly(int(next(iter(asked.values("content-length")), "0"))))

    def rest(self) -> bytes:
        """Everything up to the other side's end, which is a reset where it has not read everything itself."""
        with suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                self._buffer += piece
        return self._buffer

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ended(self) -> bool:
        """Wait for the other side to close. Whether it did so without sending anything more."""
        try:
            return self._buffer == b"" and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


Script = Callable[[Wire], object]


def answer(body: bytes = b"done", *lines: bytes, status: bytes = b"201 Created") -> bytes:
    """A whole answer."""
    head = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


class Service:
    """Listens on 127.0.0.1. `script` is called for each request, when it has been read; or `take_over`, where there is
    one, for each connection, of which nothing has been read."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.asked: list[Asked] = []
        self.script: Script = lambda wire: wire.send(answer())
        self.take_over: Script | None = None
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        wire = Wire(connection)
        with closing(connection):
            try:
                if self.take_over is not None:
                    self.take_over(wire)
                    return
                while True:
                    self.asked.append(wire.asked())
                    self.script(wire)
            except (OSError, EOFError, ValueError):
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            connection.close()


class Answered(NamedTuple):
    """An answer, read to its end. `broken` where it has none."""

    status: int
    lines: Lines
    body: bytes
    broken: bool = False

    def values(self, name: str) -> list[str]:
        return [line for found, line in self.lines if found.lower() == name.lower()]


class Caller:
    """Asks the server on a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextmanager
    def connected(self) -> Iterator[Wire]:
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)) as connection:
            yield Wire(connection)

    def ask(
        self,
        method: str = "POST",
        target: str = "/jobs",
        *lines: str,
        body: bytes = b"x",
        key: str = "",
        user: str = "ann",
    ) -> Answered:
        """One request on a connection of its own."""
        head = [f"{method} {target} HTTP/1.1", "Host: shop.example", *lines]
        if body or method == "POST":
            head.append(f"Content-Length: {len(body)}")
        if key:
            head.append(f"Idempotency-Key: {key}")
        if user:
            head.append(f"X-User-Id: {user}")
        return self.raw("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body, method)

    def raw(self, data: bytes, method: str = "POST") -> Answered:
        """These bytes, and what is answered."""
        with self.connected() as wire:
            wire.send(data)
            return received(wire, method)


def received(wire: Wire, method: str = "POST") -> Answered:
    """Read an answer. Nothing may have been read of it yet."""
    response = HTTPResponse(wire.socket, method=method)
    response.begin()
    parts: list[bytes] = []
    broken = False
    try:
        parts.append(response.read())
    except Exception as error:
        broken = True
        parts.append(getattr(error, "partial", b""))
    return Answered(response.status, response.getheaders(), b"".join(parts), broken)


def problem_of(answered: Answered) -> Any:
    """The kind of a problem document."""
    return json.loads(answered.body)["type"].rpartition(":")[2]
