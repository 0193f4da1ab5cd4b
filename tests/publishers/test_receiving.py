"""Receivers of webhooks, behind FastAPI, Flask and Django, on a database: what a publisher sends happens once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import fastapi
import flask
import httpx2
import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.views.decorators.csrf import csrf_exempt

from tests.core.test_signatures import OTHER, SECRET
from tests.publishers.messages import made
from tests.stores.django_kinds import alias_of, forget
from twicesafe.core.message import Message, ce_headers
from twicesafe.core.signatures import read_secrets, sign
from twicesafe.errors import NotDeliveredError
from twicesafe.inbox import AsyncInbox, Inbox
from twicesafe.publishers.webhooks import WebhookPublisher
from twicesafe.receiving import Answer, AsyncWebhookReceiver, WebhookReceiver
from twicesafe.stores.sqlite import SqliteStore

NOW = 1_800_000_000.0
SOURCE = "/shop"


class BrokenError(Exception):
    """What the effect meets."""


class Books:
    """A database of invoices with the inbox's tables."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.broken = False
        with closing(SqliteStore(self.path)) as store:
            store.apply_schema()
        with self.begin() as connection:
            connection.execute("CREATE TABLE invoices (message TEXT, data TEXT)")

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        """A transaction, committed at its end."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @asynccontextmanager
    async def abegin(self) -> AsyncIterator[aiosqlite.Connection]:
        async with aiosqlite.connect(self.path, isolation_level=None, timeout=30) as connection:
            await connection.execute("BEGIN IMMEDIATE")
            yield connection
            await connection.commit()

    @contextmanager
    def atomic(self) -> Iterator[str]:
        alias = alias_of("sqlite3", self.path)
        try:
            with transaction.atomic(alias):
                yield alias
        finally:
            forget(alias)

    def write(self, connection: Any, message: Message) -> None:
        """The effect."""
        where = connections[connection].cursor() if isinstance(connection, str) else connection
        mark = "%s" if isinstance(connection, str) else "?"
        statement = f"INSERT INTO invoices VALUES ({mark}, {mark})"
        where.execute(statement, (message.id, message.data.decode()))
        if self.broken:
            raise BrokenError

    async def awrite(self, connection: aiosqlite.Connection, message: Message) -> None:
        await connection.execute("INSERT INTO invoices VALUES (?, ?)", (message.id, message.data.decode()))
        if self.broken:
            raise BrokenError

    def invoices(self) -> list[tuple[str, str]]:
        """What is committed."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT message, data FROM invoices ORDER BY rowid").fetchall()

    def receiver(self, begin: Callable[[], Any] | None = None, **options: Any) -> WebhookReceiver:
        given = {"secrets": SECRET, "source": SOURCE, "clock": lambda: NOW, **options}
        return WebhookReceiver(Inbox("billing"), begin=begin or self.begin, handle=self.write, **given)

    def areceiver(self, **options: Any) -> AsyncWebhookReceiver:
        given = {"secrets": SECRET, "source": SOURCE, "clock": lambda: NOW, **options}
        return AsyncWebhookReceiver(AsyncInbox("billing"), begin=self.abegin, handle=self.awrite, **given)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "books.db")


def behind_fastapi(books: Books) -> httpx2.AsyncBaseTransport:
    app = fastapi.FastAPI()
    app.add_route("/webhooks", books.areceiver(), methods=["POST"])
    return httpx2.ASGITransport(app, raise_app_exceptions=False)


def behind_flask(books: Books) -> httpx2.AsyncBaseTransport:
    app = flask.Flask("receiver")
    receiver = books.receiver()

    @app.post("/webhooks")
    def webhooks() -> Any:
        return receiver.receive(flask.request.headers, flask.request.get_data())

    def ask(request: httpx2.Request) -> httpx2.Response:
        came = app.test_client().post("/webhooks", data=request.content, headers=request.headers.multi_items())
        return httpx2.Response(came.status_code, headers=dict(came.headers), content=came.data)

    return httpx2.MockTransport(ask)


def behind_django(books: Books) -> httpx2.AsyncBaseTransport:
    receiver = books.receiver(books.atomic)

    @csrf_exempt
    def webhooks(request: HttpRequest) -> HttpResponse:
        answer = receiver.receive(request.headers, request.body)
        return HttpResponse(answer.body, status=answer.status, headers=answer.headers)

    def answered(request: httpx2.Request) -> httpx2.Response:
        headers = {name: value for name, value in request.headers.items() if name != "content-type"}
        asked = RequestFactory().post(
            "/webhooks", request.content, content_type=request.headers["content-type"], headers=headers
        )
        try:
            came = webhooks(asked)
        except BrokenError:
            return httpx2.Response(500)
        return httpx2.Response(came.status_code, headers=dict(came.headers), content=came.content)

    async def ask(request: httpx2.Request) -> httpx2.Response:
        return await asyncio.to_thread(answered, request)

    return httpx2.MockTransport(ask)


