"""Preconditions: may this change be made to the state that is there now? (RFC 9110, 13; RFC 6585, 3)

That is another contract than the key's (R31). The key says that two requests are one; a precondition says which state a
request was made for. Checked in the handler, after the replay look-up: an attempt that succeeded has changed the state
itself, and its retry gets its own first answer, not a 412.

    wanted = Precondition.of(request.headers, required=True)   # 428 without one, 400 for a malformed one
    wanted.check(row.version)                                  # 412 where it is another one; None: there is no row
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from twicesafe.core.problems import PROBLEM_JSON
from twicesafe.errors import (
    ConfigurationError,
    PreconditionError,
    PreconditionFailedError,
    PreconditionInvalidError,
    PreconditionRequiredError,
)

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
"""Of any framework: a mapping, or pairs as they came, in text or bytes. Names in any case."""

_ETAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_OPAQUE: Final = re.compile(r"[\x21\x23-\x7e\x80-\xff]*")
_LIST: Final = re.compile(rf"[ \t,]*{_ETAG.pattern}[ \t]*(?:,|\Z)")
_NAMES: Final = ("if-match", "if-none-match", "if-unmodified-since", "if-modified-since")


class ETag(NamedTuple):
    """An entity tag. Weak ones stand for what is equivalent, strong ones for the same bytes."""

    opaque: str
    weak: bool = False

    def __str__(self) -> str:
        return f'{"W/" * self.weak}"{self.opaque}"'

    def is_strongly(self, other: ETag) -> bool:
        """Strong comparison: both strong, and equal (RFC 9110, 8.8.3.2)."""
        return not (self.weak or other.weak) and self.opaque == other.opaque

    def is_weakly(self, other: ETag) -> bool:
        """Weak comparison: equal, weak or not."""
        return self.opaque == other.opaque


Current: TypeAlias = ETag | int | str | None
"""What is there now: an entity tag, its text as it stands in the ETag header, the number of a version, or nothing."""


def etag(current: ETag | int | str) -> ETag:
    """The entity tag of a version's number, or of its text as it stands in an ETag header.

    ConfigurationError otherwise: a bare `abc` for a tag would match nothing that any client sends.
    """
    if isinstance(current, ETag):
        if _OPAQUE.fullmatch(current.opaque) is None:
            raise ConfigurationError("an entity tag may hold no blanks, quotes or control characters")
        return current
    if isinstance(current, int) and not isinstance(current, bool):
        return ETag(str(current))
    found = _ETAG.fullmatch(current) if isinstance(current, str) else None
    if found is None:
        raise ConfigurationError(
            f"an entity tag must be an ETag, a version's number or text such as '\"abc\"', not {current!r}"
        )
    return ETag(found[2], found[1] is not None)


class Tags(NamedTuple):
    """The value of If-Match or If-None-Match."""

    any: bool
    """It is `*`: whatever there is."""
    listed: tuple[ETag, ...]


class Precondition(NamedTuple):
    """What a request says of the state that it was made for. All None: nothing."""

    match: Tags | None = None
    none_match: Tags | None = None
    unmodified_since: datetime | None = None
    modified_since: datetime | None = None
    required: bool = False
    """A change that no condition was compared for is refused."""

    @classmethod
    def of(cls, headers: Headers, *, required: bool = False) -> Precondition:
        """The precondition in these headers.

        PreconditionInvalidError for entity tags that cannot be read: a change that was to be conditional must not be
        made unconditionally. Dates that cannot be read are ignored, as the standard has it, and so is If-Modified-Since
        where there is If-None-Match, and If-Unmodified-Since where there is If-Match.

        PreconditionRequiredError where one is `required` and there is none for a change: neither If-Match, nor
        If-None-Match, nor If-Unmodified-Since.
        """
        lines = _lines(headers)
        match, none_match = (_tags(name, lines[name]) for name in _NAMES[:2])
        found = cls(
            match,
            none_match,
            _date(lines["if-unmodified-since"]) if match is None else None,
            _date(lines["if-modified-since"]) if none_match is None else None,
            required,
        )
        if required and found[:3] == (None, None, None):
            raise _required()
        return found

    def check(self, current: Current, *, modified: datetime | None = None) -> None:
        """PreconditionFailedError where the change is not to be made to what is there now (RFC 9110, 13.2.2).

        `current` None is: there is nothing. `modified` is when it was last modified, where that is known; without it
        the dates are ignored, and PreconditionRequiredError is raised where one is required and there is no other.
        """
        dated = self.unmodified_since is not None and modified is not None
        if self.required and self.match is None and self.none_match is None and not dated:
            raise _required()
        tag = None if current is None else etag(current)
        if self.match is not None:
            if tag is None or not (self.match.any or any(tag.is_strongly(one) for one in self.match.listed)):
                raise PreconditionFailedError("the state that this change was made for is not the current one")
        elif self.unmodified_since is not None and modified is not None and _second(modified) > self.unmodified_since:
            raise PreconditionFailedError("it was modified since the time that this change was made for")
        if self._is_there(tag):
            raise PreconditionFailedError("what was to be new is there already")

    def not_modified(self, current: Current, *, modified: datetime | None = None) -> bool:
        """Whether a GET or HEAD is to be answered 304: its caller has what is there now.

        PreconditionFailedError where If-Match or If-Unmodified-Since do not hold.
        """
        self._replace(none_match=None, required=False).check(current, modified=modified)
        if self.none_match is not None:
            return self._is_there(None if current is None else etag(current))
        if self.modified_since is None or modified is None or current is None:
            return False
        return _second(modified) <= self.modified_since

    def _is_there(self, tag: ETag | None) -> bool:
        """Whether there is what If-None-Match says is not there."""
        if self.none_match is None or tag is None:
            return False
        return self.none_match.any or any(tag.is_weakly(one) for one in self.none_match.listed)


def _required() -> PreconditionRequiredError:
    return PreconditionRequiredError("this change has to name the state that it was made for: send If-Match")


def require_change(rows: int) -> None:
    """PreconditionFailedError where a conditional statement changed no row: `UPDATE ... WHERE id = ? AND version = ?`.

    The check and the change are then one: between a check and an unconditional UPDATE somebody else may come.
    """
    if rows < 0:
        raise ConfigurationError("the driver does not say how many rows the statement changed")
    if rows == 0:
        raise PreconditionFailedError("the state that this change was made for is not the current one")


class Refusal(NamedTuple):
    """An answer to a request whose precondition was refused, for any framework."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def refusal(error: PreconditionError, *, base: str = "urn:twicesafe:problem:") -> Refusal:
    """The problem document for it. It names no state but the request's own."""
    document = {
        "type": base + error.problem,
        "title": _TITLES[error.status],
        "status": error.status,
        "detail": str(error),
        "retryable": False,
    }
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return Refusal(error.status, {"Content-Type": PROBLEM_JSON.decode(), "Cache-Control": "no-store"}, body)


