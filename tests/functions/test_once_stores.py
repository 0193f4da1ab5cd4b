"""Plain functions on real databases: their effects and their results are kept together."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from twicesafe.errors import AmbiguousWriteError, ConfigurationError, OutcomeUnknownError
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore

K = "order-77"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "jobs.db"
    with closing(SqliteStore(found)) as store:
        store.apply_schema()
    with closing(sqlite3.connect(found)) as connection:
        connection.execute("CREATE TABLE charges (customer TEXT)")
    return found


def charges(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM charges").fetchone()[0])


def test_effect_and_result_are_one_transaction(file: Path) -> None:
    """R23, R32: what raises leaves no row and a free key; what returns leaves one row, once."""
    with closing(SqliteStore(file)) as store:
        once = Once(store, scope="jobs")
        fails = [True]

        @once.operation(key=lambda customer: K, effects="transactional")
        def charge(customer: str) -> str:
            current().connection.execute("INSERT INTO charges VALUES (?)", (customer,))
            if fails.pop() if fails else False:
                raise ValueError("after the charge")
            return f"charged {customer}"

        with pytest.raises(ValueError, match="after the charge"):
            charge("ann")
        assert charges(file) == 0
        assert charge("ann") == charge("ann") == "charged ann"
        assert charges(file) == 1


def test_effect_and_result_are_one_transaction_under_asyncio(file: Path) -> None:
    """R23, A1, R32: also where the call is cancelled after the effect."""

    async def trial() -> None:
        store = AsyncSqliteStore(file)
        once = AsyncOnce(store, scope="jobs")
        charged, go_on = asyncio.Event(), asyncio.Event()

        @once.operation(key=lambda customer: K, effects="transactional")
        async def charge(customer: str) -> str:
            await current().connection.execute("INSERT INTO charges VALUES (?)", (customer,))
            charged.set()
            await go_on.wait()
            return f"charged {customer}"

        task = asyncio.create_task(charge("ann"))
        await charged.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert charges(file) == 0
        go_on.set()
        assert await charge("ann") == await charge("ann") == "charged ann"
        assert charges(file) == 1
        await store.aclose()

    asyncio.run(trial())


def test_results_outlive_the_process(file: Path) -> None:
    """R32, A6: another process, with the same function, gets the same value."""
    runs: list[int] = []

    def work() -> tuple[int, bytes]:
        runs.append(1)
        return 7, b"\xff"

    for _ in range(2):
        with closing(SqliteStore(file)) as store:
            assert Once(store, scope="jobs")(K, work) == (7, b"\xff")
    assert len(runs) == 1


def test_a_claim_whose_answer_was_lost_is_ones_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B6, I1: asked again, the store recognises its own claim; the function runs once, and nobody is blocked."""
    runs: list[int] = []
    with closing(SqliteStore(file)) as store:
        claim, lost = store.claim, [True]

        def losing(what: Any) -> Any:
            found = claim(what)
            if lost:
                lost.clear()
                raise AmbiguousWriteError("the answer was lost")
            return found

        monkeypatch.setattr(store, "claim", losing)
        once = Once(store, scope="jobs")
        assert once(K, lambda: runs.append(1)) is None
        assert once(K, lambda: runs.append(1)) is None
    assert len(runs) == 1


def test_a_recording_that_fails_runs_nothing_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R14, I6: the caller gets the true result; the outcome is held as unknown, and no retry runs."""
    runs: list[int] = []
    with closing(SqliteStore(file)) as store:

        def away(*what: Any, **named: Any) -> None:
            raise AmbiguousWriteError("away")

        once = Once(store, scope="jobs", observer=lambda event: None)

        def work() -> int:
            runs.append(1)
            return 7

        with monkeypatch.context() as patched:
            patched.setattr(store, "complete", away)
            assert once(K, work) == 7
        with pytest.raises(OutcomeUnknownError):
            once(K, work)
    assert len(runs) == 1


def test_a_blocking_store_is_refused_under_asyncio(file: Path) -> None:
    """R32: it would block the loop."""
    with closing(SqliteStore(file)) as store, pytest.raises(ConfigurationError, match="asynchronous store"):
        AsyncOnce(store, scope="jobs")  # type: ignore[arg-type]
