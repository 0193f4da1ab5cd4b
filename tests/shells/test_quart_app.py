"""A Quart application as a whole: factories, start and end, its test client, and how the extension is misused."""

from __future__ import annotations

from typing import Any

import pytest
from quart import Blueprint, Quart, g, request, websocket
from quart.views import MethodView

from tests.shells.board import board
from tests.shells.board_quart import make
from tests.shells.probe import post as send
from tests.shells.service import STARTED, run, start
from twicesafe import PUBLIC
from twicesafe.errors import ConfigurationError, SchemaError
from twicesafe.quart import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore


def test_an_application_made_by_a_factory():
    """R6, I7: one Idempotency serves blueprints of applications that are made later."""

    async def trial():
        ledger: list[str] = []
        safe = Idempotency(store=AsyncMemoryStore(), scope=lambda: g.user)
        shop = Blueprint("shop", __name__, url_prefix="/<tenant>")

        @shop.before_request
        async def tenant() -> None:
            g.user = request.view_args["tenant"]

        @shop.post("/jobs")
        @safe.operation()
        async def work(tenant: str) -> dict[str, str]:
            ledger.append(tenant)
            return {"tenant": tenant}

        def create() -> Quart:
            app = Quart("app")
            safe.init_app(app)
            app.register_blueprint(shop)
            return app

        for app in (create(), create()):
            for tenant_name in ("ann", "bob"):
                reply = await send(app, path=f"/{tenant_name}/jobs")
                assert reply.body.strip() == b'{"tenant":"%s"}' % tenant_name.encode()
        assert ledger == ["ann", "bob"]

    run(trial())


def test_what_is_not_http_passes():
    """H1: a WebSocket of the application works as ever."""

    async def trial():
        app = Quart("app")
        Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)

        @app.websocket("/ws")
        async def echo() -> None:
            await websocket.send(await websocket.receive())

        async with app.test_client().websocket("/ws") as connection:
            await connection.send("hello")
            assert await connection.receive() == "hello"

    run(trial())


def test_its_test_client_works():
    """R11: the client that Quart's users test with sees answers and replays."""

    async def trial():
        served = board(make)
        client = served.app.test_client()
        replies = [
            await client.post("/jobs", json={"amount": 1}, headers={"x-user": "ann", "idempotency-key": "some-key-1"})
            for _ in range(2)
        ]
        assert served.ledger == [1]
        assert [reply.status_code for reply in replies] == [201, 201]
        assert await replies[0].get_data() == await replies[1].get_data()
        assert replies[1].headers["idempotent-replayed"] == "true"

    run(trial())


def test_starting_and_ending(tmp_path):
    """R14, R23: without its tables an application does not start; the functions before serving may make them."""

    async def trial():
        for makes in (False, True):
            app, sent = Quart("app"), []
            store = AsyncSqliteStore(tmp_path / "bank.db")
            Idempotency(app, store, scope=PUBLIC)
            if makes:
                app.before_serving(store.apply_schema)
                app.after_serving(store.aclose)
                assert [message["type"] for message in await start(app)] == STARTED
            else:
                with pytest.raises(SchemaError):
                    await start(app, sent)
                assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
                await store.aclose()

    run(trial())


def test_contracts_that_cannot_hold_are_refused():
    """R2, R23: where it is made, each of these says what is wrong."""
    app, store = Quart("app"), AsyncMemoryStore()
    safe = Idempotency(app, store, scope=PUBLIC)
    with pytest.raises(ConfigurationError, match="with parentheses"):
        safe.operation(lambda: None)
    with pytest.raises(ConfigurationError, match="has no transactions"):
        safe.operation(effects="transactional", name="tx")(lambda: None)
    with pytest.raises(ConfigurationError, match="not on the class"):
        safe.operation()(Quart)
    with pytest.raises(ConfigurationError, match="scope must be"):
        Idempotency(app, store, scope="ann")
    with pytest.raises(ConfigurationError, match="store="):
        Idempotency(app, scope=PUBLIC)
    with pytest.raises(ConfigurationError, match="pass the Quart application"):
        Idempotency("app", store, scope=PUBLIC)


def test_contracts_in_the_wrong_place_are_refused():
    """R2, R22: a contract above its route, and a route with a method that takes no key, prevent the start."""

    async def trial():
        async def start_of(app: Quart) -> list[str]:
            sent: list[dict[str, Any]] = []
            with pytest.raises(ConfigurationError):
                await start(app, sent)
            return [str(message["message"]) for message in sent]

        app = Quart("app")
        safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)
        with pytest.raises(ConfigurationError, match="put it below"):

            @safe.operation()
            @app.post("/jobs")
            async def work() -> str:
                return "done"

        blueprint = Blueprint("more", __name__)

        @safe.operation()
        @blueprint.post("/more")
        async def more() -> str:
            return "done"

        app.register_blueprint(blueprint)
        assert "put it below" in (await start_of(app))[0]

        for kind in ("function", "class"):
            app = Quart("app")
            safe = Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)
            if kind == "function":

                @app.route("/jobs", methods=["GET", "PUT"])
                @safe.operation()
                async def put_work() -> str:
                    return "done"

            else:

                class Work(MethodView):
                    @safe.operation()
                    async def put(self) -> str:
                        return "done"

                    async def delete(self) -> str:
                        return "done"

                app.add_url_rule("/jobs", view_func=Work.as_view("work"))
            assert "route for PUT" in (await start_of(app))[0]

    run(trial())


def test_blocking_views_cannot_be_transactional(tmp_path):
    """R23: a connection of the event loop is of no use in a thread."""

    async def trial():
        store = AsyncSqliteStore(tmp_path / "bank.db")
        safe = Idempotency(Quart("app"), store, scope=PUBLIC)
        with pytest.raises(ConfigurationError, match="async def"):

            @safe.operation(effects="transactional")
            def tx() -> None: ...

        await store.aclose()

    run(trial())


def test_elsewhere_nothing_runs():
    """R22: an operation of an application that it was not made for answers 500, instead of running unprotected."""

    async def trial():
        served, other = board(make), Quart("other")
        ledger: list[int] = []

        @other.post("/other")
        @served.safe.operation(name="other")
        async def view() -> str:
            ledger.append(1)
            return "done"

        assert (await send(other, path="/other")).status == 500
        assert ledger == []

    run(trial())
