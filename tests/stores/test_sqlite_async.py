"""SQLite under asyncio: taking turns, from loop to loop, with and without aiosqlite."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import aiosqlite
import pytest

from tests.house.sources import SOURCE
from tests.stores.claims import ANSWER, BODY, KEY, OTHER_REQUEST, digest_of, wish
from tests.stores.sqlite_file import BOUND, SOON, File, one
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.errors import CommitRefusedError, StoreUnavailableError
from twicesafe.stores.sqlite import AsyncSqliteStore

R = TypeVar("R")


# --- turns ------------------------------------------------------------------------------------------------------------


def test_transactions_wait_for_their_turn_or_say_so(file: File) -> None:
    """C8, R21: a transaction that waits too long for another one, of its process or not, errs and changes nothing."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock, busy_timeout=SOON)
        async with store.transaction() as holder:
            await holder.begin()
            with pytest.raises(StoreUnavailableError, match="another transaction of this process"):
                await one(store, wish())
            with pytest.raises(StoreUnavailableError, match="nothing was changed"):
                await store.claim(wish())
        file.plain.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="another writer"):
            await one(store, wish())
        file.plain.execute("ROLLBACK")
        assert isinstance(await one(store, wish()), Claimed)
        assert file.effects() == 1
        await store.aclose()

    asyncio.run(main())


def test_replays_wait_for_no_transaction(file: File) -> None:
    """R11, C8: while a transaction holds the write lock, what is decided already is answered at once."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        await one(store, wish("done"))
        async with store.transaction() as holder:
            await holder.begin()
            for changes, verdict in (({}, Verdict.REPLAY), ({"fingerprint": OTHER_REQUEST}, Verdict.MISMATCH)):
                for session in (store, store.transaction()):
                    found = await asyncio.wait_for(session.claim(wish("done", **changes)), BOUND)
                    assert isinstance(found, Existing) and found.verdict is verdict
        await store.aclose()

    asyncio.run(main())


def test_the_handlers_connection_is_aiosqlites(file: File) -> None:
    """R23: a handler gets an aiosqlite.Connection, prepared as configured, that it cannot commit."""

    async def main() -> None:
        store = AsyncSqliteStore(
            file.path, clock=file.clock, configure=lambda connection: setattr(connection, "row_factory", sqlite3.Row)
        )
        async with store.transaction() as transaction:
            found = await transaction.claim(wish())
            assert isinstance(found, Claimed)
            connection = transaction.connection
            assert isinstance(connection, aiosqlite.Connection) and connection.row_factory is sqlite3.Row
            async with connection.execute("INSERT INTO ledger (name) VALUES ('key') RETURNING name") as cursor:
                row = await cursor.fetchone()
            assert row is not None and row["name"] == "key"
            with pytest.raises(sqlite3.ProgrammingError, match="committed together with its answer"):
                await connection.commit()
            with pytest.raises(sqlite3.ProgrammingError, match="committed together with its answer"):
                await connection.rollback()
            with pytest.raises(sqlite3.DatabaseError):
                await connection.execute("COMMIT")
            assert file.effects() == 0
            connection.row_factory = None
            await transaction.complete(found.ownership, ANSWER, KEY, BODY)
        async with store.transaction() as transaction:
            await transaction.begin()
            assert transaction.connection.row_factory is sqlite3.Row
        assert file.effects() == 1
        await store.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("ending", ["complete", "fail", "release", "leave"])
def test_a_kept_connection_never_meets_another_request(file: File, ending: str) -> None:
    """R23: a handler's connection and its cursors are refused after the end, and write into nobody's transaction."""
    insert = "INSERT INTO ledger (name) VALUES ('late')"

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        async with store.transaction() as transaction:
            found = await transaction.claim(wish())
            assert isinstance(found, Claimed)
            kept = transaction.connection
            cursor = await kept.execute("INSERT INTO ledger (name) VALUES ('key')")
            if ending == "complete":
                await transaction.complete(found.ownership, ANSWER, KEY, BODY)
            elif ending == "fail":
                await transaction.complete(found.ownership, ANSWER, KEY, BODY, keep_effects=False)
            elif ending == "release":
                await transaction.release(found.ownership)
        async with store.transaction() as another:
            await another.begin()
            refused = 0
            for late in (kept.execute, cursor.execute, kept.execute_fetchall, kept.executescript):
                try:
                    await late(insert)
                except sqlite3.ProgrammingError:
                    refused += 1
            with suppress(sqlite3.ProgrammingError):
                await kept.close()
            await another.connection.execute("INSERT INTO ledger (name) VALUES ('another')")
            await another.commit()
        assert (file.effects("late"), file.effects("another")) == (0, 1)
        assert file.effects() == (1 if ending == "complete" else 0)
        assert refused == 4
        await store.aclose()

    asyncio.run(main())


def test_nothing_is_done_after_sqlite_rolled_back(file: File) -> None:
    """R23, H2: where SQLite itself ends a transaction and its handler goes on, nothing commits by itself."""
    insert = "INSERT INTO ledger (name) VALUES ('key')"

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        for _ in range(3):
            async with store.transaction() as transaction:
                found = await transaction.claim(wish())
                assert isinstance(found, Claimed)
                connection = transaction.connection
                cursor = await connection.execute(insert)
                with pytest.raises(sqlite3.IntegrityError):
                    await connection.execute("INSERT OR ROLLBACK INTO seen VALUES (1)")
                refused = 0
                for going_on in (connection.execute, cursor.execute, connection.execute_fetchall):
                    try:
                        await going_on(insert)
                    except sqlite3.OperationalError:
                        refused += 1
                assert file.effects() == 0
                assert refused == 3
                with pytest.raises(StoreUnavailableError, match="rolled the transaction back by itself"):
                    await transaction.complete(found.ownership, ANSWER, KEY, BODY)
        assert (file.effects(), file.records()) == (0, 0)
        await one(store, wish())
        assert file.effects() == 1
        await store.aclose()

    file.plain.executescript("CREATE TABLE seen (x UNIQUE); INSERT INTO seen VALUES (1)")
    asyncio.run(main())


def test_a_handler_that_closes_its_connection_harms_only_itself(file: File) -> None:
    """R23: a connection closed inside the handler is an error of that transaction; the next one has another."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        for complete in (True, False):
            async with store.transaction() as transaction:
                found = await transaction.claim(wish())
                assert isinstance(found, Claimed)
                await transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
                await transaction.connection.close()
                if complete:
                    with pytest.raises(StoreUnavailableError):
                        await transaction.complete(found.ownership, ANSWER, KEY, BODY)
            assert file.effects() == 0 and file.is_free()
        assert isinstance(await one(store, wish()), Claimed)
        assert file.effects() == 1
        await store.aclose()

    asyncio.run(main())


