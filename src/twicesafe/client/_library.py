"""httpx or httpx2, whichever the caller uses. Neither is imported: what is handed in says where it comes from."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final, TypeAlias

from twicesafe.client._causes import is_distrust
from twicesafe.client._modules import module_of
from twicesafe.core.outcome import FailureKind, Sent

_NAMES: Final = ("ByteStream", "TransportError", "Request", "Response")

Library: TypeAlias = Any
"""The module `httpx` or `httpx2`, or another with the same classes."""


def library_of(thing: object) -> Library:
    """The library of a client or a request, by its class or what that descends from."""
    kind: Any = type(thing)
    return module_of(kind, _NAMES, "neither of httpx2 nor of httpx")


@cache
def is_in_memory(kind: type) -> bool:
    """Whether a request's stream of this kind holds its bytes, and can be sent again as it is."""
    return kind is getattr(sys.modules.get(kind.__module__.partition(".")[0]), "ByteStream", None)


@cache
def failures_of(library: Library) -> tuple[type[BaseException], ...]:
    """What an attempt that failed on its way raises."""
    return (library.TransportError, library.DecodingError, OSError)


@cache
def mistakes_of(library: Library) -> tuple[type[BaseException], ...]:
    """Failures of `failures_of` that are the caller's own: a request that cannot be sent, now or ever."""
    return (library.LocalProtocolError, library.UnsupportedProtocol)


def kind_of(library: Library, error: BaseException, around: BaseException | None = None) -> FailureKind:
    """Why the attempt failed. For the record, and for failures that do not pass; what was sent is another matter.

    `around` is what the caller was handling when it began.
    """
    if isinstance(error, (library.TimeoutException, TimeoutError)):
        return FailureKind.TIMEOUT
    if is_distrust(error, around):
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
