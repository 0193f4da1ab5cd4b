"""Bodies as bytes: those that are sent, before the first attempt, and those that come back, until the deadline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twicesafe.client._library import Library
from twicesafe.client.intents import body_too_large
from twicesafe.core.answers import JUDGED_BODY, is_json

# --- requests --------------------------------------------------------------------------------------------------------


def freeze(request: Any, library: Library, limit: int) -> None:
    """Make the request's body one that can be sent again. BodyNotRepeatableError where it is over `limit` bytes.

    A stream is read to its end, a file from where it stands. One that says beforehand that it is too large is not
    touched.
    """
    if isinstance(request.stream, library.ByteStream):
        return
    _check_declared(request, limit)
    pieces, size = [], 0
    for piece in request.stream:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise body_too_large(limit)
    _replace(request, library, b"".join(pieces))


async def afreeze(request: Any, library: Library, limit: int) -> None:
    """`freeze()`, for streams that are awaited, and for files, which are not."""
    if isinstance(request.stream, library.ByteStream):
        return
    if not hasattr(request.stream, "__aiter__"):
        freeze(request, library, limit)
        return
    _check_declared(request, limit)
    pieces, size = [], 0
    async for piece in request.stream:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise body_too_large(limit)
    _replace(request, library, b"".join(pieces))


def _check_declared(request: Any, limit: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise body_too_large(limit)


def _replace(request: Any, library: Library, body: bytes) -> None:
    request.stream = library.ByteStream(body)
    if "content-length" in request.headers:
        # httpx counts a file from its beginning, wherever it stands.
        request.headers["content-length"] = str(len(body))


# --- responses -------------------------------------------------------------------------------------------------------


def is_worth_reading(response: Any) -> bool:
    """Whether an error's body is read before its caller asks for it: to judge it, and to keep the connection."""
    if response.status_code < 400:
        return False
    declared = response.headers.get("content-length")
    if declared is None:
        return is_json(response.headers.raw)
    return bool(declared.isdigit()) and int(declared) <= JUDGED_BODY


def collect(response: Any, library: Library, until: float, clock: Callable[[], float]) -> None:
    """Read a response's raw body, so that the response can still be read by its caller. TimeoutError past `until`."""
    if _is_over(response):
        response.close()
        return
    pieces, missing = [], _length(response)
    stream = response.stream
    try:
        for piece in stream:
            pieces.append(piece)
            missing -= len(piece)
            if missing and clock() >= until:
                raise TimeoutError("the deadline passed while the response was read")
    finally:
        stream.close()
    _put_back(response, library, stream, pieces)


async def acollect(response: Any, library: Library) -> None:
    """`collect()`, for responses that are awaited; whoever awaits it limits it."""
    if _is_over(response):
        await response.aclose()
        return
    stream = response.stream
    try:
        pieces = [piece async for piece in stream]
    finally:
        await stream.aclose()
    _put_back(response, library, stream, pieces)


def _is_over(response: Any) -> bool:
    """Whether a hook, or a layer below, has read or closed it. Its connection may be another's by now."""
    return bool(response.is_stream_consumed or response.is_closed)


def _put_back(response: Any, library: Library, stream: Any, pieces: list[bytes]) -> None:
    response.stream = library.ByteStream(b"".join(pieces))
    elapsed = getattr(stream, "elapsed", None)
    if elapsed is not None:
        response.elapsed = elapsed


def decoded(response: Any, library: Library) -> bytes | None:
    """The body of a response that was collected, without its content coding; None where that is broken or gone."""
    with suppress(library.ResponseNotRead):
        read: bytes = response.content
        return read
    if _is_over(response):
        return None
    body = b"".join(response.stream)
    if "content-encoding" not in response.headers:
        return body
    copy = library.Response(response.status_code, headers=response.headers, stream=library.ByteStream(body))
    try:
        plain: bytes = copy.read()
    except library.DecodingError:
        return None
    return plain


def _length(response: Any) -> int:
    """The declared length, or -1, which no reading brings to 0."""
    declared = response.headers.get("content-length", "")
    return int(declared) if declared.isdigit() and len(declared) < 19 else -1
