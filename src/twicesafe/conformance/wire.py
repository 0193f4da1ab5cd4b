"""HTTP/1.1 on sockets: requests byte for byte as they are meant, also such as no library would send.

One connection carries one request, so that nothing but the key tells two attempts to belong together.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Answer, Request

PIECE: Final = 64 * 1024
LARGEST_ANSWER: Final = 16 * 1024 * 1024
_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""


class NoAnswerError(Exception):
    """No whole answer came. The message says why: the connection was reset, time was up, it was no HTTP.

    `part` is what had come of its body.
    """

    def __init__(self, reason: str, part: bytes = b"") -> None:
        super().__init__(reason)
        self.part = part


class Place(NamedTuple):
    """Where a URL leads: resolved once, so that what was allowed is what is spoken to."""

    host: str
    port: int
    tls: bool
    address: str

    @property
    def name(self) -> str:
        """As in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def find(url: str, *, anywhere: bool) -> Place:
    """The place of a URL. CannotCheckError where it is not on this machine, unless it may be `anywhere`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CannotCheckError(f"{url} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CannotCheckError(f"{url} is no http:// or https:// URL")
    tls = parts.scheme == "https"
    port = port or (443 if tls else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CannotCheckError(f"{parts.hostname} cannot be found: {error}") from None
    addresses = [str(one[4][0]) for one in found]
    if not anywhere and not all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in addresses):
        raise CannotCheckError(
            f"{parts.hostname} is not this machine, and a check does what it asks for many times over: "
            "if the service is yours, say --i-own-this"
        )
    return Place(parts.hostname, port, tls, addresses[0])


class Connection:
    """One connection with one request on it."""

    def __init__(self, place: Place, patience: float) -> None:
        self._end = time.monotonic() + patience
        try:
            plain = socket.create_connection((place.address, place.port), timeout=patience)
        except OSError as error:
            raise NoAnswerError(f"no connection: {_words(error)}") from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        if place.tls:
            try:
                self._socket = ssl.create_default_context().wrap_socket(plain, server_hostname=place.host)
            except (OSError, ValueError) as error:
                plain.close()
                raise NoAnswerError(f"no TLS: {_words(error)}") from error

    def send(self, data: bytes) -> None:
        """Send, as far as the other side takes it: one that has answered already may have stopped reading."""
        try:
            self._clip()
            self._socket.sendall(data)
        except TimeoutError:
            raise NoAnswerError("the request was not taken in time") from None
        except OSError:
            return

    def answer(self, method: str) -> Answer:
        """The whole answer. NoAnswerError where there is none."""
        parser = h11.Connection(h11.CLIENT)
        asked = "HEAD" if method == "HEAD" else "POST"  # all that matters is whether a body may come
        parser.send(h11.Request(method=asked, target="/", headers=[("Host", "target"), ("Connection", "close")]))
        parser.send(h11.EndOfMessage())
        head: h11.Response | None = None
        body = bytearray()
        try:
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    self._clip()
                    parser.receive_data(self._socket.recv(PIECE))
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > LARGEST_ANSWER:
                        raise NoAnswerError(f"the answer is longer than {LARGEST_ANSWER} bytes")
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    lines = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in _raw(head))
                    return Answer(head.status_code, lines, bytes(body))
                elif isinstance(event, h11.ConnectionClosed):
                    raise NoAnswerError("the connection was closed without an answer")
        except TimeoutError:
            raise NoAnswerError("no answer came in time", bytes(body)) from None
        except h11.RemoteProtocolError as error:
            raise NoAnswerError(f"the answer broke off or is no HTTP: {error}", bytes(body)) from error
        except OSError as error:
            raise NoAnswerError(f"the connection broke: {_words(error)}", bytes(body)) from error

    def answered(self, seconds: float) -> bool:
        """Wait so long. Whether something comes meanwhile."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], seconds)[0])

    def hang_up(self) -> None:
        """Close as a client that died does: with a reset."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.close()

    def close(self) -> None:
        """Close."""
        self._socket.close()

    def _clip(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


@contextmanager
def connected(place: Place, patience: float) -> Iterator[Connection]:
    """A connection for `patience` seconds in all."""
    connection = Connection(place, patience)
    try:
        yield connection
    finally:
        connection.close()


def written(request: Request, place: Place, *, chunked: bool = False) -> tuple[bytes, bytes]:
    """The head and the body as they go over the wire. Lines are written as they are, good or bad."""
    parts = urlsplit(request.url)
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    lines = [("Host", place.name), *request.lines, ("Connection", "close")]
    body = request.body
    if chunked:
        lines.append(("Transfer-Encoding", "chunked"))
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    elif body or request.method not in ("GET", "HEAD"):
        lines.append(("Content-Length", str(len(body))))
    head = [_bytes(f"{request.method} {target} HTTP/1.1"), *(_bytes(f"{name}: {value}") for name, value in lines)]
    return b"\r\n".join(head) + b"\r\n\r\n", body


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _raw(head: h11.Response) -> list[tuple[bytes, bytes]]:
    return head.headers.raw_items()


def _words(error: Exception) -> str:
    return (getattr(error, "strerror", "") or str(error) or type(error).__name__).lower()
