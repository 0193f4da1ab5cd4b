"""httpx or httpx2, whichever the caller uses. Neither is imported: what is handed in says where it comes from."""

from __future__ import annotations

import sys
from functools import cache
from ssl import SSLCertVerificationError
from typing import Any, TypeAlias

from twicesafe.core.outcome import FailureKind, Sent
from twicesafe.errors import ConfigurationError

Library: TypeAlias = Any
"""The module `httpx` or `httpx2`, or another with the same classes."""


def library_of(thing: object) -> Library:
    """The library of a client or a request, by its class or what that descends from."""
    kind: Any = type(thing)
    return _library_of(kind)


@cache
def _library_of(kind: type) -> Library:
    for cls in kind.__mro__:
        module = sys.modules.get(cls.__module__.partition(".")[0])
        if all(hasattr(module, name) for name in ("ByteStream", "TransportError", "Request", "Response")):
            return module
    raise ConfigurationError(f"{kind.__module__}.{kind.__qualname__} is neither of httpx2 nor of httpx")


@cache
def failures_of(library: Library) -> tuple[type[BaseException], ...]:
    """What an attempt that failed on its way raises."""
    return (library.TransportError, library.DecodingError, OSError)


@cache
def mistakes_of(library: Library) -> tuple[type[BaseException], ...]:
    """Failures of `failures_of` that are the caller's own: a request that cannot be sent, now or ever."""
    return (library.LocalProtocolError, library.UnsupportedProtocol)


def kind_of(library: Library, error: BaseException) -> FailureKind:
    """Why the attempt failed. For the record, and for failures that do not pass; what was sent is another matter."""
    if isinstance(error, (library.TimeoutException, TimeoutError)):
        return FailureKind.TIMEOUT
    if _is_distrust(error):
        return FailureKind.UNTRUSTED
    if isinstance(error, (library.ConnectError, library.ProxyError, ConnectionRefusedError)):
        return FailureKind.CONNECT
    if isinstance(error, (library.ProtocolError, library.DecodingError)):
        return FailureKind.GARBLED
    return FailureKind.DROPPED


def as_the_librarys(library: Library, error: BaseException, sent: Sent) -> BaseException:
    """A time-out of this package's own, as the exception that the library's users catch."""
    if not isinstance(error, TimeoutError):
        return error
    kind = library.ConnectTimeout if sent is Sent.NO else library.ReadTimeout
    translated: BaseException = kind("the time for this attempt was over")
    translated.__cause__ = error
    return translated


def _is_distrust(error: BaseException) -> bool:
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            break
        if isinstance(seen, SSLCertVerificationError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
