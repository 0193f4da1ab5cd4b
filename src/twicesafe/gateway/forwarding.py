"""The innermost application: one request to the upstream, its answer to whoever asked.

Under a key that is the shell, which records the answer before it lets go of it; without one, the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from twicesafe.core.policy import Policy
from twicesafe.core.record import HeaderLines
from twicesafe.gateway.hang_up import HangUp
from twicesafe.gateway.lines import Onward, back, raw_path
from twicesafe.gateway.upstream import Answering, NotSentError, Upstream
from twicesafe.incoming import ASGIScope, ClientGoneError, Message, Receive
from twicesafe.keyed import KeyedRequest, Send

CALL: Final = "upstream"
"""The name of a gateway's one downstream call, from which the key that the upstream sees is derived."""


class Forwarding:
    """Passes requests on."""

    def __init__(self, upstream: Upstream, onward: Onward, policy: Policy, key_header: bytes) -> None:
        self._upstream = upstream
        self._onward = onward
        self._announced = tuple([name for name, _ in policy.announced])
        self._key_header = key_header

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """UpstreamError where there is no answer, or no whole one; ClientGoneError where nobody waits for it."""
        found = scope.get("twicesafe")
        keyed = found if isinstance(found, KeyedRequest) and found.claims else None
        async with HangUp(receive) as hang_up:
            if keyed is None:
                body, framing = await _passing(scope["headers"], receive, hang_up)
            else:
                # It is whole already, and of a known length it suits every upstream.
                body, framing = await _whole(scope["headers"], receive, hang_up)
                framing += ((self._key_header, keyed.derived_key(CALL).encode("ascii")),)
            query: bytes = scope["query_string"]
            target = raw_path(scope) + (b"?" + query if query else b"")
            lines = self._onward.lines(scope, framing)
            try:
                answering = await hang_up.unless(self._upstream.ask(scope["method"], target, lines, body))
            except NotSentError:
                if keyed is not None:
                    keyed.entered = False
                raise
            async with answering:
                hang_up.watch()
                await _answer(answering, self._announced if keyed else (), hang_up, send)


async def _whole(came: HeaderLines, receive: Receive, hang_up: HangUp) -> tuple[bytes, HeaderLines]:
    parts = []
    more = True
    while more:
        message = await _next(receive)
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    hang_up.watch()
    body = b"".join(parts)
    return body, _framing(came, body)


async def _passing(
    came: HeaderLines, receive: Receive, hang_up: HangUp
) -> tuple[bytes | AsyncIterator[bytes], HeaderLines]:
    first = await _next(receive)
    if not first.get("more_body", False):
        hang_up.watch()
        body: bytes = first.get("body", b"")
        return body, _framing(came, body)
    chunked = () if any(name == b"content-length" for name, _ in came) else ((b"transfer-encoding", b"chunked"),)
    return _streaming(first, receive, hang_up), chunked


def _framing(came: HeaderLines, body: bytes) -> HeaderLines:
    """The line that a whole body needs besides those that came. None needs none."""
    names = {name for name, _ in came}
    if b"content-length" in names or not (body or b"transfer-encoding" in names):
        return ()
    return ((b"content-length", b"%d" % len(body)),)


async def _streaming(first: Message, receive: Receive, hang_up: HangUp) -> AsyncIterator[bytes]:
    message = first
    while True:
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            hang_up.watch()
            return
        message = await _next(receive)


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError("the caller hung up before its request was whole")
    return message


async def _answer(answering: Answering, announced: tuple[bytes, ...], hang_up: HangUp, send: Send) -> None:
    """Each piece as it comes. The last one says that it is, where the length tells."""
    lines = back(answering.lines, announced)
    if answering.status == 204:
        # It has no body, so that a length is a mistake (RFC 9110, 8.6).
        lines = [line for line in lines if line[0] != b"content-length"]
    length = next((int(line) for name, line in lines if name == b"content-length"), -1)
    try:
        await send({"type": "http.response.start", "status": answering.status, "headers": lines})
        came = 0
        while piece := await hang_up.unless(answering.piece()):
            came += len(piece)
            if came == length:
                # Lets the connection be used again.
                await hang_up.unless(answering.piece())
                await send({"type": "http.response.body", "body": piece, "more_body": False})
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except OSError as error:
        raise ClientGoneError("the caller hung up") from error
