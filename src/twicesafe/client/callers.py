"""Services in the middle: what a caller says of its own retries, so that a chain of services does not multiply them.

Three attempts of a caller, of three attempts each, are nine requests to whoever comes last. A client whose policy has
`leave_to_caller=True` makes one attempt while it serves a caller that retries:

    app = CallerASGI(app)                               # or CallerWSGI, or `with serving(request.headers):`
    policy = RetryPolicy(leave_to_caller=True)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from twicesafe.core.problems import ATTEMPT, ATTEMPT_LIMIT

__all__ = ["Caller", "CallerASGI", "CallerWSGI", "caller", "serving"]

_ATTEMPT: Final = ATTEMPT.decode("ascii")
_LIMIT: Final = ATTEMPT_LIMIT.decode("ascii")


class Caller(NamedTuple):
    """What the request that is served says of itself: which attempt it is, and how many there may be."""

    attempt: int
    limit: int | None = None

    @property
    def retries(self) -> bool:
        """Whether whoever called tries again by itself. It is not proved: the headers are the caller's own."""
        return self.attempt > 1 or (self.limit or 1) > 1


_caller: Final[ContextVar[Caller | None]] = ContextVar("twicesafe.caller", default=None)


def caller() -> Caller | None:
    """The caller of the request that this context serves; None where it says nothing, or nobody asked."""
    return _caller.get()


def caller_retries() -> bool:
    """Whether this context serves a request whose caller tries again."""
    served = _caller.get()
    return served is not None and served.retries


@contextmanager
def serving(headers: Mapping[str, str]) -> Iterator[Caller | None]:
    """In here, and in tasks begun in here, a request with these headers is served. Names may be in any case."""
    lines = {name.lower(): value for name, value in headers.items()}
    restored = _caller.set(_said(lines.get(_ATTEMPT), lines.get(_LIMIT)))
    try:
        yield _caller.get()
    finally:
        _caller.reset(restored)


class CallerASGI:
    """Around an ASGI application: `app = CallerASGI(app)`, or `app.add_middleware(CallerASGI)`."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve a request, knowing what its caller says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lines = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        said = {
            name.decode("ascii"): lines[name].decode("latin-1") for name in (ATTEMPT, ATTEMPT_LIMIT) if name in lines
        }
        with serving(said):
            await self._app(scope, receive, send)


class CallerWSGI:
    """Around a WSGI application: `app.wsgi_app = CallerWSGI(app.wsgi_app)`. A body that is made later knows nothing."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request, knowing what its caller says."""
        names = {f"HTTP_{name.upper().replace('-', '_')}": name for name in (_ATTEMPT, _LIMIT)}
        with serving({name: environ[variable] for variable, name in names.items() if variable in environ}):
            return self._app(environ, start_response)


def _said(attempt: str | None, limit: str | None) -> Caller | None:
    number = _number(attempt)
    return None if number is None else Caller(number, _number(limit))


def _number(text: str | None) -> int | None:
    """A count from 1, read with suspicion: whatever is none says nothing."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0 else None
