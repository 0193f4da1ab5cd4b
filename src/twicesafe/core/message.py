"""The envelope of a message: a CloudEvent that belongs to an aggregate. Shared by outbox, publishers and inbox.

A message is bytes with a name for everything that somebody on its way has to know: which one it is (`source` and `id`),
what it says (`type`, `subject`, `data`), and whose order it keeps (`aggregatetype` and `aggregateid`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import quote

from twicesafe.core.record import Instant
from twicesafe.errors import InvalidMessageError

DEFAULT_DATA_LIMIT: Final = 256 * 1024
"""Bytes of data. Brokers take a megabyte by default; what is larger belongs elsewhere, and a link to it here."""

LONGEST_TEXT: Final = 255
"""Characters in an attribute. All databases can put an index on as many."""

JSON: Final = "application/json"

RESERVED: Final = frozenset(
    {
        "id",
        "source",
        "specversion",
        "type",
        "subject",
        "time",
        "datacontenttype",
        "data",
        "partitionkey",
        "aggregatetype",
    }
)
"""Names that no extension may take: they are attributes of the envelope itself."""

_EXTENSION = re.compile(r"[a-z0-9]{1,20}")
_NO_ATTRIBUTE_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""What CloudEvents keeps out of its strings, as far as it lies in the first plane."""
_NEEDED: Final = ("id", "source", "type", "aggregatetype", "aggregateid", "datacontenttype")
_PLAIN = re.compile(rf"(?:[!-~](?:[ -~]{{0,{LONGEST_TEXT - 2}}}[!-~])?\n){{{len(_NEEDED)}}}")
"""A line for each text that a message needs."""
_REFERENCE = re.compile(r"[^\s<>\"{}|\\^`]+")


class Message(NamedTuple):
    """One message. `checked` says what is refused; a message of the outbox was checked when it was added."""

    id: str
    """Made once, when the message is added, and never again: every delivery carries the same."""
    source: str
    """Who says it, as a URI reference. Ids are unique within it."""
    type: str
    """What it says: `order.placed`, say."""
    aggregatetype: str
    aggregateid: str
    """Whose order it keeps: messages of one aggregate arrive in the order in which they were committed."""
    data: bytes
    subject: str | None = None
    time: str | None = None
    """When it was added, in RFC 3339's form, on the database's clock."""
    datacontenttype: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    """CloudEvents' extension attributes, `traceparent` among them."""


def checked(message: Message, data_limit: int = DEFAULT_DATA_LIMIT) -> Message:
    """The same message. InvalidMessageError where something is missing, empty, too long, or not what it has to be."""
    if not _plain(message):
        for name in _NEEDED:
            check_text(name, getattr(message, name))
    if message.subject is not None:
        check_text("subject", message.subject)
    if _REFERENCE.fullmatch(message.source) is None:
        raise InvalidMessageError("source must be a URI reference, such as /orders or https://shop.example/orders")
    if "/" not in message.datacontenttype or not message.datacontenttype.isascii():
        raise InvalidMessageError("datacontenttype must be a media type, such as application/json")
    if type(message.data) is not bytes:
        raise InvalidMessageError(f"data must be bytes, not {type(message.data).__name__}")
    if len(message.data) > data_limit:
        raise InvalidMessageError(
            f"data has {len(message.data)} bytes, and {data_limit} is the limit: keep it elsewhere, and send a link"
        )
    if not message.headers:
        return message
    names = [name for name, _ in message.headers]
    for name, value in message.headers:
        if _EXTENSION.fullmatch(name) is None or name in RESERVED:
            raise InvalidMessageError(
                f"a header's name is 1 to 20 of a-z and 0-9, and none of the envelope's own, not {name[:40]!r}"
            )
        check_text(f"header {name}", value, longest=8 * LONGEST_TEXT)
    if len(set(names)) != len(names):
        raise InvalidMessageError("a header's name may stand once")
    return message


def _plain(message: Message) -> bool:
    """Whether its texts are such that `check_text` has nothing to say; nearly all are, and this is a tenth of its time.

    False says nothing.
    """
    try:
        together = "\n".join((*message[:5], message.datacontenttype, ""))
    except TypeError:
        return False
    return _PLAIN.fullmatch(together) is not None


def check_text(name: str, text: object, longest: int = LONGEST_TEXT) -> None:
    """InvalidMessageError unless it is a text that says something, and that every database and broker can carry."""
    if not isinstance(text, str):
        raise InvalidMessageError(f"{name} must be a text, not {type(text).__name__}")
    if text.isascii() and text.isprintable() and 0 < len(text) <= longest and text[0] != " " != text[-1]:
        return
    if not text or text.isspace():
        raise InvalidMessageError(f"{name} is empty: it would give everything that lacks one the same {name}")
    if text != text.strip():
        raise InvalidMessageError(f"{name} begins or ends with white space, which some databases do not compare")
    if len(text) > longest:
        raise InvalidMessageError(f"{name} has {len(text)} characters, and {longest} is the limit")
    if _NO_ATTRIBUTE_TEXT.search(text) is not None:
        raise InvalidMessageError(f"{name} holds a control character, or something else that is no character")


def rfc3339(instant: Instant) -> str:
    """An instant of a store's as text, to the microsecond."""
    return f"{_EPOCH + timedelta(microseconds=instant):%Y-%m-%dT%H:%M:%S.%f}Z"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Extension attributes, given either way."""
    return tuple(headers.items() if isinstance(headers, Mapping) else headers)


def attributes(message: Message) -> tuple[tuple[str, str], ...]:
    """The CloudEvents attributes by their bare names, as they are: for bindings that add their own prefix.

    The aggregate goes as two extensions: `partitionkey`, which CloudEvents knows, and `aggregatetype`.
    `datacontenttype` is not among them, because bindings carry it as the content type of what they send.
    """
    found = [("id", message.id), ("source", message.source), ("specversion", "1.0"), ("type", message.type)]
    if message.subject is not None:
        found.append(("subject", message.subject))
    if message.time is not None:
        found.append(("time", message.time))
    found.append(("partitionkey", message.aggregateid))
    if message.aggregatetype:
        # A message that came from elsewhere may have none.
        found.append(("aggregatetype", message.aggregatetype))
    return (*found, *message.headers)


def ce_headers(message: Message) -> tuple[tuple[str, str], ...]:
    """The header lines of CloudEvents' binary mode over HTTP (and NATS), the content type among them.

    What a header cannot carry, and a space, a quotation mark and a percent sign, are percent-encoded UTF-8, as the
    binding says.
    """
    lines = [(f"ce-{name}", _in_header(text)) for name, text in attributes(message)]
    return (*lines, ("content-type", message.datacontenttype))


_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def _in_header(text: str) -> str:
    return quote(text, safe=_SAFE)
