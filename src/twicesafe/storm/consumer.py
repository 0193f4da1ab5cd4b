"""The consumer's process in a storm with an outbox: a row in a ledger of its own for each event it hears of.

It has a database of its own and an inbox there. The naive one has no inbox, and does what each delivery says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from twicesafe.inbox import AsyncInbox
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, Send
from twicesafe.outbox import Message
from twicesafe.receiving import AsyncWebhookReceiver
from twicesafe.stores.contract import AsyncStore
from twicesafe.storm.announcing import SECRET, SOURCE, SUBJECT_HEADER, heard
from twicesafe.storm.databases import ledger_in
from twicesafe.storm.http import answer, read_body, sabotaged
from twicesafe.storm.ledger import Ledger
from twicesafe.storm.plan import Fault
from twicesafe.storm.reaching import reached
from twicesafe.storm.sabotage import SABOTAGE
from twicesafe.storm.serving import serve_storm
from twicesafe.storm.started import say_noted

CONSUMER: Final = "storm"
DELIVERED: Final = "delivered"


class OrderedFailure(Exception):  # noqa: N818 - it is an order, carried out
    """The handler fails, because it was told to."""


def work(told: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    serve_storm(partial(_opened, told))


async def _opened(told: dict[str, Any], stack: AsyncExitStack) -> ASGIApp:
    url = told["store"]
    ledger = await stack.enter_async_context(ledger_in(url))
    if told["naive"]:
        return sabotaged(_failing(_naive(ledger)), SUBJECT_HEADER)
    store = await stack.enter_async_context(reached(url))
    receiver = AsyncWebhookReceiver(
        AsyncInbox(CONSUMER),
        secrets=SECRET,
        source=SOURCE,
        begin=partial(_transaction, store),
        handle=partial(_handle, ledger),
    )
    return sabotaged(_failing(receiver), SUBJECT_HEADER)


@asynccontextmanager
async def _transaction(store: AsyncStore) -> AsyncIterator[Any]:
    say_noted(DELIVERED)
    async with store.transaction() as transaction:
        await transaction.begin()
        yield transaction.connection
        await transaction.commit()


async def _handle(ledger: Ledger, connection: Any, message: Message) -> None:
    await _effect(ledger, connection, message.data)


async def _effect(ledger: Ledger, connection: Any, data: bytes) -> None:
    sabotage = SABOTAGE.get()
    sabotage.die_at(Fault.KILL_AFTER_CLAIM)
    await ledger.write(connection, *heard(data))
    sabotage.die_at(Fault.KILL_AFTER_EFFECT)
    if sabotage.fault is Fault.HANDLER_FAILS:
        raise OrderedFailure


def _naive(ledger: Ledger) -> ASGIApp:
    async def serve(_scope: ASGIScope, receive: Receive, send: Send) -> None:
        data = await read_body(receive)
        say_noted(DELIVERED)
        async with ledger.transaction() as connection:
            await _effect(ledger, connection, data)
        await answer(send, 200, {})

    return serve


def _failing(app: Any) -> ASGIApp:
    """`app`, which answers an ordered failure like any other, and keeps it out of the log."""

    async def serve(scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except OrderedFailure:
            await answer(send, 500, {})

    return serve
