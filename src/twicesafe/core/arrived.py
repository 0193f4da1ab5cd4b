"""Reads back what a publisher sent: CloudEvents in binary mode, from the headers that a broker or HTTP brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from twicesafe.core.message import JSON, RESERVED, Message
from twicesafe.errors import InvalidMessageError

PREFIXES: Final = ("ce-", "ce_", "cloudevents_", "cloudevents:")
"""HTTP's and NATS's, Kafka's, and both of AMQP's, in lower case."""

_ENCODED: Final = "ce-"
"""Whose values are percent-encoded."""


def arrived(headers: Mapping[str, str | bytes], data: bytes, *, encoded: bool = True) -> Message:
    """The message that the headers describe. InvalidMessageError where they do not, or lack what identifies it.

    `headers` in any case, values as text or UTF-8. `encoded=False` for fields of a Redis stream, which are as they are.
    Of a message of somebody else's that has no extension `aggregatetype`, or no `partitionkey`, that one is empty.
    """
    found: dict[str, str] = {}
    content_type = JSON
    for given, value in headers.items():
        name = given.lower()
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if name in ("content-type", "content_type"):
            content_type = text
        for prefix in PREFIXES:
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = unquote(text) if prefix == _ENCODED and encoded else text
    if found.get("specversion", "1.0") != "1.0":
        raise InvalidMessageError("the message is a CloudEvent of another version than 1.0")
    for name in ("id", "source", "type"):
        if not found.get(name):
            raise InvalidMessageError(f"the message has no {name}: it is no CloudEvent in binary mode")
    extensions = {name: text for name, text in found.items() if name not in RESERVED}
    return Message(
        id=found["id"],
        source=found["source"],
        type=found["type"],
        aggregatetype=found.get("aggregatetype", ""),
        aggregateid=found.get("partitionkey", ""),
        data=data,
        subject=found.get("subject"),
        time=found.get("time"),
        datacontenttype=content_type,
        headers=tuple(extensions.items()),
    )
