"""What a WSGI environ says about a request: its key, its raw path, and its body, kept and handed on as it was sent."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from functools import lru_cache
from io import BufferedReader, BytesIO, RawIOBase
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from twicesafe.core.carriers import body_may_carry
from twicesafe.core.fingerprint import UNQUOTED, RequestFacts
from twicesafe.core.policy import Policy
from twicesafe.core.presented import presented_key
from twicesafe.errors import BodyIncompleteError, BodyTooLargeError, RequestError

Environ: TypeAlias = MutableMapping[str, Any]

UNDERWAY: Final = "twicesafe.request"
"""Where the environ has a request that is protected as a whole. With a dot, as every name that is no CGI variable."""
_ONE_LINE: Final = re.compile(r'\s*((?:"(?:[^"\\]|\\.)*"?|[^,"])*)')
_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@lru_cache(maxsize=64)
def variable(header: str) -> str:
    """The environ's name for a header."""
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def carries_header(environ: Environ, policy: Policy) -> bool:
    """Whether the header that carries keys is there."""
    return _header(environ, policy.header) is not None


def body_before_key(environ: Environ, policy: Policy) -> bool:
    """Whether the body has to be read before the key is known."""
    return bool(policy.fields) and body_may_carry(policy.fields, _latin(environ, "CONTENT_TYPE"))


def key_of(environ: Environ, policy: Policy, body: bytes) -> str | None:
    """The request's key, None where it may go without one. RequestError otherwise.

    `body` counts where `body_before_key` says so.
    """
    value = _header(environ, policy.header)
    if value is not None and "," not in value and policy.plain_key(value.encode("latin-1")):
        return value
    first_sent = None if policy.first_sent is None else _header(environ, policy.first_sent.header)
    return presented_key(
        policy,
        [] if value is None else _lines(value),
        first_sent=[] if first_sent is None else [first_sent.encode("latin-1")],
        query=_latin(environ, "QUERY_STRING"),
        content_type=_latin(environ, "CONTENT_TYPE"),
        content_encoding=_latin(environ, "HTTP_CONTENT_ENCODING"),
        body=body,
    )


def _header(environ: Environ, name: str) -> str | None:
    return environ.get(variable(name)) if name else None


def _lines(value: str) -> list[bytes]:
    """Header lines of one name, which a server joins by commas. A key with a comma has to be quoted here."""
    lines, at = [], 0
    while True:
        found = _ONE_LINE.match(value, at)
        assert found is not None
        lines.append(found[1].rstrip().encode("latin-1"))
        at = found.end() + 1
        if at > len(value):
            return lines


def facts_of(environ: Environ, policy: Policy, body: bytes) -> RequestFacts:
    """What the fingerprint is made of. Of the header lines there are those that it asks for."""
    lines = {}
    content_type, content_encoding = environ.get("CONTENT_TYPE"), environ.get("HTTP_CONTENT_ENCODING")
    if content_type:
        lines[b"content-type"] = content_type.encode("latin-1")
    if content_encoding:
        lines[b"content-encoding"] = content_encoding.encode("latin-1")
    for name in policy.fingerprint.headers:
        value = environ.get(variable(name.decode("latin-1")))
        if value is not None:
            lines[name] = value.encode("latin-1")
    return RequestFacts(
        environ["REQUEST_METHOD"], raw_path(environ), _latin(environ, "QUERY_STRING"), tuple(lines.items()), body, lines
    )


def raw_path(environ: Environ) -> bytes:
    """The path as it was sent, percent signs and all, where the server says it; otherwise quoted anew."""
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if target:
        origin = None if target[0] == "/" else _ORIGIN.match(target)
        path: str = target[origin.end() if origin else 0 :].partition("?")[0].partition("#")[0]
        return path.encode("latin-1", "replace") or b"/"
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(path.encode("latin-1"), safe=UNQUOTED).encode("ascii")


def whole_body(environ: Environ, policy: Policy) -> bytes:
    """The body, handed on to the application as well. RequestError where it is too large or ends early."""
    body = take_body(environ, policy.body_limit)
    if isinstance(body, RequestError):
        raise body
    return body


def take_body(environ: Environ, limit: int) -> bytes | RequestError:
    """The whole body, or why it cannot be had. What the application reads afterwards begins at its first byte."""
    stream = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH")
    if not length:
        if environ.get("wsgi.input_terminated"):
            return _to_the_end(environ, limit)
        if environ.get("HTTP_TRANSFER_ENCODING"):
            return BodyIncompleteError("this server cannot read a body of unknown length: send its Content-Length")
        return b""
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        return BodyIncompleteError("the Content-Length is not a number")
    wanted = int(length)
    if wanted > limit:
        return too_large(limit)
    body, why = _read(stream, wanted)
    if len(body) != wanted:
        return _cut(environ, body, why)
    environ["wsgi.input"] = BytesIO(body)
    return body


def too_large(limit: int) -> BodyTooLargeError:
    """For a body over the limit."""
    return BodyTooLargeError(f"the body of this operation may have at most {limit} bytes")


def _to_the_end(environ: Environ, limit: int) -> bytes | RequestError:
    stream = environ["wsgi.input"]
    body, why = _read(stream, limit + 1)
    if why is not None:
        return _cut(environ, body, why)
    if len(body) <= limit:
        environ["wsgi.input"] = BytesIO(body)
        return body
    environ["wsgi.input"] = BufferedReader(_Rewound(body, stream))
    return too_large(limit)


def _cut(environ: Environ, body: bytes, why: OSError | None) -> BodyIncompleteError:
    # Whoever reads it all the same, a view that takes no keys, finds the same end.
    environ["wsgi.input"] = BytesIO(body) if why is None else BufferedReader(_Rewound(body, _Broken(why)))
    error = BodyIncompleteError("the body ended before its end: send the whole request again")
    error.__cause__ = why
    return error


def _read(stream: Any, at_most: int) -> tuple[bytes, OSError | None]:
    """Up to so many bytes, and what ended them before their end, if that was an error."""
    pieces = []
    left = at_most
    try:
        while left:
            piece = stream.read(left)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        return b"".join(pieces), error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), None


class _Broken:
    """A stream that has ended before its end."""

    def __init__(self, why: OSError) -> None:
        self._why = why

    def read(self, size: int) -> bytes:  # noqa: ARG002 - as a stream is read
        raise self._why


class _Rewound(RawIOBase):
    """A stream from its beginning, of which some was read already."""

    def __init__(self, begun: bytes, rest: Any) -> None:
        self._begun = BytesIO(begun)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._begun.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def _latin(environ: Environ, name: str) -> bytes:
    value: str = environ.get(name, "")
    return value.encode("latin-1")
