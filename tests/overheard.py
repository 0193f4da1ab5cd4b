"""The places at which everything passes that people are told: what does is searched, in every test.

Each is listened at by the suite alone, once in a process, and at its narrowest: the package knows nothing of it.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote

from twicesafe import observe
from twicesafe.errors import TwicesafeError

Search = Callable[[str, str], None]

ELSEWHERE: Final = {
    "twicesafe.blocking.sending": ("ReaderGoneError",),
    "twicesafe.conformance.errors": ("CannotCheckError",),
    "twicesafe.conformance.limits": ("OutOfBoundsError",),
    "twicesafe.conformance.wire": ("NoAnswerError",),
    "twicesafe.core.exchange": ("IncompleteAnswerError",),
    "twicesafe.demo.provider.client": ("TooManyError", "ProviderError"),
    "twicesafe.demo.provider.ledger": ("KeyMisusedError",),
    "twicesafe.incoming": ("ClientGoneError",),
    "twicesafe.rounds": ("EndedError",),
    "twicesafe.storm.consumer": ("OrderedFailure",),
    "twicesafe.storm.http": ("ClientGoneError",),
    "twicesafe.stores.redis_line": ("NotSentError",),
    "twicesafe.stores.sql.statements": ("StatementsError",),
}
"""Errors that are not below TwicesafeError, by the module that they are of. Those of twicesafe.testing are failures of
somebody's tests, which show what came where something else was asked for: they are not listened to."""

_listened: Final[set[object]] = set()
"""Where it is listened already."""


def _first(place: object) -> bool:
    new = place not in _listened
    _listened.add(place)
    return new


# --- logs and events -------------------------------------------------------------------------------------------------


class Searching(logging.Filter):
    """Looks at records as they would be written, and lets them pass."""

    def __init__(self, search: Search) -> None:
        super().__init__()
        self._search = search

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info:
            text += logging.Formatter().formatException(record.exc_info)
        self._search("the log", text)
        return True


class Wakeful:
    """The logger of events, which looks at those that are below its level, too."""

    def __init__(self, logger: logging.Logger, search: Search) -> None:
        self._logger = logger
        self._search = search

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as logging names it
        return True

    def log(self, level: int, message: str, *arguments: object, extra: dict[str, object] | None = None) -> None:
        self._search("an event", f"{message % arguments} {extra}")
        self._logger.log(level, message, *arguments, extra=extra)


def in_the_log(search: Search) -> None:
    """Every record of the package's logger, and every event that the log is told of."""
    if _first("log"):
        logger = logging.getLogger("twicesafe")
        logger.addFilter(Searching(search))
        observe._log = Wakeful(logger, search)  # type: ignore[misc,assignment]  # to listen


# --- errors and error answers ----------------------------------------------------------------------------------------


def in_errors(search: Search) -> None:
    """Every error of the package's own, as it is made, and whatever is noted on it later."""
    _in_errors_of(TwicesafeError, search)
    for module, names in ELSEWHERE.items():
        for name in names:
            _in_errors_of(getattr(import_module(module), name), search)


def _in_errors_of(kind: type[BaseException], search: Search) -> None:
    if not _first(kind):
        return
    made, noted = kind.__init__, kind.add_note

    @wraps(made)
    def init(self: BaseException, *args: Any, **kwargs: Any) -> None:
        if "__init__" in own:
            made(self, *args, **kwargs)
        else:
            super(kind, self).__init__(*args, **kwargs)
        search(f"an error, {type(self).__name__}", f"{self} {self!r}")

    def add_note(self: BaseException, note: str) -> None:
        search(f"a note on {type(self).__name__}", note)
        noted(self, note)

    own = frozenset(vars(kind))
    kind.__init__ = init  # type: ignore[method-assign]  # to listen
    kind.add_note = add_note  # type: ignore[method-assign,assignment]  # to listen


def in_problems(search: Search) -> None:
    """Every problem document that a server makes, where all of them are written."""
    for name in ("twicesafe.core.problems", "twicesafe.core.preconditions"):
        if _first(name):
            module: Any = import_module(name)
            module.json = _Writing(module.json, search)


class _Writing:
    """The module json, to one that writes with it."""

    def __init__(self, json: Any, search: Search) -> None:
        self._json = json
        self._search = search

    def __getattr__(self, name: str) -> Any:
        return getattr(self._json, name)

    def dumps(self, *args: Any, **kwargs: Any) -> str:
        written: str = self._json.dumps(*args, **kwargs)
        self._search("a problem document", written)
        return written


# --- spans -----------------------------------------------------------------------------------------------------------


def in_spans(search: Search) -> None:
    """Every span that an SDK records, as it ends, whoever began it."""
    from opentelemetry.sdk.trace import Span

    if not _first(Span):
        return
    end = Span.end

    @wraps(end)
    def ended(self: Any, *args: Any, **kwargs: Any) -> None:
        end(self, *args, **kwargs)
        search(f"the span {self.name!r}", _of_span(self))

    Span.end = ended  # type: ignore[method-assign]  # to listen


def _of_span(span: Any) -> str:
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    links = [(dict(link.attributes or {}), link.context.trace_state) for link in span.links]
    return f"{span.name} {dict(span.attributes or {})} {events} {links} {span.status.description}"


# --- pages -----------------------------------------------------------------------------------------------------------


def on_pages(search: Search) -> None:
    """Every page of the dashboard, where all of them are drawn; and the lines of its answers, but the visitor's cookie.

    A page is looked at as it is read, and an address as it is meant.
    """
    from jinja2 import Template

    from twicesafe.dashboard import application, pages

    if not _first(pages):
        return

    class Drawn(Template):
        def render(self, *args: Any, **kwargs: Any) -> str:
            drawn = super().render(*args, **kwargs)
            search(f"the page {self.name}", html.unescape(drawn))
            return drawn

    pages._environment().template_class = Drawn
    called = application.Dashboard.__call__

    async def call(self: Any, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            for name, line in message.get("headers", ()):
                if name != b"set-cookie":
                    search(f"a line of the dashboard's, {name!r}", unquote(line.decode("latin-1")))
            await send(message)

        await called(self, scope, receive, sent)

    application.Dashboard.__call__ = call  # type: ignore[method-assign]  # to listen


# --- what goes in ----------------------------------------------------------------------------------------------------


def when_sent(key: Callable[[str], None], body: Callable[[bytes], None]) -> None:
    """Tell of every key that is looked up, and of every body that is compared."""
    from twicesafe.core import fingerprint, keys

    if not _first(keys):
        return
    hashed, made = keys.sha256, fingerprint.Fingerprint.__init__

    def sha256(joined: bytes) -> Any:
        scope, length = keys._pack_lengths.__self__.unpack_from(joined)
        key(joined[4 + scope : 4 + scope + length].decode("ascii"))
        return hashed(joined)

    @wraps(made)
    def init(self: Any, facts: Any, rule: Any) -> None:
        body(facts.body)
        made(self, facts, rule)

    keys.sha256 = sha256  # type: ignore[attr-defined,assignment]  # to listen
    fingerprint.Fingerprint.__init__ = init  # type: ignore[method-assign]  # to listen
