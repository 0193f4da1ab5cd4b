"""SQLite under asyncio, cancelled at every await in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.sqlite_file import BOUND, File, one
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
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


async def settled(store: AsyncSqliteStore) -> None:
    """Let what was left behind in the background come to its end."""
    transactions = store._transactions
    if transactions is not None and transactions._background:
        await asyncio.wait(transactions._background, timeout=BOUND)


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

    # The connection or the claim, the effect, the completion: each is one wait for the connection's thread.
    assert 3 <= asyncio.run(main()) < 100


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


def test_a_loop_that_ends_in_a_clean_up_leaves_nothing_locked(file: File) -> None:
    """A1: a cancelled transaction is rolled back even when its event loop ends in the midst of that."""
    store = AsyncSqliteStore(file.path, clock=file.clock)

    async def main() -> None:
        async def handler() -> None:
            async with store.transaction() as transaction:
                await transaction.claim(wish())
                await transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
                reached.set()
                await asyncio.Event().wait()

        reached = asyncio.Event()
        task = asyncio.ensure_future(handler())
        await reached.wait()
        task.cancel()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert file.is_free() and file.effects() == 0
    assert isinstance(asyncio.run(one(store, wish())), Claimed)
    assert file.effects() == 1
    asyncio.run(store.aclose())