def test_a_refused_commit_lets_the_next_one_begin(file: File) -> None:
    """H2, C8: a commit that a deferred constraint refuses is rolled back at once, and it is the next one's turn."""

    async def main() -> None:
        store = AsyncSqliteStore(
            file.path, clock=file.clock, configure=lambda connection: connection.execute("PRAGMA foreign_keys = ON")
        )
        file.plain.execute("CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
        file.plain.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        async with store.transaction() as transaction:
            found = await transaction.claim(wish("refused"))
            assert isinstance(found, Claimed)
            await transaction.connection.execute("INSERT INTO child VALUES (1)")
            with pytest.raises(CommitRefusedError):
                await transaction.complete(found.ownership, ANSWER, KEY, BODY)
            assert isinstance(await one(store, wish()), Claimed)
        assert file.effects() == 1 and file.records() == 1
        await store.aclose()

    asyncio.run(main())


def test_a_connection_that_cannot_be_made_costs_nobody_a_turn(file: File) -> None:
    """C8: when preparing a handler's connection fails, its transaction errs and the next one begins as usual."""
    failures = ["once"]

    def configure(_: sqlite3.Connection) -> None:
        if failures:
            raise RuntimeError(failures.pop())

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock, busy_timeout=SOON, configure=configure)
        with pytest.raises(RuntimeError, match="once"):
            await one(store, wish())
        assert isinstance(await one(store, wish()), Claimed)
        await store.aclose()

    asyncio.run(main())
    assert file.effects() == 1
    failures.append("once more")
    blocking = file.store(busy_timeout=SOON, configure=configure)
    with pytest.raises(RuntimeError, match="once more"):
        blocking.transaction().begin()
    with blocking.transaction() as transaction:
        transaction.begin()
        transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
        transaction.commit()
    assert file.effects() == 2


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_store_goes_from_loop_to_loop(file: File) -> None:
    """R42: one store serves one event loop after another, as in a command that runs several."""
    store = AsyncSqliteStore(file.path, clock=file.clock)

    async def rivals(n: int) -> None:
        await asyncio.gather(*(one(store, wish(f"key-{n}-{m}")) for m in range(5)))
        await store.claim(wish(f"leased-{n}"))

    for n in range(3):
        asyncio.run(rivals(n))
    asyncio.run(store.aclose())
    assert file.effects() == 15


def test_a_closed_store_says_so(file: File) -> None:
    """R42: closing twice is fine; afterwards every call says that the store is closed, and none hangs."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        await one(store, wish())
        await store.aclose()
        await store.aclose()
        for call in (
            store.claim(wish("other")),
            one(store, wish("other")),
            store.purge(),
            store.read(digest_of("key")),
        ):
            with pytest.raises(StoreUnavailableError, match="closed"):
                await asyncio.wait_for(call, BOUND)
        assert file.effects() == 1

    asyncio.run(main())


def test_without_aiosqlite_the_leased_way_works(tmp_path: Path) -> None:
    """R42: where aiosqlite is not installed the store says so in its attribute and when a transaction is asked for."""
    program = """
import asyncio, sys
sys.path[:0] = sys.argv[2:]
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.errors import ConfigurationError
from twicesafe.once import AsyncOnce
from twicesafe.stores.sqlite import AsyncSqliteStore

async def work(): ...

async def main():
    store = AsyncSqliteStore(sys.argv[1])
    await store.apply_schema()
    await store.complete((await store.claim(wish())).ownership, ANSWER, KEY, BODY)
    assert store.transactional is False
    try:
        AsyncOnce(store, scope="shop").operation(key=lambda: "k", effects="transactional")(work)
    except ConfigurationError as error:
        print(error)
    await store.aclose()
asyncio.run(main())
"""
    path = tmp_path / "records.db"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(path), str(SOURCE), str(SOURCE.parent)],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "twicesafe[aiosqlite]" in ended.stdout
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("SELECT state FROM twicesafe_records").fetchall() == [("completed",)]
