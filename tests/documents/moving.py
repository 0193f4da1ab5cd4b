"""A service that moves from another package to this one, with requests under way all the time.

`docs/migrating` shows the application in the middle of the move, with both. Here are the one before and the one after,
and what has to hold between servers of each: no key is done twice, whichever server its attempts reach.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any

import aiosqlite
import httpx2
from fastapi import Body, Depends, FastAPI, Header, HTTPException

from twicesafe.fastapi import Idempotency
from twicesafe.stores.sqlite import AsyncSqliteStore

FILE = "shop.db"
USERS = {"Bearer token-of-ada": "ada"}


async def current_user(authorization: Annotated[str, Header()] = "") -> str:
    """The application's own authentication."""
    if authorization not in USERS:
        raise HTTPException(401)
    return USERS[authorization]


def make_charges() -> None:
    """The application's own table."""
    with closing(sqlite3.connect(FILE)) as shop:
        shop.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)")


def charges() -> list[int]:
    with closing(sqlite3.connect(FILE)) as shop:
        return [cents for (cents,) in shop.execute("SELECT cents FROM charges ORDER BY id")]


def before(protect: Callable[[FastAPI], Any]) -> FastAPI:
    """The application that has only the other package."""
    app = FastAPI()

    @app.post("/charges", status_code=201)
    async def charge(
        cents: Annotated[int, Body(embed=True)], user: Annotated[str, Depends(current_user)]
    ) -> dict[str, int | None]:
        async with aiosqlite.connect(FILE) as shop:
            cursor = await shop.execute("INSERT INTO charges (cents) VALUES (?)", (cents,))
            await shop.commit()
        return {"charge": cursor.lastrowid}

    protect(app)
    return app


def after(store: AsyncSqliteStore) -> FastAPI:
    """The application that has only this one."""
    app = FastAPI()
    safe = Idempotency(app, store, scope=current_user)

    @app.post("/charges", status_code=201)
    @safe.operation(effects="transactional")
    async def charge(
        cents: Annotated[int, Body(embed=True)], shop: Annotated[aiosqlite.Connection, Depends(safe.connection)]
    ) -> dict[str, int | None]:
        cursor = await shop.execute("INSERT INTO charges (cents) VALUES (?)", (cents,))
        return {"charge": cursor.lastrowid}

    return app


async def ask(app: FastAPI, key: str, cents: int) -> httpx2.Response:
    headers = {"authorization": "Bearer token-of-ada", "idempotency-key": key}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop") as client:
        return await client.post("/charges", json={"cents": cents}, headers=headers)


async def check(old: FastAPI, both: FastAPI, new: FastAPI) -> None:
    """Servers are replaced one by one: first `old` by `both`, and after the old retention `both` by `new`."""
    first = await ask(old, "key-of-yesterday", 100)
    again = await ask(both, "key-of-yesterday", 100)
    assert charges() == [100], "what the old servers did is not done again by a server with both"
    assert (again.status_code, again.content) == (first.status_code, first.content) and first.status_code == 201

    rivals = await asyncio.gather(*[ask(app, "key-of-today", 200) for app in (old, both) * 4])
    assert charges() == [100, 200], "servers with both and those before them know of each other"
    assert {answer.status_code for answer in rivals} <= {201, 409, 423}

    served = await ask(both, "key-of-tomorrow", 300)
    back = await ask(old, "key-of-tomorrow", 300)
    later = [await ask(app, "key-of-tomorrow", 300) for app in (new, both, new)]
    assert charges() == [100, 200, 300], "and so do servers with both and those after them"
    assert {answer.content for answer in (served, back, *later)} == {served.content}
    assert later[0].headers["idempotent-replayed"] == "true"
