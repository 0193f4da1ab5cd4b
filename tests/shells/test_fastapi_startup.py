"""How an application starts and ends: what its server is told, and what is waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette

from tests.shells.probe import Wire
from tests.shells.rig import Failing
from tests.shells.service import STARTED, Bank, Service, run, start
from twicesafe import PUBLIC
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.errors import ConfigurationError, SchemaError, StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore


def test_a_server_is_told_that_the_application_did_not_start():
    """House: a server that takes an exception for "no lifespan here" gets the message that it must not serve."""

    async def trial():
        served = Service()
        router = APIRouter()

        @served.safe.operation()
        @router.post("/jobs")
        async def work() -> None: ...

        served.app.mount("/inside", FastAPI(routes=router.routes))
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "lifespan.startup"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        with pytest.raises(ConfigurationError):
            await served.app({"type": "lifespan", "state": {}}, receive, send)
        assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
        assert "below" in sent[0]["message"]

    run(trial())


def test_nothing_starts_without_its_tables(tmp_path):
    """R10: a server is told at once, with the remedy, that tables are missing; made at the start they are there."""

    async def trial():
        closed = []

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            closed.append(True)

        served = Bank(tmp_path)
        served.app.router.lifespan_context = lifespan
        for around in (served.app, IdempotencyMiddleware(Starlette(lifespan=lifespan), served.store, scope=PUBLIC)):
            sent: list[dict[str, Any]] = []
            with pytest.raises(SchemaError):
                await start(around, sent)
            assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
            assert "twicesafe schema apply" in sent[0]["message"]
        async with served:
            assert [message["type"] for message in await start(served.app)] == STARTED

    run(trial())


def test_a_store_that_is_away_prevents_no_start():
    """R10: a store that cannot be reached at the start is told to the observer; requests find it when it is back."""

    async def trial():
        away = StoreUnavailableError("away")
        failing = Failing(AsyncMemoryStore())
        failing.fail("check_schema", away)
        served = Service(failing)
        assert [message["type"] for message in await start(served.app)] == STARTED
        assert [(event.name, event.loud, event.error) for event in served.events] == [("store.unavailable", True, away)]

    run(trial())


def test_an_application_around_a_mounted_one_can_wait_for_its_work():
    """R14: a mounted application hears of no shutdown, so `drained()` waits for what its clients left behind."""

    async def trial():
        inside, go = asyncio.Event(), asyncio.Event()
        served = Service()

        @served.app.post("/jobs")
        @served.safe.operation()
        async def work() -> dict[str, int]:
            inside.set()
            await go.wait()
            return served.append()

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            go.set()
            await served.safe.drained()
            assert served.ledger == [1]

        around = FastAPI(lifespan=lifespan)
        around.mount("/inside", served.app)
        wire = Wire(around, path="/inside/jobs", headers=[(b"x-user", b"ann")]).start()
        await inside.wait()
        wire.task.cancel()
        await wire.end()
        assert served.ledger == []
        assert [message["type"] for message in await start(around)] == STARTED

    run(trial())
