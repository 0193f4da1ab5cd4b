"""Waiting for somebody else's key on PostgreSQL: who is told, by what, and what it costs everybody else."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import asyncpg
import pytest

from tests.servers.cutting import CuttingProxy
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgresqlServer
from tests.shells.probe import post
from tests.stores.claims import ANSWER, wish
from tests.stores.postgresql_kinds import ASYNC_KINDS, KINDS, Place, as_async, complete, new_place, whole, won
from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.postgresql_waiting import FLOOR

TRANSACTIONAL = Effects.TRANSACTIONAL
FOR_EVER = 100_000_000
"""Microseconds. What ends a wait within a test is a wake-up."""
WAITERS = 100

ASYNC = pytest.mark.parametrize("kind", ASYNC_KINDS)


async def replayed(store: AsyncStore, key: str = "key", *, effects: Effects = TRANSACTIONAL) -> int:
    """Ask and wait until there is an answer; how often it was waited."""
    waits = 0
    while True:
        claim = wish(key, effects=effects)
        if effects is TRANSACTIONAL:
            async with store.transaction() as transaction:
                found = await transaction.claim(claim)
        else:
            found = await store.claim(claim)
        assert isinstance(found, Existing), found
        if found.verdict is Verdict.REPLAY:
            assert found.record is not None
            assert found.record.response == ANSWER
            return waits
        assert found.verdict is Verdict.IN_PROGRESS
        await settled(store, key)
        waits += 1


async def settled(store: AsyncStore, key: str = "key", within_us: int = FOR_EVER) -> None:
    await store.settled(wish(key).digest, within_us)  # type: ignore[attr-defined]


async def waiting(store: Any, count: int, key: str = "key") -> None:
    """Until so many wait, and the server knows of it."""
    wake_ups = store._wake_ups
    digest = wish(key).digest
    for _ in range(100_000):
        if len(wake_ups._waiting.get(digest, ())) == count and digest in wake_ups._marked and not wake_ups._unseen:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{len(wake_ups._waiting.get(digest, ()))} wait")


@ASYNC
@pytest.mark.parametrize("effects", [TRANSACTIONAL, Effects.KEYED])
def test_a_hundred_wait_over_a_pool_of_two(place, effects) -> None:
    """R11, C8: all get the first one's answer when it is there, and keep nobody from a connection until then."""

    async def trial() -> None:
        async with place.opened(pool_size=2) as store:
            async with asyncio.timeout(60):
                if effects is TRANSACTIONAL:
                    transaction = store.transaction()
                    session: Any = await transaction.__aenter__()
                else:
                    session = store
                own = await won(session, effects=effects)
                tasks = [asyncio.create_task(replayed(store, effects=effects)) for _ in range(WAITERS)]
                await waiting(store, WAITERS)
                # The one connection that is left serves everybody else; one more listens, outside of the pool.
                for n in range(10):
                    await whole(place, store, f"other-{n}")
                assert not any(task.done() for task in tasks)
                if effects is TRANSACTIONAL:
                    await place.write_in(session)
                completed = monotonic()
                await complete(session, own)
                if effects is TRANSACTIONAL:
                    await transaction.__aexit__(None, None, None)
                waits = await asyncio.gather(*tasks)
            assert place.effects() == (1 if effects is TRANSACTIONAL else 0)
            assert max(waits) <= 1 + (monotonic() - completed) / FLOOR

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_a_hundred_requests_wait_over_a_pool_of_two(place) -> None:
    """R11, C8: by the whole way of a request: one runs, the others wait for it and are given its answer."""

    async def trial() -> None:
        entered, goes_on = asyncio.Event(), asyncio.Event()

        async def handler(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await place.write(current(scope).connection, "key")
            entered.set()
            await goes_on.wait()
            await send({"type": "http.response.start", "status": 201, "headers": []})
            await send({"type": "http.response.body", "body": b"charged"})

        waited: set[Any] = set()
        all_wait = asyncio.Event()

        async with place.opened(pool_size=2) as store, asyncio.timeout(60):
            settles = store.settled

            async def noted(digest: bytes, within_us: int) -> None:
                waited.add(asyncio.current_task())
                if len(waited) == WAITERS:
                    all_wait.set()
                await settles(digest, within_us)

            store.settled = noted
            policy = Policy(effects=TRANSACTIONAL, wait=timedelta(seconds=50))
            app = IdempotencyMiddleware(handler, store, scope=PUBLIC, policy=policy, observer=lambda _: None)
            first = asyncio.create_task(post(app))
            await entered.wait()
            others = [asyncio.create_task(post(app)) for _ in range(WAITERS)]
            try:
                await all_wait.wait()
                for n in range(10):
                    await whole(place, store, f"other-{n}")
                assert not any(task.done() for task in others)
            finally:
                goes_on.set()
            answers = await asyncio.gather(*others)
            assert place.effects() == 1
            assert not (await first).replayed
            assert {(answer.status, answer.body, answer.replayed) for answer in answers} == {(201, b"charged", True)}

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ["asyncpg"])
@pytest.mark.parametrize("finisher", list(KINDS))
def test_whoever_completes_tells_another_process(postgresql_server: PostgresqlServer, place, finisher) -> None:
    """R11: a store of any driver, in a process of its own for all that it knows, wakes those who wait elsewhere."""
    other = Place(place.admin, place.name, place.dsn, finisher)

    async def trial() -> None:
        async with place.opened() as store, other.opened() as elsewhere, asyncio.timeout(60):
            told = counted(store)
            own = await won(elsewhere, "leased")
            task = asyncio.create_task(replayed(store, "leased", effects=Effects.KEYED))
            await waiting(store, 1, "leased")
            await complete(elsewhere, own)
            await task
            async with elsewhere.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await other.write_in(transaction)
                task = asyncio.create_task(replayed(store))
                await waiting(store, 1)
                await complete(transaction, own)
            await task
            assert place.effects() == 1
            while len(told) < 2:
                # It may have been seen before it was heard of.
                await settled(store, "another", within_us=10_000)
            assert told == [wish("leased").digest.hex(), wish().digest.hex()]

    asyncio.run(trial())


