"""A FastAPI application under a real server and on a real PostgreSQL: sockets that close, transactions that fail."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException

from tests.shells.service import K, Work, run
from twicesafe.fastapi import Idempotency
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.memory import AsyncMemoryStore

BODY = b'{"amount": 1}'
HEADERS = {"x-user": "ann", "idempotency-key": K, "content-type": "application/json"}


@asynccontextmanager
async def served(app: FastAPI, **how: Any) -> AsyncIterator[str]:
    """The address of `app` under uvicorn, until the block ends and the server with it."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, **how))
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


async def send_and_hang_up(address: str, until: asyncio.Event) -> None:
    """Send a whole request, wait for the event, and reset the connection unanswered."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    lines = {**HEADERS, "host": "test", "content-length": str(len(BODY))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"POST /jobs HTTP/1.1\r\n{head}\r\n".encode() + BODY)
    await until.wait()
    writer.transport.abort()


def user(x_user: Annotated[str, Header()] = "") -> str:
    if not x_user:
        raise HTTPException(401)
    return x_user


def test_a_client_that_hangs_up_on_uvicorn():
    """A1a, R14: the socket is reset while the endpoint works; the work is finished, recorded, and waited for."""

    async def trial():
        ledger: list[int] = []
        waiting, go = asyncio.Event(), asyncio.Event()
        app, store = FastAPI(), AsyncMemoryStore()
        safe = Idempotency(app, store, scope=user)

        @app.post("/jobs", status_code=201)
        @safe.operation(required=True)
        async def work(body: Work) -> dict[str, int]:
            waiting.set()
            await go.wait()
            ledger.append(body.amount)
            return {"n": len(ledger)}

        async with served(app, lifespan="on") as address, httpx.AsyncClient(base_url=address) as client:
            await send_and_hang_up(address, waiting)
            busy = await client.post("/jobs", content=BODY, headers=HEADERS)
            go.set()
        assert ledger == [1]
        assert (busy.status_code, busy.headers["retry-after"]) == (409, "1")
        async with served(app) as address, httpx.AsyncClient(base_url=address) as client:
            again = await client.post("/jobs", content=BODY, headers=HEADERS)
            stranger = await client.post("/jobs", content=BODY, headers={**HEADERS, "x-user": ""})
        assert ledger == [1]
        assert (again.status_code, again.json()) == (201, {"n": 1})
        assert again.headers["idempotent-replayed"] == "true"
        assert stranger.status_code == 401

    run(trial())


def test_effect_and_answer_on_postgresql(postgresql_server):
    """R23, H2, E1: 12 rivals over sockets make one row on asyncpg; failures roll back; what is refused leaves none."""

    async def trial():
        store = AsyncpgStore(postgresql_server.create_database())

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            await store.apply_schema()
            async with store.transaction() as transaction:
                await transaction.begin()
                await transaction.connection.execute(
                    "CREATE TABLE ledger (amount bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)"
                )
                await transaction.commit()
            yield
            await store.aclose()

        app = FastAPI(lifespan=lifespan)
        safe = Idempotency(app, store, scope=user)

        @app.post("/jobs", status_code=201)
        @safe.operation(effects="transactional")
        async def work(body: Work, db: Annotated[Any, Depends(safe.connection)]) -> dict[str, int]:
            await db.execute("INSERT INTO ledger VALUES ($1)", body.amount)
            if body.amount == 13:
                raise HTTPException(402, "unlucky")
            return {"amount": body.amount}

        @app.get("/ledger")
        async def ledger() -> list[int]:
            async with store.transaction() as transaction:
                await transaction.begin()
                rows = await transaction.connection.fetch("SELECT amount FROM ledger ORDER BY amount")
            return [row["amount"] for row in rows]

        async with served(app, lifespan="on") as address, httpx.AsyncClient(base_url=address) as client:

            async def ask(amount: Any, key: str | None, who: str = "ann") -> httpx.Response:
                headers = {"x-user": who} | ({"idempotency-key": key} if key else {})
                return await client.post("/jobs", json={"amount": amount}, headers=headers)

            async def rows() -> list[int]:
                found = (await client.get("/ledger")).json()
                assert isinstance(found, list), found
                return found

            rivals = await asyncio.gather(*(ask(1, K) for _ in range(12)))
            assert await rows() == [1]
            assert {reply.status_code for reply in rivals} <= {201, 409}
            again = await ask(1, K)
            assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")

            refused = [await ask("much", "k2"), await ask(2, "k2", who="")]
            assert await rows() == [1]
            assert [reply.status_code for reply in refused] == [422, 401]
            assert (await ask(2, "k2")).status_code == 201
            assert await rows() == [1, 2]

            declined = [await ask(13, "k3") for _ in range(2)]
            assert await rows() == [1, 2]
            assert [(reply.status_code, reply.json()) for reply in declined] == [(402, {"detail": "unlucky"})] * 2
            assert declined[1].headers["idempotent-replayed"] == "true"

            # The unique constraint is checked at the commit.
            failed = [await ask(2, key) for key in ("k4", "k4", None)]
            assert await rows() == [1, 2]
            assert {reply.status_code for reply in failed} <= {500, 503}

            assert (await ask(3, None)).status_code == 201
            assert await rows() == [1, 2, 3]

    run(trial())
