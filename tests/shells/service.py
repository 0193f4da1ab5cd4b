"""A FastAPI application behind twicesafe, with callers, a ledger, and a store whose rows the test can look at."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Self

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from tests.shells.probe import Reply, post
from twicesafe.core.keys import scoped_key
from twicesafe.core.record import RecordState
from twicesafe.fastapi import Idempotency
from twicesafe.observe import Event
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore

K = "k-0001-0001-0001"


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


class Work(BaseModel):
    amount: int


class Service:
    """An application to which the test adds routes. `ledger` holds the effects of what is not transactional.

    Callers are named by the header X-User; `revoked` are those whose account is closed.
    """

    def __init__(self, store: Any = None, *, scope: Any = None, **how: Any) -> None:
        self.ledger: list[Any] = []
        self.revoked: set[str] = set()
        self.authenticated = 0
        self.events: list[Event] = []
        self.now = 1_000_000_000_000_000
        self.store = store or AsyncMemoryStore(clock=lambda: self.now)
        self.app = FastAPI()
        self.safe = Idempotency(self.app, self.store, scope=scope or self.user, observer=self.events.append, **how)

    def user(self, x_user: Annotated[str, Header()] = "") -> str:
        """Who is calling; 401 for nobody, and for a closed account."""
        self.authenticated += 1
        if not x_user or x_user in self.revoked:
            raise HTTPException(401, "who are you?")
        return x_user

    def append(self, what: Any = 1) -> dict[str, int]:
        """The effect."""
        self.ledger.append(what)
        return {"n": len(self.ledger)}

    async def post(self, path: str = "/jobs", *, user: str | None = "ann", **how: Any) -> Reply:
        """One request of `user`."""
        lines = [*how.pop("headers", ())]
        if user is not None:
            lines.append((b"x-user", user.encode()))
        return await post(self.app, path=path, headers=lines, **how)

    async def state(self, key: str = K, user: str = "ann") -> RecordState | None:
        """The stored state of a key; None where nothing is stored."""
        found = await self.store.read(scoped_key(user, key).digest)
        return None if found.record is None else found.record.state


def keep_references(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")


class Bank(Service):
    """A Service on a SQLite file; `rows()` reads the effects that were committed, over a connection of its own.

    The database refuses 666 at once, and what is below 0 at the commit.
    """

    def __init__(self, folder: Path, **how: Any) -> None:
        self.file = folder / "bank.db"
        with closing(sqlite3.connect(self.file)) as connection:
            connection.executescript(
                """
                CREATE TABLE signs (sign INTEGER PRIMARY KEY);
                INSERT INTO signs VALUES (0), (1);
                CREATE TABLE ledger (
                    amount INTEGER CHECK (amount <> 666),
                    sign INTEGER REFERENCES signs DEFERRABLE INITIALLY DEFERRED
                );
                """
            )
        super().__init__(AsyncSqliteStore(self.file, configure=keep_references), **how)

    async def __aenter__(self) -> Self:
        await self.store.apply_schema()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.store.aclose()

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.file)) as connection:
            return [amount for (amount,) in connection.execute("SELECT amount FROM ledger")]

    def pending(self) -> int:
        """Work that still runs."""
        return len(self.safe._shared.running)


async def insert(connection: Any, amount: int = 1) -> None:
    """The effect, in the transaction."""
    await connection.execute("INSERT INTO ledger VALUES (?, sign(?))", (amount, amount))


class RefusedError(Exception):
    """Mapped to 409 by the application."""


def service(**settings) -> Service:
    """`POST /jobs` appends its amount to the ledger."""
    served = Service()

    @served.app.post("/jobs", status_code=201)
    @served.safe.operation(**settings)
    async def work(body: Work) -> dict[str, int]:
        return served.append(body.amount)

    return served


async def answer(how: str, status: int) -> Any:
    """End an endpoint in the way named."""
    match how:
        case "returns":
            return JSONResponse({"how": how}, status)
        case "raises":
            raise HTTPException(status, how)
        case "mapped":
            raise RefusedError
        case _:
            raise ZeroDivisionError


def bank(folder, *, how: str = "returns", status: int = 201, amount: int = 1, **settings) -> Bank:
    """`POST /jobs` inserts a row and then ends as told."""
    served = Bank(folder)

    @served.app.post("/jobs")
    @served.safe.operation(effects="transactional", **settings)
    async def work(body: Work, db: Annotated[Any, Depends(served.safe.connection)]) -> Any:
        await insert(db, amount)
        return await answer(how, status)

    @served.app.exception_handler(RefusedError)
    async def refused(request, error):
        return JSONResponse({"how": "mapped"}, 409)

    return served


STARTED = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def start(app: Any, sent: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The messages of an application's start and end."""
    sent = [] if sent is None else sent
    waiting = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "lifespan", "state": {}}, receive, send)
    return sent
