"""Where a request carries its key (R5): a header under any name, a member of a JSON body, a form field, the query.

A policy names one header and any number of fields. All that a request carries must name one key: two that differ are
refused, wherever they stand. A form without JavaScript carries it in a hidden field.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from twicesafe.core.content_coding import decoded
from twicesafe.core.keys import KeyRule, parse_key
from twicesafe.core.media_type import media_type
from twicesafe.core.multipart import field_values
from twicesafe.errors import InvalidKeyError


class JsonMember(NamedTuple):
    """A member of the object that a JSON body is: Square's `idempotency_key`."""

    name: str


class FormField(NamedTuple):
    """A field of a form, urlencoded or multipart."""

    name: str


class QueryParameter(NamedTuple):
    """A parameter of the query string. Logs keep query strings: prefer any other carrier."""

    name: str


Field: TypeAlias = JsonMember | FormField | QueryParameter


def in_body(fields: Sequence[Field]) -> bool:
    """Whether the key may stand in a body of the right kind."""
    return any(not isinstance(field, QueryParameter) for field in fields)


def body_may_carry(fields: Sequence[Field], content_type: bytes) -> bool:
    """Whether a body of this type has to be read before the key is known. One whose type nobody can tell may be any."""
    kind = media_type(content_type)
    if kind is None:
        return in_body(fields)
    return any(
        _is_json(kind.essence) if isinstance(field, JsonMember) else kind.essence in _FORMS
        for field in fields
        if not isinstance(field, QueryParameter)
    )


def key_in(
    lines: Sequence[bytes],
    fields: Sequence[Field],
    rule: KeyRule,
    *,
    query: bytes = b"",
    content_type: bytes = b"",
    content_encoding: bytes = b"",
    body: bytes = b"",
    empty_is_none: bool = False,
) -> str | None:
    """The key that these header lines and fields name, or None where there is none. InvalidKeyError otherwise.

    A body that holds the name and cannot be read is refused where no other place names a key: run without its key by
    an application that reads more than this does, it could be done twice. So is one of an unknown Content-Encoding.
    `empty_is_none` takes an empty value for none, as Square does.
    """
    values: list[bytes | str] = list(lines)
    for field in fields:
        if isinstance(field, QueryParameter):
            values += _pairs(query, field.name)
    if body and body_may_carry(fields, content_type):
        plain = decoded(content_encoding, body)
        if plain is not None:
            found = [_in(plain, content_type, field) for field in fields]
            values += [value for here in found if here is not None for value in here]
            if None in found and not values:
                raise InvalidKeyError("no key can be looked for in this body: it is not well formed")
        elif not values:
            raise InvalidKeyError(
                "no key can be looked for in this body: send it without Content-Encoding, or the key in a header"
            )
    if empty_is_none:
        values = [value for value in values if value not in ("", b"")]
    return parse_key(values, rule)


def with_member(body: bytes, name: str, key: str) -> bytes:
    """A JSON object's bytes with the member `name` in front that holds `key`, and nothing else changed.

    As they are where it holds that already. InvalidKeyError where it names another, or where the body is no object.
    """
    try:
        text = body.decode("utf-8")
        whole = json.loads(text)
        found = _members(body, name)
    except (ValueError, RecursionError):
        whole = found = None
    if not isinstance(whole, dict) or found is None:
        raise InvalidKeyError(f"the key goes into the member {name!r}, and the body is no JSON object in UTF-8")
    if name in whole:
        if found != [key]:
            raise InvalidKeyError(f"the body names another key under {name!r}")
        return body
    before, _, after = text.partition("{")
    comma = "," if whole else ""
    return f"{before}{{{json.dumps(name)}:{json.dumps(key)}{comma}{after}".encode()


_URLENCODED: Final = b"application/x-www-form-urlencoded"
_MULTIPART: Final = b"multipart/form-data"
_FORMS: Final = frozenset({_URLENCODED, _MULTIPART})


def _in(body: bytes, content_type: bytes, field: Field) -> Sequence[str] | None:
    """What the body says under the field's name; None where it has that name in it and cannot be read."""
    kind = media_type(content_type)
    match field:
        case JsonMember(name) if kind is None or _is_json(kind.essence):
            values = _members(body, name)
        case FormField(name) if kind is not None and kind.essence == _URLENCODED:
            return _pairs(body, name)
        case FormField(name) if (kind is None and content_type) or (kind is not None and kind.essence == _MULTIPART):
            values = field_values(content_type, body, name)
        case _:
            return ()
    if values is None and name.encode("utf-8") not in body:
        return ()
    return values


def _is_json(essence: bytes) -> bool:
    return essence == b"application/json" or essence.endswith(b"+json")


def _pairs(text: bytes, name: str) -> list[str]:
    # Latin-1 takes any byte; a key is ASCII, so whatever it makes of another is refused.
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    wanted = name.encode("utf-8").decode("latin-1")
    return [value for found, value in pairs if found == wanted]


def _members(body: bytes, name: str) -> list[str] | None:
    """What the outermost object says under `name`, each time it says it: a parser of the application's takes the last
    of two, or the first. None for what is no JSON here. Elsewhere it may be: numbers of any length, other charsets,
    control characters and comments are a matter of the parser."""
    levels: list[list[tuple[str, Any]]] = []

    def object_of(pairs: list[tuple[str, Any]]) -> object:
        levels.append(pairs)
        return levels

    try:
        whole = json.loads(body, object_pairs_hook=object_of)
    except (ValueError, RecursionError):
        return None
    if whole is not levels:
        return []
    values = [value for found, value in levels[-1] if found == name]
    for value in values:
        if value is not None and not isinstance(value, str):
            raise InvalidKeyError(f"the member {name!r} must be text, not {type(value).__name__}")
    return [value for value in values if value is not None]
