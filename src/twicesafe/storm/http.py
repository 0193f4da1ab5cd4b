"""Requests and answers of the storm's servers, in bare ASGI."""

from __future__ import annotations

import contextlib
import json

from twicesafe.incoming import ASGIScope, Message, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.storm.ledger import Payment
from twicesafe.storm.plan import FAULT_HEADER, KEY_HEADER, Fault
from twicesafe.storm.sabotage import SABOTAGE, Sabotage

ACCOUNT_HEADER = "storm-account"
"""Stands for authentication: who the caller is."""


class ClientGoneError(ConnectionError):
    """The upload ended before the body was whole."""


async def read(receive: Receive) -> Payment:
    """The payment that is asked for. ClientGoneError."""
    return Payment(**json.loads(await read_body(receive)))


async def read_body(receive: Receive) -> bytes:
    """The whole of it. ClientGoneError."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def answer(send: Send, status: int, content: dict[str, str]) -> None:
    """Answer with a JSON object."""
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def header(scope: ASGIScope, name: str) -> str | None:
    """The first line of this name."""
    wanted = name.encode("ascii")
    return next((line.decode("ascii") for found, line in scope["headers"] if found == wanted), None)


def sabotaged(app: ASGIApp, keyed: str = KEY_HEADER) -> ASGIApp:
    """`app`, for which SABOTAGE says what the proxy ordered; may die where the first byte of a success would leave.

    `keyed` is the proxy's.
    """

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        name = header(scope, FAULT_HEADER)
        sabotage = Sabotage(None if name is None else Fault(name), header(scope, keyed) or "")
        SABOTAGE.set(sabotage)

        async def outward(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                sabotage.die_at(Fault.KILL_AFTER_COMMIT)
            await send(message)

        with contextlib.suppress(ClientGoneError):
            await app(scope, receive, outward)

    return serve


def account(scope: ASGIScope) -> str | None:
    """Who the caller is."""
    return header(scope, ACCOUNT_HEADER)
