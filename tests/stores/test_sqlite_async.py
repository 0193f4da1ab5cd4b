"""SQLite under asyncio: cancelled at every await, from loop to loop, with and without aiosqlite."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Coroutine, Generator
from contextlib import closing
from pathlib import Path
from types import coroutine
from typing import Any, TypeVar

import aiosqlite
import pytest

from tests.house.sources import SOURCE
from tests.stores.claims import ANSWER, BODY, KEY, OTHER_REQUEST, digest_of, wish
from tests.stores.sqlite_file import BOUND, SOON, File
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.stores.sqlite_connection import SqliteConnection
from twicesafe.stores.steps import Rows, Statement

R = TypeVar("R")


@coroutine
def cancelled_at(n: int, work: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    """Run `work`, and cancel the task at the n-th time that it waits for something."""
    error: BaseException | None = None
    while True:
        try:
            waited_for = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if n == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        n -= 1
        error = None
        try:
            yield waited_for
        except BaseException as thrown:
            error = thrown


async def one(store: AsyncSqliteStore, claim: Claim, *, keep_effects: bool = True) -> Claimed | Existing:
    """A whole transactional exchange."""
    async with store.transaction() as transaction:
        found = await transaction.claim(claim)
        if isinstance(found, Claimed):
            await transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
            await transaction.complete(found.ownership, ANSWER, KEY, BODY, keep_effects=keep_effects)
        return found


async def settled(store: AsyncSqliteStore) -> None:
    """Let what was left behind in the background come to its end."""
    transactions = store._transactions
    if transactions is not None and transactions._background:
        await asyncio.wait(transactions._background, timeout=BOUND)


# --- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_effects", [True, False])
def test_a_transaction_cancelled_at_any_await_is_whole_or_nothing(file: File, *, keep_effects: bool) -> None:
    """A1, R14, R23: cancelled at each await in turn, effect and answer are there or neither; nothing stays locked."""

    async def main() -> int:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        for n in range(100):
            key = wish(f"key-{n}", effects=Effects.TRANSACTIONAL)
            before = file.effects()
            try:
                await cancelled_at(n, one(store, key, keep_effects=keep_effects))
            except asyncio.CancelledError:
                cancelled = True
            else:
                cancelled = False
            await settled(store)
            assert file.is_free()
            record = (await store.read(key.digest)).record
            done = record is not None and record.state is RecordState.COMPLETED
            assert file.effects() - before == (1 if done and keep_effects else 0), f"cancelled at await {n}"
            again = await one(store, key._replace(owner=bytes(16)), keep_effects=keep_effects)
            assert isinstance(again, Existing if done else Claimed), f"after being cancelled at await {n}"
            assert file.effects() - before == (1 if keep_effects else 0)
            transactions = store._transactions
            assert transactions is not None and len(transactions._idle) == 1 and not transactions._turn.locked()
            if not cancelled:
                break
        await store.aclose()
        return n

    # The look, the connection, the beginning, the effect, the record, the commit.
    assert 5 <= asyncio.run(main()) < 100


def test_a_leased_statement_cancelled_at_any_await_stands_or_not(file: File) -> None:
    """A1, I1, B6: cancelled at each await in turn, a claim is there or not; asked again, its owner recognises it."""

    async def main() -> int:
        store = AsyncSqliteStore(file.path, clock=file.clock)

        async def exchange(claim: Claim) -> None:
            found = await store.claim(claim)
            assert isinstance(found, Claimed)
            await store.complete(found.ownership, ANSWER, KEY, BODY)

        for n in range(100):
            mine = wish(f"key-{n}")
            try:
                await cancelled_at(n, exchange(mine))
            except asyncio.CancelledError:
                cancelled = True
            else:
                cancelled = False
            assert file.is_free()
            record = (await store.read(mine.digest)).record
            assert record is None or record.owner == mine.owner
            again = await store.claim(mine)
            if record is None or record.state is RecordState.CLAIMED:
                assert isinstance(again, Claimed) and again.ownership.owner == mine.owner
                await store.complete(again.ownership, ANSWER, KEY, BODY)
            else:
                assert isinstance(again, Existing) and again.verdict is Verdict.REPLAY
            if not cancelled:
                break
        assert file.plain.execute("SELECT count(*) FROM twicesafe_records").fetchone()[0] == n + 1
        await store.aclose()
        return n

    assert 2 <= asyncio.run(main()) < 100


def test_a_claim_cancelled_before_its_turn_is_never_made(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """A1: a claim whose task is cancelled while it waits for the write lock leaves no row behind."""
    tried, trying = threading.Event(), set()
    once = SqliteConnection.once

    def notice(connection: SqliteConnection, statement: Statement) -> Rows:
        if statement.name == "begin":
            trying.add(id(connection))
            if len(trying) == 2:
                tried.set()
        return once(connection, statement)

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)
        monkeypatch.setattr(SqliteConnection, "once", notice)
        file.plain.execute("BEGIN IMMEDIATE")
        leased = asyncio.ensure_future(store.claim(wish("leased")))
        transactional = asyncio.ensure_future(one(store, wish("transactional")))
        queued = asyncio.ensure_future(one(store, wish("queued")))
        await asyncio.to_thread(tried.wait, BOUND)
        for task in (leased, transactional, queued):
            task.cancel()
        ended = await asyncio.wait_for(asyncio.gather(leased, transactional, queued, return_exceptions=True), BOUND)
        assert [type(error) for error in ended] == [asyncio.CancelledError] * 3
        file.plain.execute("COMMIT")
        await store.claim(wish("other"))
        assert file.plain.execute("SELECT count(*) FROM twicesafe_records").fetchone()[0] == 1
        assert isinstance(await one(store, wish("transactional")), Claimed)
        await store.aclose()

    asyncio.run(main())


def test_a_handler_cancelled_in_its_statement_rolls_back(file: File) -> None:
    """A1, R16: a handler torn out of its own statement leaves nothing, even where the statement goes on without it."""

    async def main() -> None:
        store = AsyncSqliteStore(file.path, clock=file.clock)

        async def handler() -> None:
            async with store.transaction() as transaction:
                await transaction.claim(wish())
                await cancelled_at(0, transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')"))

        with pytest.raises(asyncio.CancelledError):
            await handler()
        assert file.effects() == 0 and file.is_free()
        assert isinstance(await one(store, wish()), Claimed)
        assert file.effects() == 1
        await store.aclose()

    asyncio.run(main())


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
from twicesafe.stores.sqlite import AsyncSqliteStore

async def main():
    store = AsyncSqliteStore(sys.argv[1])
    await store.apply_schema()
    await store.complete((await store.claim(wish())).ownership, ANSWER, KEY, BODY)
    assert store.transactional is False
    try:
        store.transaction()
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