_TITLES: Final = MappingProxyType(
    {
        400: "The precondition cannot be read",
        412: "Precondition Failed",
        428: "Precondition Required",
    }
)


def _lines(headers: Headers) -> dict[str, list[str]]:
    """The values of the conditional headers, line by line."""
    found: dict[str, list[str]] = {name: [] for name in _NAMES}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        # As WSGI and ASGI have it, each byte is a character.
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        lines = found.get(text.lower())
        if lines is not None:
            lines.append(value.decode("latin-1") if isinstance(value, bytes) else value)
    return found


def _tags(name: str, lines: list[str]) -> Tags | None:
    """A list of entity tags, over as many lines as it may stand in. A comma may be part of a tag."""
    if not lines:
        return None
    text = ",".join(lines)
    if text.strip(" \t") == "*":
        return Tags(any=True, listed=())
    listed = []
    at = 0
    while (found := _LIST.match(text, at)) is not None:
        listed.append(ETag(found[2], found[1] is not None))
        at = found.end()
    if not listed or text[at:].strip(" \t,"):
        raise PreconditionInvalidError(f'{name.title()} must be * or entity tags such as "abc", "def", in quotes')
    return Tags(any=False, listed=tuple(listed))


def _date(lines: list[str]) -> datetime | None:
    """An HTTP date in any of its three forms."""
    if len(lines) != 1 or not 20 < len(lines[0]) < 64:
        return None
    try:
        date = parsedate_to_datetime(lines[0].strip())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date


def _second(moment: datetime) -> datetime:
    """HTTP dates have no fractions of a second."""
    if moment.tzinfo is None:
        raise ConfigurationError("when it was modified must have a time zone")
    return moment.replace(microsecond=0)
