"""Retention on real databases: purging leaves alone what somebody is busy with; what a client is told in the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, KEY, wish
from tests.stores.postgresql_kinds import KIND, MANUAL_CLOCK, Place, new_place, won
from twicesafe.core.capture import Responded
from twicesafe.core.policy import Policy
from twicesafe.core.steps import Answer
from twicesafe.reaper import AsyncReaper
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.stores.steps import drive
from twicesafe.testing import ManualClock
from twicesafe.testing.cut import cut_at

RETENTION = timedelta(microseconds=KEY)
BODY_RETENTION = RETENTION / 6
EXPIRED = 30


@asynccontextmanager
async def with_expired(place: Place) -> AsyncIterator[tuple[AsyncStore, ManualClock]]:
    """A store on a schema of its own, with expired records in it."""
    clock = ManualClock()
    clock.watch(place.set_clock)
    async with place.opened(now_sql=MANUAL_CLOCK) as store:
        for n in range(EXPIRED):
            await store.complete(await won(store, f"old-{n}"), ANSWER, KEY, KEY)
        clock.advance(RETENTION)
        yield store, clock


@KIND
def test_purging_leaves_out_the_rows_that_somebody_is_busy_with(place: Place, kind: str) -> None:
    """R20: a transaction that holds expired rows is not waited for; the next purge takes them when it is over."""

    async def trial() -> None:
        async with with_expired(place) as (store, _), asyncio.timeout(60):
            with place.admin.transaction():
                place.admin.execute("SELECT 1 FROM twicesafe_records ORDER BY digest LIMIT 7 FOR UPDATE")
                assert await store.purge(EXPIRED) == EXPIRED - 7
                assert await store.purge(EXPIRED) == 0
            assert await store.purge(EXPIRED) == 7
        assert place.value("SELECT count(*) FROM twicesafe_records") == 0

    asyncio.run(trial())


@KIND
def test_a_purge_that_is_under_way_holds_up_no_other_key(place: Place, kind: str) -> None:
    """R20: while a batch is deleted and not yet committed, new claims, answers and expired keys beside it go on."""

    async def trial() -> None:
        async with with_expired(place) as (store, _), asyncio.timeout(60):
            sql = Queries(Dialect.POSTGRESQL, Placeholder.PERCENT, now_sql=MANUAL_CLOCK)("purge_keys", limit=10)
            with place.admin.transaction():
                assert len(place.admin.execute(sql.text, sql.parameters).fetchall()) == 10
                gone = place.admin.execute("SELECT digest FROM twicesafe_records").fetchall()
                beside = {row[0] for row in gone}
                assert len(beside) == EXPIRED - 10
                for n in range(10):
                    await store.complete(await won(store, f"new-{n}"), ANSWER, KEY, KEY)
                for n in range(EXPIRED):
                    if wish(f"old-{n}").digest in beside:
                        await won(store, f"old-{n}")
        assert place.value("SELECT count(*) FROM twicesafe_records") == EXPIRED - 10 + 10

    asyncio.run(trial())


@KIND
def test_a_reaper_and_rivals_for_the_very_same_keys(place: Place, kind: str) -> None:
    """R20, C6, I1: four reapers and three rivals over the same expired keys: each key is won once."""

    async def trial() -> None:
        async with with_expired(place) as (store, _), asyncio.timeout(60):
            wins = []

            async def rival() -> None:
                for n in range(EXPIRED):
                    found = await store.claim(wish(f"old-{n}"))
                    if hasattr(found, "ownership"):
                        wins.append(found.ownership)

            reapers = [AsyncReaper(store, batch=3, pause=timedelta(0)).run_once() for _ in range(4)]
            await asyncio.gather(*reapers, *(rival() for _ in range(3)))
            assert len(wins) == EXPIRED
            for own in wins:
                await store.renew(own, 1_000_000)

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_a_sweep_reads_the_table_in_order_and_purging_by_its_index(place: Place, kind: str) -> None:
    """R20, R27: a sweep reads its portion of the table and no more, and a purge finds what has ended by the index."""

    async def trial() -> None:
        async with place.opened() as store:
            place.admin.execute(
                "INSERT INTO twicesafe_records (digest, owner, epoch, created_at, lease_until, key_until, body_until,"
                " purge_minute, state, effects, fingerprint, scope, operation, key_hint, status, headers)"
                " SELECT sha256(int8send(n)), 'o', 1, 0, 0, 1e17, 1e17, 1e9 + n, 'completed', 'opaque', 'f', 's', 'o',"
                " 'k', 201, '' FROM generate_series(1, 3000) AS n"
            )
            place.admin.execute("ANALYZE twicesafe_records")
            sql = Queries(Dialect.POSTGRESQL, Placeholder.PERCENT)

            def plan(name: str, **parameters: int) -> str:
                statement = sql(name, **parameters)
                rows = place.admin.execute(f"EXPLAIN {statement.text}", statement.parameters).fetchall()
                return "\n".join(row[0] for row in rows)

            assert "Tid Range Scan" in plan("stale", after=10, place=20, most=10)
            assert "twicesafe_records_purge" in plan("purge_keys", limit=100)
            assert "twicesafe_records_purge" in plan("purge_bodies", limit=100)
            assert await store.purge() == 0

    asyncio.run(trial())


def test_of_many_ended_keys_or_bodies_each_kind_is_taken_alone() -> None:
    """R20: a scan for one kind passes all of the other, so a backlog of either is taken without looking at both."""
    left = {"purge_keys": 5, "purge_bodies": 4}
    asked: list[str] = []
    steps = SqlSteps(Queries(Dialect.SQLITE, Placeholder.QUESTION_MARK))

    def perform(step: Any) -> list[tuple[()]]:
        asked.append(step.name)
        took = min(2, left[step.name])
        left[step.name] -= took
        return [()] * took

    touched = [drive(steps.purge(2), perform) for _ in range(5)]
    assert left == {"purge_keys": 0, "purge_bodies": 0}
    assert touched == [2, 2, 3, 2, 0]
    assert asked == ["purge_keys", "purge_keys", "purge_keys", "purge_bodies", "purge_bodies", "purge_bodies"]


# --- what a client is told -------------------------------------------------------------------------------------------


def on_sqlite(folder: Path, clock: ManualClock, _: Any) -> Any:
    """A store on a file."""
    return AsyncSqliteStore(folder / "records.db", clock=clock)


def on_postgresql(layout: dict[str, Any]) -> Callable[[Path, ManualClock, Any], Any]:
    """A store on a server, in this layout."""

    def make(_: Path, clock: ManualClock, request: pytest.FixtureRequest) -> Any:
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        place = new_place(server, "asyncpg")
        request.addfinalizer(place.admin.close)
        clock.watch(place.set_clock)
        return place.store(now_sql=MANUAL_CLOCK, **layout)

    return make


PLACES = {
    "sqlite": on_sqlite,
    "postgresql": on_postgresql({}),
    "postgresql, daily": on_postgresql({"daily_bodies": timedelta(days=1)}),
}


@pytest.mark.parametrize("purged", [False, True], ids=["never purged", "purged"])
@pytest.mark.parametrize("where", PLACES)
def test_a_client_is_told_the_answer_then_that_it_is_done_and_then_it_runs_anew(
    request: pytest.FixtureRequest, tmp_path: Path, where: str, purged: bool
) -> None:
    """R20, A4, C4: replayed while its body is kept, "done, not kept" while its key is, then one new run."""
    clock = ManualClock()
    policy = Policy(key_retention=RETENTION, body_retention=BODY_RETENTION)
    runs: list[int] = []

    async def handler(_: Any) -> Responded:
        runs.append(len(runs) + 1)
        return Responded(201, ((b"content-type", b"application/json"),), b'{"run": %d}' % runs[-1])

    async def trial() -> None:
        store = PLACES[where](tmp_path, clock, request)
        await store.apply_schema()

        async def attempt() -> Any:
            if purged:
                await AsyncReaper(store, pause=timedelta(0)).run_once()
            return (await cut_at(None, wish(key_us=KEY), policy, store, handler)).result

        await attempt()
        clock.advance(BODY_RETENTION - timedelta(microseconds=1))
        replay = await attempt()
        assert runs == [1]
        assert type(replay) is Answer and (replay.status, replay.body) == (201, b'{"run": 1}')
        for wait in (timedelta(microseconds=1), RETENTION - BODY_RETENTION - timedelta(microseconds=1)):
            clock.advance(wait)
            told = await attempt()
            assert runs == [1]
            assert type(told) is Answer and told.status == 201
            assert json.loads(told.body)["type"].endswith("result-not-kept")
            assert b'"run"' not in told.body
        clock.advance(timedelta(microseconds=1))
        await asyncio.gather(*(attempt() for _ in range(5)))
        assert runs == [1, 2]
        await store.aclose()

    asyncio.run(trial())