@pytest.mark.parametrize("behind", [behind_fastapi, behind_flask, behind_django])
def test_what_is_sent_twice_happens_once(behind: Callable[[Books], Any], books: Books) -> None:
    """I9, R29: a failure leaves nothing and is tried again; what was handled is acknowledged once more."""

    async def main() -> None:
        async with httpx2.AsyncClient(transport=behind(books)) as client:
            publisher = WebhookPublisher("http://shop/webhooks", secrets=SECRET, client=client, clock=lambda: NOW)
            message, other = made(), made()
            books.broken = True
            with pytest.raises(NotDeliveredError, match="500"):
                await publisher.publish(message)
            assert books.invoices() == []
            books.broken = False
            for sent in (message, message, other, message):
                await publisher.publish(sent)
            data = message.data.decode()
            assert books.invoices() == [(message.id, data), (other.id, data)]
            stranger = WebhookPublisher("http://shop/webhooks", secrets=OTHER, client=client, clock=lambda: NOW)
            with pytest.raises(NotDeliveredError, match="401"):
                await stranger.publish(made())
            assert len(books.invoices()) == 2

    asyncio.run(main())


def signed(message: Message, **changed: str) -> Mapping[str, str]:
    """What a publisher sends, and what somebody on the way makes of it."""
    lines = dict(ce_headers(message)) | dict(sign(read_secrets(SECRET), message.id, int(NOW), message.data))
    return lines | {name.replace("_", "-"): value for name, value in changed.items()}


def test_what_is_not_signed_does_not_make_a_message_new(books: Books) -> None:
    """R29: whoever changes the id or source that stand beside the signature has the message refused, not done again."""
    receiver = books.receiver()
    message = made()
    assert receiver.receive(signed(message), message.data).status == 204
    for changed in ({"ce_id": "another"}, {"ce_source": "/elsewhere"}, {"ce_specversion": "2.0"}, {"ce_type": ""}):
        assert receiver.receive(signed(message, **changed), message.data).status == 400
    for name in ("ce_id", "cloudEvents_id", "cloudEvents:id"):
        assert receiver.receive({**signed(message), name: "another"}, message.data).status == 400
    assert receiver.receive(signed(message, webhook_id="another", ce_id="another"), message.data).status == 401
    assert receiver.receive(signed(message, webhook_id="\udcff"), message.data).status == 401
    assert receiver.receive(signed(message, webhook_signature="v1,\udcff"), message.data).status == 401
    assert receiver.receive({}, message.data).status == 401
    assert receiver.receive(signed(message), b"{}").status == 401
    assert [invoice for invoice, _ in books.invoices()] == [message.id]


def test_a_message_is_the_same_without_what_is_not_signed(books: Books) -> None:
    """I9, R29: an id that a header cannot carry stays one, also where somebody takes the event's headers off."""
    receiver = books.receiver()
    message = made()._replace(id="é 1%")
    lines = dict(ce_headers(message))
    lines |= dict(sign(read_secrets(SECRET), lines["ce-id"], int(NOW), message.data))
    for missing in ("", "ce-id"):
        sent = {name: text for name, text in lines.items() if name != missing}
        assert receiver.receive(sent, message.data).status == 204
    assert [invoice for invoice, _ in books.invoices()] == [message.id]


def test_an_id_that_is_signed_encoded_is_the_same_id(books: Books) -> None:
    """I9, R29: with its event's headers and without them; as it stands there it is refused, and nothing is done."""

    async def main() -> None:
        message = made()._replace(id="order.1800000000")
        sent: list[Mapping[str, str]] = []

        def ask(request: httpx2.Request) -> httpx2.Response:
            sent.append(dict(request.headers))
            return httpx2.Response(receiver.receive(sent[-1], request.content).status)

        receiver = books.receiver()
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(ask)) as client:
            publisher = WebhookPublisher("http://shop/webhooks", secrets=SECRET, client=client, clock=lambda: NOW)
            await publisher.publish(message)
        without = {name: text for name, text in sent[0].items() if name != "ce-id"}
        assert receiver.receive(without, message.data).status == 204
        assert receiver.receive({**sent[0], "webhook-id": message.id}, message.data).status == 401
        assert [invoice for invoice, _ in books.invoices()] == [message.id]

    asyncio.run(main())


def test_a_sender_without_cloudevents_is_understood(books: Books) -> None:
    """R29: of those who speak Standard Webhooks only the signed id is taken, and the source from the receiver."""
    receiver = books.receiver()
    lines = {"Content-Type": "application/json"} | dict(sign(read_secrets(SECRET), "msg_1", int(NOW), b"{}"))
    assert [receiver.receive(lines, b"{}").status for _ in range(2)] == [204, 204]
    assert books.invoices() == [("msg_1", "{}")]


def test_an_acknowledgement_comes_after_the_commit(books: Books) -> None:
    """R29, I11: where the commit fails there is no 2xx, and nothing is left of the message."""

    @contextmanager
    def failing() -> Iterator[sqlite3.Connection]:
        with books.begin() as connection:
            yield connection
            raise BrokenError

    message = made()
    with pytest.raises(BrokenError):
        books.receiver(failing).receive(signed(message), message.data)
    assert books.invoices() == []
    assert books.receiver().receive(signed(message), message.data) == Answer(b"", 204, {})
    assert [invoice for invoice, _ in books.invoices()] == [message.id]


def test_the_application_reads_no_more_than_its_limit(books: Books) -> None:
    """R29: a body over the limit, and what is no POST, is answered without being read to its end or handled."""

    async def main() -> None:
        transport = httpx2.ASGITransport(books.areceiver(limit=100))
        async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
            message = made(data=b"x" * 101)
            came = await client.post("/", content=message.data, headers=signed(message))
            assert (came.status_code, came.headers["content-type"]) == (413, "application/problem+json")
            assert (await client.get("/")).status_code == 405

    asyncio.run(main())
    assert books.invoices() == []
