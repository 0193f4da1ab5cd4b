"""A Litestar application as a whole: its OpenAPI document, its start and end, and how the plugin is misused."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from litestar import Controller, Litestar, Request, Router, delete, get, post, put
from litestar.di import NamedDependency
from litestar.openapi.config import OpenAPIConfig
from litestar.params import FromQuery, JSONBody

from tests.shells.board import board
from tests.shells.board_litestar import make
from tests.shells.probe import Wire
from tests.shells.probe import post as send
from tests.shells.service import STARTED, Work, keep_references, run, start
from twicesafe import PUBLIC
from twicesafe.errors import ConfigurationError, SchemaError, StoreUnavailableError
from twicesafe.litestar import Idempotency, KeyedRequest
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore


def app(*handlers: Any, **how: Any) -> Litestar:
    return Litestar(list(handlers), **{"openapi_config": None, "logging_config": None, **how})


def test_the_document_has_the_contract():
    """R20, R21: the OpenAPI document tells of the key and of the problems, beside what was there."""

    async def trial():
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        @post("/jobs")
        @safe.operation(required=True)
        async def work(data: JSONBody[Work], page: FromQuery[int] = 1) -> dict[str, int]:
            """Does it."""
            return {}

        @post("/free")
        async def free() -> dict[str, int]:
            return {}

        served = app(
            Router("/v1", route_handlers=[work, free]),
            plugins=[safe],
            openapi_config=OpenAPIConfig(title="t", version="1", use_handler_docstrings=True),
        )
        document = served.openapi_schema.to_schema()
        operation = document["paths"]["/v1/jobs"]["post"]
        [key] = [one for one in operation["parameters"] if one["in"] == "header"]
        assert (key["name"], key["required"]) == ("Idempotency-Key", True)
        assert [one["name"] for one in operation["parameters"]] == ["page", "Idempotency-Key"]
        assert operation["description"] == "Does it."
        assert {"201", "400", "409", "422"} <= operation["responses"].keys()
        assert operation["x-idempotency"]["required"] is True
        problem = operation["responses"]["409"]["content"]["application/problem+json"]["schema"]
        assert problem["title"] == "Idempotency problem"
        assert "Work" in document["components"]["schemas"]
        assert "parameters" not in document["paths"]["/v1/free"]["post"]
        reply = await send(served, path="/schema/openapi.json", method="GET", key=None)
        assert b'"x-idempotency"' in reply.body

    run(trial())


def test_starting_and_ending():
    """R14, R44: an application without its tables does not start; with them it does, and its end waits for work."""

    async def trial():
        served = board(make)
        waiting, go, over = asyncio.Event(), asyncio.Event(), []

        async def before():
            waiting.set()
            await go.wait()

        served.before = before
        served.app.on_shutdown.append(lambda: over.append(list(served.ledger)))
        wire = Wire(served.app, headers=[(b"x-user", b"ann"), (b"content-type", b"application/json")]).start()
        await waiting.wait()
        wire.task.cancel()
        await wire.end()
        asyncio.get_running_loop().call_soon(go.set)
        assert [message["type"] for message in await start(served.app)] == STARTED
        assert over == [[1]]

    run(trial())


def test_without_tables_it_does_not_start(tmp_path):
    """R23: the store's tables are looked for after the application's own start, which may make them."""

    async def trial():
        store = AsyncSqliteStore(tmp_path / "bank.db", configure=keep_references)
        safe = Idempotency(store, scope=PUBLIC)
        sent: list[dict[str, Any]] = []
        with pytest.raises(ExceptionGroup) as failed:
            await start(app(plugins=[safe]), sent)
        assert failed.group_contains(SchemaError)
        assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
        assert await start(app(plugins=[safe], on_startup=[store.apply_schema], on_shutdown=[store.aclose]))

    run(trial())


def test_a_store_that_cannot_be_reached_at_the_start_is_told(tmp_path):
    """R44: it may be back before the first request, so the application starts."""

    async def trial():
        served = board(make)

        async def gone():
            raise StoreUnavailableError("gone")

        served.store.check_schema = gone
        assert [message["type"] for message in await start(served.app)] == STARTED
        assert served.told == ["store.unavailable"]

    run(trial())


def safe_and(**how: Any) -> Idempotency:
    return Idempotency(AsyncMemoryStore(), scope=PUBLIC, **how)


def test_without_the_plugin_nothing_runs():
    """R22: an operation of an application that was not given the plugin answers 500, instead of running unprotected."""

    async def trial():
        ledger: list[int] = []
        safe = safe_and()

        @post("/jobs")
        @safe.operation()
        async def work() -> dict[str, int]:
            ledger.append(1)
            return {}

        served = app(work)
        assert (await send(served)).status == 500
        assert ledger == []

    run(trial())


def test_contracts_that_cannot_hold_are_refused():
    """R2, R23: where it is made, each of these says what is wrong."""
    safe = safe_and()
    with pytest.raises(ConfigurationError, match="with parentheses"):
        safe.operation(lambda: None)
    with pytest.raises(ConfigurationError, match="has no transactions"):

        @safe.operation(effects="transactional")
        async def tx(connection: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="scope must be"):
        Idempotency(AsyncMemoryStore(), scope="ann")

    @safe.operation()
    async def work() -> dict[str, int]:
        return {}

    with pytest.raises(ConfigurationError, match="two operations are called 'work'"):
        safe.operation(name="work")(lambda: None)
    with pytest.raises(ConfigurationError, match="is an operation already"):
        safe.operation(name="other")(work)
    with pytest.raises(ConfigurationError, match="put it below"):

        @safe.operation()
        @post("/other")
        async def other() -> dict[str, int]:
            return {}

    with pytest.raises(ConfigurationError, match="takes keys with"):
        app(put("/jobs", status_code=200)(work), plugins=[safe])


@pytest.mark.parametrize("threaded", [False, True])
def test_blocking_work_claims_before_it_has_a_thread(threaded):
    """C8, R14: many handlers that block, of one controller, on one thread: each claims before it takes it, and ends."""

    async def trial():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        safe = safe_and()
        store, ledger = safe._shared.store, []
        claim = store.claim

        async def claim_in_a_thread(wanted: Any) -> Any:
            await asyncio.to_thread(ledger.append, "claim")
            return await claim(wanted)

        store.claim = claim_in_a_thread

        class Charges(Controller):
            path = "/jobs"

            @delete(["/", "/other"], status_code=200, sync_to_thread=threaded)
            @safe.operation(methods={"DELETE"})
            def remove(self, request: Request, keyed_request: KeyedRequest) -> dict[str, str]:
                ledger.append("work")
                return {"key": keyed_request.key, "path": request.url.path, "owner": type(self).__name__}

        served = app(Charges, plugins=[safe])
        wires = [Wire(served, method="DELETE", key=f"some-key-{n}").start() for n in range(5)]
        replies = [await wire.end() for wire in wires]
        assert ledger.count("work") == 5
        assert [reply.status for reply in replies] == [200] * 5
        assert b'"owner":"Charges"' in replies[0].body and b'"some-key-0"' in replies[0].body
        again = await send(served, method="DELETE", key="some-key-0")
        assert (again.replayed, again.body) == (True, replies[0].body)
        assert (await send(served, method="DELETE", path="/jobs/other", key="some-key-9")).status == 200

    run(trial())


def test_the_connection_elsewhere():
    """R23: a route without a contract that asks for the connection answers 500 and says why."""

    async def trial():
        safe = safe_and()

        @get("/read")
        async def read(connection: NamedDependency[Any]) -> None: ...

        failed = await send(app(read, plugins=[safe], debug=True), method="GET", path="/read", key=None)
        assert failed.status == 500
        assert b"no @safe.operation" in failed.body

    run(trial())