def counted(store: Any) -> list[str]:
    """What `store` is told from now on."""
    told: list[str] = []
    pass_on = store._wake_ups._told

    def count(payload: str) -> None:
        told.append(payload)
        pass_on(payload)

    store._wake_ups._told = count
    return told


@ASYNC
def test_nobody_is_told_where_nobody_waits(place) -> None:
    """R11, K: a commit takes no lock of NOTIFY's and no round trip more for those who might wait."""

    async def trial() -> None:
        listener = await asyncpg.connect(place.dsn_with())
        heard: list[object] = []
        await listener.add_listener("twicesafe_settled", lambda *said: heard.append(said[3]))
        async with place.opened() as store:
            for n in range(5):
                await whole(place, store, f"t-{n}")
                await complete(store, await won(store, f"l-{n}"))
                await store.release(await won(store, f"r-{n}"))
            async with asyncio.timeout(60):
                own = await won(store, "waited for")
                task = asyncio.create_task(replayed(store, "waited for", effects=Effects.KEYED))
                await waiting(store, 1, "waited for")
                await complete(store, own)
                await task
            await listener.execute("SELECT 1")
            assert heard == [wish("waited for").digest.hex()]
        await listener.close()

    asyncio.run(trial())


@ASYNC
def test_what_nobody_tells_of_is_found_by_looking(place) -> None:
    """R11, R16: a transaction that is rolled back, or whose session is ended, lets those who wait run, before long."""

    async def trial() -> None:
        async with place.opened() as store, asyncio.timeout(60):
            for end in ("release", "crash"):
                async with store.transaction() as transaction:
                    own = await won(transaction, end, effects=TRANSACTIONAL)
                    task = asyncio.create_task(settled(store, end))
                    await waiting(store, 1, end)
                    if end == "release":
                        await transaction.release(own)
                    else:
                        place.admin.execute(
                            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory'"
                            " AND mode = 'ExclusiveLock' AND pid <> pg_backend_pid()"
                        )
                    await task
                await whole(place, store, end)

    asyncio.run(trial())


@ASYNC
def test_a_wait_ends_in_time(place) -> None:
    """R11: a wait is bounded, whether the key is in progress or not; one that is not in progress is not waited for."""

    async def trial() -> None:
        async with place.opened() as store, asyncio.timeout(60):
            own = await won(store)
            began = monotonic()
            await settled(store, within_us=50_000)
            assert monotonic() - began >= 0.05
            await complete(store, own)
            await settled(store)
            await settled(store, "nobody's")
            await store.aclose()
            await settled(store, "nobody's", within_us=1000)

    asyncio.run(trial())


