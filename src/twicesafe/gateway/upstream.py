"""The service behind the gateway, and what is known when it does not answer.

A failure before anything was sent is proved by httpx2: the connection could not be made, or none of the pool's became
free. After that nobody knows how far the request came, whatever the error says. There is no retry here, no redirect, no
decoding, no cookie and no proxy from the environment.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

import httpx2

from twicesafe.core.record import HeaderLines
from twicesafe.errors import ConfigurationError, TwicesafeError


class UpstreamError(TwicesafeError):
    """The upstream did not answer, or not to the end. `status` is what the caller is told."""

    status = 502


class NotSentError(UpstreamError):
    """Nothing reached the upstream: no connection was made, its TLS handshake failed, or none became free."""

    status = 503


class NoAnswerError(UpstreamError):
    """Something of the request went out, and no whole answer came back: it may have been carried out."""


class TimedOutError(NoAnswerError):
    """As NoAnswerError, for want of time."""

    status = 504


class Timeouts(NamedTuple):
    """In seconds. `read` is the time to the first byte of an answer, and between two pieces of it."""

    connect: float = 5.0
    read: float = 60.0
    write: float = 60.0


TIMEOUTS: Final = Timeouts()
CONNECTIONS: Final = 256
"""Each open request takes one, and each stream for as long as somebody reads it."""
KEEP_ALIVE: Final = 2.0
"""Seconds for which an idle connection is used again. A server that closes one just as a request goes out on it leaves
an unknown outcome behind, so this is below what servers keep: gunicorn 2 s, Node.js and uvicorn 5 s, nginx 75 s."""

_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_JWKS_AT_MOST: Final = 1024 * 1024


class Upstream:
    """One service, by its origin, and a pool of HTTP/1.1 connections to it."""

    def __init__(
        self,
        address: str,
        *,
        timeouts: Timeouts = TIMEOUTS,
        connections: int = CONNECTIONS,
        keep_alive: float = KEEP_ALIVE,
        ca: Path | None = None,
    ) -> None:
        self._url = httpx2.URL(origin(address))
        self.authority: Final = self._url.netloc
        """As a Host line names it."""
        connect, read, write = timeouts
        self._timeout = {"connect": connect, "read": read, "write": write, "pool": connect}
        self._transport = httpx2.AsyncHTTPTransport(
            # Reading the world's certificates takes its time, and without TLS they are for nobody.
            verify=_context(ca) if self._url.scheme == "https" else False,
            trust_env=False,
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=keep_alive
            ),
        )

    async def ask(
        self, method: str, target: bytes, lines: Sequence[tuple[bytes, bytes]], body: AsyncIterator[bytes] | bytes
    ) -> Answering:
        """Send one request, once, as it is given, and wait for the head of its answer.

        `lines` frame the body. NotSentError, NoAnswerError; whatever `body` raises passes through.
        """
        request = httpx2.Request(
            method,
            self._url,
            headers=list(lines),
            stream=_Body(body),
            extensions={"target": target, "timeout": self._timeout},
        )
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.TransportError as error:
            raise _told(error) from error
        if not 200 <= response.status_code <= 599:
            await response.aclose()
            raise NoAnswerError(f"the upstream answered {response.status_code}, which is no answer to what was asked")
        return Answering(response)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()


class Answering:
    """An answer whose head is there. Close it, read to its end or not: what is not read to its end is cut off."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._pieces = aiter(response.stream)
        self.status: Final = response.status_code
        self.lines: Final[HeaderLines] = tuple(response.headers.raw)

    async def piece(self) -> bytes:
        """The next piece of the body as it came, b"" after the last one. NoAnswerError for a body that breaks off."""
        try:
            async for piece in self._pieces:
                if piece:
                    return piece
            return b""
        except httpx2.TransportError as error:
            raise _told(error) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._response.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, body: AsyncIterator[bytes] | bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not isinstance(self._body, bytes):
            async for piece in self._body:
                yield piece
        elif self._body:
            yield self._body


def _told(error: httpx2.TransportError) -> UpstreamError:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, _UNSENT):
        return NotSentError(f"the upstream could not be reached: {what}")
    if isinstance(error, httpx2.TimeoutException):
        return TimedOutError(f"the upstream took too long: {what}")
    return NoAnswerError(f"the upstream did not answer to the end: {what}")


def origin(address: str) -> str:
    """`address`, if it is scheme, host and port and nothing else. ConfigurationError otherwise."""
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    else:
        whole = whole and parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
    if not whole:
        raise ConfigurationError(
            "the upstream is http://host:port or https://host:port and nothing more: paths pass through as they come"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _context(ca: Path | None) -> ssl.SSLContext | bool:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigurationError(f"no certificates can be read from {ca}: {error.strerror or error}") from None


async def fetch(url: str) -> bytes:
    """A small document of somebody else's, by its URL. OSError where it cannot be had."""
    try:
        async with httpx2.AsyncClient(timeout=10.0) as client, client.stream("GET", url) as response:
            if response.status_code != httpx2.codes.OK:
                raise OSError(f"it was answered {response.status_code}")
            document = b""
            async for piece in response.aiter_bytes():
                document += piece
                if len(document) > _JWKS_AT_MOST:
                    raise OSError("it is too large")
            return document
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
