"""One HTTP exchange on a socket of its own, seen byte by byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import h11

PATIENCE = 30.0
"""Seconds after which a silent server has failed."""

OF_THE_SERVER = frozenset({b"date", b"server", b"connection", b"keep-alive", b"transfer-encoding"})
"""Lines that servers write for themselves, of one message or one connection."""

MARKER = (b"idempotent-replayed", b"true")


class Reply(NamedTuple):
    """An answer as it was on the wire; names of header lines in lower case, in the order of their arrival."""

    status: int
    lines: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool
    """Whether the answer came to its end, or the server hung up in it."""
    before: list[int]
    """Statuses of the informational answers that came first."""

    def all(self, name: bytes) -> list[bytes]:
        """The values of every line of this name."""
        return [line for found, line in self.lines if found == name]

    def one(self, name: bytes) -> bytes:
        """The value of the one line of this name."""
        found = self.all(name)
        assert len(found) == 1, (name, self.lines)
        return found[0]

    @property
    def replayed(self) -> bool:
        return MARKER in self.lines

    @property
    def own(self) -> list[tuple[bytes, bytes]]:
        """The lines of the application and of twicesafe, the marker left out."""
        return [line for line in self.lines if line[0] not in OF_THE_SERVER and line != MARKER]

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The last part of the problem type."""
        assert self.one(b"content-type") == b"application/problem+json", self
        return str(self.document["type"]).rsplit(":", 1)[1]


class Exchange:
    """One request on its way: the suite may look at what has arrived, hang up, or wait for the end.

    `keep` leaves the connection open for another one, which says that it comes `on` this one's.
    """

    def __init__(self, port: int, method: str, *, keep: bool = False, on: Exchange | None = None) -> None:
        if on is None:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self._socket = on._socket
        self._keep = keep
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=128 * 1024)
        # What it has to know of the request. The request itself is written by hand, faults included.
        self._parser.send(h11.Request(method=method, target="/", headers=[("host", "probe")]))
        self._parser.send(h11.EndOfMessage())
        self._before: list[int] = []
        self._head: h11.Response | None = None
        self._ended = self._broken = False
        self._pieces: list[bytes] = []
        self._size = 0

    def send(self, sent: bytes) -> None:
        """Send bytes. A server that does not want them any more may have answered already."""
        try:
            self._socket.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            return

    def hang_up(self) -> None:
        self._socket.close()

    def _next(self) -> bool:
        """Take one event. False when there are no more."""
        while not (self._ended or self._broken):
            try:
                event = self._parser.next_event()
                if event is h11.NEED_DATA:
                    self._parser.receive_data(self._received())
                    continue
            except h11.RemoteProtocolError:
                self._broken = True
                return False
            if isinstance(event, h11.InformationalResponse):
                self._before.append(event.status_code)
            elif isinstance(event, h11.Response):
                self._head = event
            elif isinstance(event, h11.Data):
                self._pieces.append(bytes(event.data))
                self._size += len(event.data)
            else:
                self._ended = True
                self._broken = not isinstance(event, h11.EndOfMessage)
            return True
        return False

    def _received(self) -> bytes:
        try:
            return self._socket.recv(256 * 1024)
        except ConnectionResetError:
            return b""

    def invited(self) -> bool:
        """Wait for the first informational answer. False where the answer itself comes first."""
        while not self._before and self._head is None and self._next():
            pass
        return bool(self._before)

    def until(self, size: int) -> bytes:
        """Wait until this much of the body has arrived, or its end."""
        while self._size < size and self._next():
            pass
        return b"".join(self._pieces)

    def reply(self) -> Reply:
        """Wait for the end of the answer."""
        while self._next():
            pass
        if not self._keep:
            self._socket.close()
        assert self._head is not None, "the server hung up without an answer"
        lines = [(name.lower(), line) for name, line in self._head.headers.raw_items()]
        return Reply(
            self._head.status_code, lines, b"".join(self._pieces), self._ended and not self._broken, self._before
        )


def head(method: str, target: bytes, lines: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A request's head."""
    first = method.encode() + b" " + target + b" HTTP/1.1"
    return b"\r\n".join([first, *[name + b": " + line for name, line in lines], b"", b""])
