"""A Starlette application as a whole: start and end, its test client, and how contracts are misused."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient

from tests.shells.probe import Wire, post
from tests.shells.service import STARTED, keep_references, run, start
from tests.shells.starlette_shop import Shop
from twicesafe import PUBLIC
from twicesafe.errors import ConfigurationError, SchemaError
from twicesafe.starlette import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore


def test_what_is_not_http_passes():
    """H1: a WebSocket of the application works as ever, and so does the client that Starlette's users test with."""
    shop = Shop()

    async def echo(socket):
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.close()

    app = Starlette(routes=[*shop.routes, WebSocketRoute("/ws", echo)], middleware=[shop.safe.middleware])
    with TestClient(app) as client:
        with client.websocket_connect("/ws", headers={"idempotency-key": "some-key-1"}) as socket:
            socket.send_text("hello")
            assert socket.receive_text() == "hello"
        replies = [client.post("/jobs", json={"amount": 1}, headers={"idempotency-key": "some-key-1"}) for _ in "12"]
    assert shop.ledger == ["/jobs"]
    assert [reply.status_code for reply in replies] == [201, 201]
    assert replies[1].headers["idempotent-replayed"] == "true"


def test_a_shutdown_waits_for_work_whose_client_is_gone():
    """A1, R14: the lifespan ends when what was begun is done and recorded."""

    async def trial():
        waiting, go = asyncio.Event(), asyncio.Event()
        shop = Shop()

        @shop.safe.operation()
        async def slow(request):
            waiting.set()
            await go.wait()
            shop.ledger.append("slow")
            return PlainTextResponse("done")

        app = Starlette(routes=[Route("/jobs", slow, methods=["POST"])], middleware=[shop.safe.middleware])
        wire = Wire(app).start()
        await waiting.wait()
        wire.task.cancel()
        await wire.end()
        asyncio.get_running_loop().call_soon(go.set)
        assert [message["type"] for message in await start(app)] == STARTED
        assert shop.ledger == ["slow"]
        assert (await post(app)).replayed

    run(trial())


def test_without_tables_it_does_not_start(tmp_path):
    """R23: an application whose store has no tables says so when it starts."""

    async def trial():
        store = AsyncSqliteStore(tmp_path / "bank.db", configure=keep_references)
        safe = Idempotency(store, scope=PUBLIC)
        sent: list[dict] = []
        with pytest.raises(SchemaError):
            await start(Starlette(middleware=[safe.middleware]), sent)
        assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
        await store.apply_schema()
        assert [message["type"] for message in await start(Starlette(middleware=[safe.middleware]))] == STARTED
        await store.aclose()

    run(trial())


def test_contracts_that_cannot_hold_are_refused(tmp_path):
    """R2, R23: where it is made, each of these says what is wrong."""

    async def trial():
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)
        with pytest.raises(ConfigurationError, match="with parentheses"):
            safe.operation(print)
        with pytest.raises(ConfigurationError, match="has no transactions"):
            safe.operation(effects="transactional")(print)
        with pytest.raises(ConfigurationError, match="methods of HTTPEndpoint"):
            safe.operation()(HTTPEndpoint)
        with pytest.raises(ConfigurationError, match="scope must be"):
            Idempotency(AsyncMemoryStore(), scope="ann")
        wrapped = safe.operation(name="one")(partial(print))
        with pytest.raises(ConfigurationError, match="two operations are called 'one'"):
            safe.operation(name="one")(print)
        with pytest.raises(ConfigurationError, match="is an operation already"):
            safe.operation(name="two")(wrapped)
        store = AsyncSqliteStore(tmp_path / "bank.db")
        with pytest.raises(ConfigurationError, match="async def"):
            Idempotency(store, scope=PUBLIC).operation(effects="transactional")(print)
        await store.aclose()

    run(trial())


@pytest.mark.parametrize("kind", ["function", "class"])
def test_a_route_by_a_method_that_takes_no_key_is_refused(kind):
    """R2: a route with PUT under a contract for POST and PATCH prevents the start, mounted or not."""

    async def trial():
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        class Work(HTTPEndpoint):
            @safe.operation()
            async def put(self, request):
                return PlainTextResponse("done")

            async def delete(self, request):
                return PlainTextResponse("done")

        @safe.operation()
        async def work(request):
            return PlainTextResponse("done")

        wrong = Route("/jobs", Work) if kind == "class" else Route("/jobs", work, methods=["GET", "PUT"])
        app, sent = Starlette(routes=[Mount("/v1", routes=[wrong])], middleware=[safe.middleware]), []
        with pytest.raises(ConfigurationError, match="route for PUT"):
            await start(app, sent)
        assert [message["type"] for message in sent] == ["lifespan.startup.failed"]

    run(trial())


def test_without_the_middleware_nothing_runs():
    """R22: an operation of an application that has not the middleware is an error, instead of running unprotected."""

    async def trial():
        shop = Shop()
        failed = await post(Starlette(routes=shop.routes), raises=ConfigurationError)
        assert (failed.status, shop.ledger) == (500, [])
        assert "nothing protects it" in str(failed.raised)

    run(trial())
