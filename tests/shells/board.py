"""What the endpoints of a routed application do: one board for all frameworks, which each translate to and from it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests.shells.probe import Lines, Reply, post
from tests.shells.service import K, RefusedError, insert, keep_references
from twicesafe.core.keys import scoped_key
from twicesafe.core.record import RecordState
from twicesafe.observe import Event
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore

LINES: Lines = (
    (b"content-type", b"application/octet-stream"),
    (b"link", b"</1>; rel=next"),
    (b"link", b"</2>; rel=last"),
    (b"content-disposition", b'attachment; filename="a, b.bin"'),
)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


@dataclass
class Board:
    """The knobs, the effects, and who may call.

    Every application has `POST /jobs`, which takes `{"amount": number}`, appends it to the ledger, and answers
    `201 {"n": effects}`; `/blocking`, the same in a thread; `/keyed`, the same with keyed effects; `/tx`, the same in a
    transaction; `/stream`, `/events` and `/file`, which append and answer so; `/lines`, with LINES and two cookies; and
    `/free`, which is under no contract. Callers are named by the header X-User.
    """

    store: Any = None
    ledger: list[int] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    authenticated: int = 0
    events: list[Event] = field(default_factory=list)
    before: Callable[[], Awaitable[None]] | None = None
    how: str = "returns"
    """"raises": the framework's HTTP error; "mapped": RefusedError, made a 409; "fails": ZeroDivisionError."""
    when: str = "after"
    status: int = 201
    nothing_done: bool = False
    chunks: tuple[bytes, ...] = (b"one ", b"two ", b"three")
    between: Callable[[int], Awaitable[None]] | None = None
    file: Path | None = None
    ran: list[str] = field(default_factory=list)
    """Background tasks."""
    seen: list[Any] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    database: Path | None = None
    app: Any = None
    safe: Any = None

    def user(self, name: str | None) -> str | None:
        """Who is calling; None for nobody, and for a closed account."""
        self.authenticated += 1
        return name if name and name not in self.revoked else None

    async def work(
        self, amount: int, http_error: Callable[[int], BaseException], keyed: Any, *, tx: bool = False
    ) -> Any:
        """The effect, and how it ends."""
        if self.before is not None:
            await self.before()
        if self.when == "before":
            self.end(http_error)
        if tx:
            await insert(keyed.connection, amount)
        self.append(amount)
        if self.nothing_done:
            keyed.nothing_done()
        self.end(http_error)
        return {"n": len(self.ledger)}

    def append(self, amount: int) -> dict[str, int]:
        self.ledger.append(amount)
        return {"n": len(self.ledger)}

    def end(self, http_error: Callable[[int], BaseException]) -> None:
        match self.how:
            case "raises":
                raise http_error(self.status)
            case "mapped":
                raise RefusedError
            case "fails":
                raise ZeroDivisionError

    async def stream(self) -> AsyncIterator[bytes]:
        for number, chunk in enumerate(self.chunks):
            if self.between is not None:
                await self.between(number)
            yield chunk
        if self.how == "breaks":
            raise ZeroDivisionError

    def task(self) -> None:
        """Runs after the answer."""
        self.ran.append("task")

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

    def rows(self) -> list[int]:
        """Effects that were committed, over a connection of its own."""
        assert self.database is not None
        with closing(sqlite3.connect(self.database)) as connection:
            return [amount for (amount,) in connection.execute("SELECT amount FROM ledger")]

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]

    async def settled(self) -> None:
        """Wait for work whose client is gone."""
        while self.safe._shared.running:
            await asyncio.wait(set(self.safe._shared.running))


Make: TypeAlias = Callable[[Board, dict[str, Any]], None]
"""Gives a board its application; the settings are those of every operation."""


def board(make: Make, folder: Path | None = None, /, **how: Any) -> Board:
    """A board with its application, on a memory store, or on a SQLite file where it has a folder."""
    settings = how.pop("settings", {})
    if folder is None:
        made = Board(AsyncMemoryStore(), **how)
    else:
        file = folder / "bank.db"
        with closing(sqlite3.connect(file)) as connection:
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
        made = Board(AsyncSqliteStore(file, configure=keep_references), database=file, **how)
    make(made, settings)
    return made
