"""An intent: what is to happen once, with its key and its bytes, fixed before anything is sent (I8, R33)."""

from __future__ import annotations

import json as json_
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final
from urllib.parse import urlencode
from uuid import UUID, uuid4

from twicesafe.core.contract import Contract, contract_of
from twicesafe.core.keys import KeyRule, check_key, derived_key, key_hint
from twicesafe.core.retry_policy import DEFAULT_BODY_LIMIT
from twicesafe.errors import BodyNotRepeatableError, ConfigurationError

_ABSENT: Final[Any] = object()
_USER: Final = re.compile("//[^/]*@")

Content = bytes | str | BinaryIO | Iterable[bytes]
"""What a body can be made of. A file is read from where it stands."""


@dataclass(frozen=True, slots=True, repr=False)
class Intent:
    """One intent. Make it once, where the wish arises, and send it as often as it takes; nothing in it changes.

    Two intents never share a key, however equal they are otherwise.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    key: str
    contract: Contract
    chosen: bool = field(default=False, compare=False)
    """Whether the caller said the contract. One that only follows from the method gives way to a table of routes."""

    @classmethod
    def new(
        cls,
        method: str,
        url: str,
        *,
        json: Any = _ABSENT,
        form: Mapping[str, str | Sequence[str]] | None = None,
        content: Content | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        key: str | None = None,
        contract: Contract | None = None,
        body_limit: int = DEFAULT_BODY_LIMIT,
    ) -> Intent:
        """An intent with a new random key, or with `key` where the intent was made elsewhere: with the cart, say.

        At most one of `json`, `form` and `content`. The contract is KEYED unless the method is safe; say NEVER where
        the server ignores keys. BodyNotRepeatableError where the body is over `body_limit` bytes.
        """
        lines = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        media_type, body = _frozen(json, form, content, body_limit)
        if media_type is not None and not any(name.lower() == "content-type" for name, _ in lines):
            lines = (*lines, ("Content-Type", media_type))
        method = method.upper()
        return cls(
            method=method,
            url=str(url),
            headers=lines,
            body=body,
            key=check_key(str(uuid4()) if key is None else key, KeyRule()),
            contract=contract_of(method, (), keyed=True) if contract is None else Contract(contract),
            chosen=contract is not None,
        )

    @classmethod
    def derived(cls, name: str, *parts: str | int | UUID, url: str, method: str = "POST", **rest: Any) -> Intent:
        """An intent whose key follows from what it is: `Intent.derived("charge", cart_id, url=...)`.

        Made again after a restart, or by another process, it has the same key; see that it then has the same bytes too.
        `rest` is as in `new()`.
        """
        return cls.new(method, url, key=derived_key(name, *parts), **rest)

    def __repr__(self) -> str:
        # It lands in logs: no name and password, no query, and of the key no more than its hint.
        hint = key_hint(self.key)
        address = _USER.sub("//", re.split("[?#]", self.url, maxsplit=1)[0]).replace(self.key, hint)
        return f"Intent({self.method} {address} key={hint} {len(self.body)} bytes, {self.contract})"


def _frozen(
    json: Any, form: Mapping[str, str | Sequence[str]] | None, content: Content | None, limit: int
) -> tuple[str | None, bytes]:
    """The media type, where the way of giving the body implies one, and the body's bytes."""
    given = [json is not _ABSENT, form is not None, content is not None]
    if sum(given) > 1:
        raise ConfigurationError("give an intent one body: json, form or content")
    if json is not _ABSENT:
        text = json_.dumps(json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        media_type, body = "application/json", text.encode("utf-8")
    elif form is not None:
        media_type, body = "application/x-www-form-urlencoded", urlencode(form, doseq=True).encode("ascii")
    elif content is None:
        return None, b""
    else:
        media_type, body = None, _read(content, limit)
    if len(body) > limit:
        raise body_too_large(limit)
    return media_type, body


def _read(content: Content, limit: int) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    if hasattr(content, "read"):
        return _read_file(content, limit)
    pieces, size = [], 0
    for piece in content:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            break
    return b"".join(pieces)


def _read_file(file: Any, limit: int) -> bytes:
    start = file.tell() if hasattr(file, "seekable") and file.seekable() else None
    body = file.read(limit + 1)
    if not isinstance(body, bytes):
        raise ConfigurationError("open the file of a body in binary mode")
    if len(body) > limit and start is not None:
        file.seek(start)
    return body


def body_too_large(limit: int) -> BodyNotRepeatableError:
    """What is raised before the first send."""
    return BodyNotRepeatableError(
        f"the body is over {limit} bytes and has to be held in memory to be sent twice: raise body_limit, or say that "
        "the operation is never repeated (Contract.NEVER)"
    )


def body_half_read() -> BodyNotRepeatableError:
    """What is raised before the first send, from what broke the reading off."""
    return BodyNotRepeatableError(
        "the body could not be read to its end within the first attempt, and nothing was sent: what is left of it is "
        "another body. Read it before, or give the attempt more time (attempt_timeout)"
    )