@ASYNC
def test_a_mark_is_taken_away_after_its_last_waiter(place, monkeypatch) -> None:
    """R11, K: keys that were waited for once do not pile up in the server's memory."""
    monkeypatch.setattr("twicesafe.stores.postgresql_waiting.LINGER", 0.0)
    monkeypatch.setattr("twicesafe.stores.postgresql_waiting.FLOOR", 0.01)

    async def trial() -> None:
        async with place.opened() as store, asyncio.timeout(60):
            for n in range(20):
                await won(store, f"key-{n}")
                await settled(store, f"key-{n}", within_us=10_000)
            once = {wish(f"key-{n}").digest for n in range(20)}
            while once & store._wake_ups._marked.keys():
                await settled(store, "another", within_us=10_000)
            assert place.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") <= 1

    asyncio.run(trial())


@ASYNC
def test_without_a_server_a_wait_is_only_a_wait(place, postgresql_server: PostgresqlServer) -> None:
    """R11: a wait that finds no server raises nothing and lets some time pass; with a server it works again."""

    async def trial() -> None:
        async with CuttingProxy(postgresql_server.port) as proxy, asyncio.timeout(60):
            store = place.store(port=proxy.port)
            await store.apply_schema()
            own = await won(store)
            task = asyncio.create_task(settled(store))
            await waiting(store, 1)
            place.admin.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            await task
            await settled(store, within_us=1000)
            store._wake_ups._open_at = 0.0
            task = asyncio.create_task(replayed(store, effects=Effects.KEYED))
            await waiting(store, 1)
            await complete(store, own)
            await task
            await store.aclose()

    asyncio.run(trial())


def test_a_pool_of_your_own_is_waited_for_by_polling(postgresql_server: PostgresqlServer) -> None:
    """R11: where the address is not known nobody can listen, and waiting is asking again."""
    made = new_place(postgresql_server, "asyncpg")

    async def trial() -> None:
        async with asyncpg.create_pool(made.dsn_with(), min_size=1, max_size=2) as pool, asyncio.timeout(60):
            store = AsyncpgStore(pool)
            await store.apply_schema()
            own = await won(store)
            task = asyncio.create_task(replayed(store, effects=Effects.KEYED))
            await settled(store)
            assert not task.done()
            await complete(store, own)
            assert await task >= 1
            await store.aclose()

    with made.admin:
        asyncio.run(trial())


@ASYNC
def test_behind_pgbouncer_waiting_is_polling(postgresql_server: PostgresqlServer, kind) -> None:
    """R11, C8: where LISTEN is heard by nobody that is found out, no lock is left in the pooler's sessions, and a wait
    is a short pause before the next question."""
    database = postgresql_server.create_database()
    name = database.rpartition("/")[2]

    async def trial() -> None:
        with PgBouncer(postgresql_server) as bouncer:
            store, owner = KINDS[kind][0](postgresql_server.dsn(name, port=bouncer.port)), KINDS[kind][0](database)
            async with asyncio.timeout(60):
                await owner.apply_schema()
                own = await won(owner)
                await settled(store)
                await settled(store)
                connection = await asyncpg.connect(database)
                locks = "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database WHERE datname = $1"
                assert await connection.fetchval(f"{locks} AND locktype = 'advisory'", name) == 0
                assert await connection.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
                assert store._wake_ups._line is None
                await complete(owner, own)
                await connection.close()
            await store.aclose()
            await owner.aclose()

    asyncio.run(trial())


@ASYNC
def test_waiters_may_be_cancelled(place) -> None:
    """A1: who gives up while waiting leaves the others, the connection and the key as they are."""

    async def trial() -> None:
        async with place.opened() as store, asyncio.timeout(60):
            own = await won(store)
            tasks = [asyncio.create_task(replayed(store, effects=Effects.KEYED)) for _ in range(10)]
            await waiting(store, 10)
            for task in tasks[:5]:
                task.cancel()
            for task in tasks[:5]:
                with suppress(asyncio.CancelledError):
                    await task
            await complete(store, own)
            await asyncio.gather(*tasks[5:])
            assert store._wake_ups._waiting == {}

    asyncio.run(trial())


def test_stores_in_threads_are_as_they_were() -> None:
    """House: blocking stores have no wake-ups, and whoever asks for them finds that out by looking."""
    assert not hasattr(as_async(KINDS["psycopg"][0]("postgresql://nowhere")), "settled")
