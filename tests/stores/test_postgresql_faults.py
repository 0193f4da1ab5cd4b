"""PostgreSQL when something is lost on the way: answers, connections, servers, and callers that give up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.servers.cutting import CuttingProxy, Loss
from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.postgresql_kinds import ASYNC_KINDS, KINDS, POOL_SIZE, Place, as_async, interpose, place
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, StoreUnavailableError
from twicesafe.stores.contract import AsyncSession, AsyncStore

KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(name="place")
def place_of_its_own(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own."""
    made = place(postgresql_server, kind)
    with made.admin:
        yield made


@pytest.fixture(scope="module", name="crashing")
def crashing_server() -> Iterator[PostgresqlServer]:
    """A server that these tests crash; it keeps its promises of durability."""
    with PostgresqlServer(durable=True) as server:
        yield server


@asynccontextmanager
async def proxied(place: Place, server: PostgresqlServer) -> AsyncIterator[tuple[CuttingProxy, AsyncStore]]:
    """A store that is reached through a proxy."""
    async with CuttingProxy(server.port) as proxy, place.opened(port=proxy.port) as store:
        yield proxy, store


async def won(session: AsyncSession, claim: Any = None) -> Ownership:
    """Claim and win."""
    found = await session.claim(wish(effects=Effects.TRANSACTIONAL) if claim is None else claim)
    assert isinstance(found, Claimed), found
    return found.ownership


async def complete(session: AsyncSession, own: Ownership, **named: Any) -> None:
    """With the usual answer."""
    await session.complete(own, ANSWER, KEY, BODY, **named)


async def whole(place: Place, store: AsyncStore, key: str) -> None:
    """A whole exchange on a key of its own."""
    async with store.transaction() as transaction:
        own = await won(transaction, wish(key, effects=Effects.TRANSACTIONAL))
        await place.write_in(transaction, key)
        await complete(transaction, own)
    assert place.effects(key) == 1


# --- answers that are lost -------------------------------------------------------------------------------------------


@KIND
def test_a_commit_whose_answer_is_lost_is_in_doubt_and_read_back(postgresql_server, place, kind) -> None:
    """R23, K: COMMIT arrived and its answer did not: an ambiguous write, one effect, and the row has my owner token."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction)
                await place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.ANSWER)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
                assert proxy.cut.is_set()
            assert place.effects() == 1
            found = await store.read(own.digest)
            assert found.record is not None
            assert found.record.ownership == own
            async with store.transaction() as again:
                await complete(again, own)
            assert place.effects() == 1

    asyncio.run(trial())


@KIND
def test_a_commit_that_never_arrives_is_in_doubt_and_left_nothing(postgresql_server, place, kind) -> None:
    """R23, K: COMMIT did not arrive: the same error, for nobody can tell; neither record nor effect is there."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction)
                await place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.REQUEST)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
                assert proxy.cut.is_set()
            found = await store.read(own.digest)
            assert found.record is None
            assert place.effects() == 0
            async with store.transaction() as again:
                with pytest.raises(LeaseLostError):
                    await complete(again, own)
            await whole(place, store, "key")

    asyncio.run(trial())


@KIND
def test_a_read_waits_for_a_commit_on_its_way(postgresql_server, place, kind) -> None:
    """R23, K: while COMMIT is still on its way a read does not say that nothing is there; it waits, and finds it."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction)
                await place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.TIME)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
            reading = asyncio.ensure_future(store.read(own.digest))
            while not await asyncio.to_thread(
                place.value, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            ):
                assert not reading.done()
            assert place.effects() == 0
            proxy.deliver()
            found = await reading
            assert place.effects() == 1
            assert found.record is not None
            assert found.record.ownership == own

    asyncio.run(trial())


@KIND
def test_what_fails_before_the_commit_left_nothing(postgresql_server, place, kind) -> None:
    """R23: a connection that is lost while the record is written is no matter of doubt: nothing was changed."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            for loss in (Loss.REQUEST, Loss.ANSWER):
                async with store.transaction() as transaction:
                    own = await won(transaction)
                    await place.write_in(transaction)
                    proxy.arm(own.owner, loss)
                    with pytest.raises(StoreUnavailableError):
                        await complete(transaction, own)
                    assert proxy.cut.is_set()
                assert place.effects() == 0
                assert (await store.read(own.digest)).record is None
            await whole(place, store, "key")

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
def test_a_leased_claim_whose_answer_is_lost_is_recognised(postgresql_server, place, kind, loss) -> None:
    """B6: whether the claim arrived or not, asked again under the same owner token it is won, once."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            claim = wish()
            proxy.arm(claim.owner, loss)
            with pytest.raises(AmbiguousWriteError):
                await store.claim(claim)
            own = await won(store, claim)
            rival = await store.claim(wish())
            assert isinstance(rival, Existing)
            assert rival.verdict is Verdict.IN_PROGRESS
            proxy.arm(own.owner, loss)
            with pytest.raises(AmbiguousWriteError):
                await complete(store, own)
            await complete(store, own)
            replay = await store.claim(wish())
            assert isinstance(replay, Existing)
            assert replay.record is not None
            assert replay.record.response == ANSWER

    asyncio.run(trial())


# --- servers that are lost -------------------------------------------------------------------------------------------


@KIND
def test_a_crash_of_the_server_leaves_all_or_nothing(crashing, kind) -> None:
    """R23, I11: after a crash what was completed is there, and of what was not there is neither effect nor record."""
    made = place(crashing, kind)

    async def trial() -> Ownership:
        async with made.opened() as store:
            await whole(made, store, "done")
            leased = await won(store, wish("leased"))
            async with store.transaction() as transaction:
                own = await won(transaction)
                await made.write_in(transaction)
                await asyncio.to_thread(crashing.restart, "immediate")
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            made.reconnect()
            assert made.effects() == 0
            assert made.effects("done") == 1
            assert (await store.read(own.digest)).record is None
            found = await store.read(wish("done").digest)
            assert found.record is not None
            assert found.record.response == ANSWER
            found = await store.read(leased.digest)
            assert found.record is not None
            assert found.record.ownership == leased
            # The pool had connections to a server that is no more.
            for n in range(2 * POOL_SIZE):
                await whole(made, store, f"after-{n}")
            return own

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_a_store_outlives_its_server(crashing, kind) -> None:
    """R23: without a server the store is unavailable, without a word of passwords; with one it is there again."""
    made = place(crashing, kind)

    async def trial() -> None:
        async with made.opened(timeout=timedelta(seconds=2)) as store:
            await whole(made, store, "before")
            await asyncio.to_thread(crashing.stop, "immediate")
            try:
                for call in (store.now, lambda: store.claim(wish()), lambda: store.read(bytes(32))):
                    with pytest.raises(StoreUnavailableError) as caught:
                        await call()
                    assert "secret" not in str(caught.value)
                async with store.transaction() as transaction:
                    with pytest.raises(StoreUnavailableError):
                        await transaction.claim(wish())
            finally:
                await asyncio.to_thread(crashing.start)
            made.reconnect()
            for _ in range(100):
                try:
                    await store.now()
                    break
                except StoreUnavailableError:
                    continue
            await whole(made, store, "after")

    asyncio.run(trial())
    made.admin.close()


@KIND
def test_connections_ended_by_an_administrator_are_replaced(place, kind) -> None:
    """R23, C8: sessions that the server ended, idle or in a transaction, cost their transaction and nothing else."""

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction)
                await place.write_in(transaction)
                await asyncio.to_thread(end_sessions, place)
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            assert place.effects() == 0
            for n in range(2 * POOL_SIZE):
                await whole(place, store, f"key-{n}")

    asyncio.run(trial())


def end_sessions(place: Place) -> None:
    """And wait until they are gone."""
    others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    place.admin.execute(f"SELECT pg_terminate_backend(pid, 10000) {others}")
    assert place.value(f"SELECT count(*) {others}") == 0


# --- callers that are lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_cancelling_anywhere_leaks_nothing(place, kind) -> None:
    """A1, C8: cancelled after any number of steps, an exchange leaves no transaction open, no connection taken, and
    never an effect without its record."""

    async def exchange(store: AsyncStore, key: str) -> None:
        async with store.transaction() as transaction:
            own = await won(transaction, wish(key, effects=Effects.TRANSACTIONAL))
            await place.write_in(transaction, key)
            await complete(transaction, own)

    async def trial() -> None:
        async with place.opened() as store:
            await whole(place, store, "warm")
            steps = 0
            while True:
                key = f"key-{steps}"
                task = asyncio.ensure_future(exchange(store, key))
                for _ in range(steps):
                    if task.done():
                        break
                    await one_turn()
                if task.done():
                    break
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                found = await store.read(wish(key).digest)
                assert place.effects(key) == (0 if found.record is None else 1), key
                steps += 1
            assert steps > 10
            for n in range(2 * POOL_SIZE):
                await whole(place, store, f"after-{n}")
        assert await asyncio.to_thread(open_transactions, place) == 0

    asyncio.run(trial())


@pytest.mark.parametrize("kind", ASYNC_KINDS)
def test_cancelling_a_leased_call_leaks_nothing(place, kind) -> None:
    """A1, C8: the same for the leased way, reads included, which hold a lock while they look."""

    async def trial() -> None:
        async with place.opened() as store:
            own = await won(store, wish("warm"))
            await complete(store, own)
            for call in (lambda: store.claim(wish("key")), lambda: store.read(own.digest), lambda: store.purge()):
                await call()
                for steps in range(30):
                    task = asyncio.ensure_future(call())
                    for _ in range(steps):
                        await one_turn()
                    task.cancel()
                    await asyncio.wait([task])
            for n in range(2 * POOL_SIZE):
                await whole(place, store, f"after-{n}")
        assert await asyncio.to_thread(open_transactions, place) == 0

    asyncio.run(trial())


async def one_turn() -> None:
    """One turn of the event loop, in which a socket that has something is read."""
    await asyncio.sleep(0)


def open_transactions(place: Place) -> int:
    """How many sessions are in a transaction and idle."""
    count: int = place.value("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'")
    return count


@KIND
def test_a_silent_server_is_hung_up_on(postgresql_server, place, kind) -> None:
    """C8, K: a statement that waits for somebody else's row for longer than the time-out ends, and changed nothing."""
    # Blocking calls wait as the server's settings say, which is the application's to choose.
    settings = {"lock_timeout": "500ms"} if kind == "psycopg" else {}

    async def trial() -> None:
        async with place.opened(timeout=timedelta(seconds=1.5), settings=settings) as store:
            own = await won(store, wish())
            with psycopg.connect(place.dsn_with()) as somebody:
                somebody.execute("SELECT 1 FROM twicesafe_records FOR UPDATE")
                with pytest.raises((StoreUnavailableError, AmbiguousWriteError)):
                    await complete(store, own)
            await complete(store, own)

    asyncio.run(trial())


# --- rivals ----------------------------------------------------------------------------------------------------------


@KIND
@pytest.mark.parametrize("rival_commits", [True, False])
def test_the_unique_key_arbitrates_where_locks_are_passed_by(place, kind, rival_commits) -> None:
    """I1, I3: against a rival that takes no lock one row goes in: a claim that lost it rolls its effect back."""
    columns = "digest, owner, epoch, created_at, lease_until, key_until, body_until, purge_minute, state, effects, "
    columns += "fingerprint, scope, operation, key_hint, status, headers"

    async def trial() -> None:
        async with place.opened() as store:
            claim = wish(effects=Effects.TRANSACTIONAL)
            with psycopg.connect(place.dsn_with()) as rival:
                rival.execute(
                    f"INSERT INTO twicesafe_records ({columns}) VALUES (%s, '\\x01', 1, 0, 0, 9e18::bigint, 0, 0, "
                    "'completed', 'keyed', '\\x01', 's', 'o', 'h', 200, '')",
                    [claim.digest],
                )
                async with store.transaction() as transaction:
                    own = await won(transaction, claim)
                    await place.write_in(transaction)
                    completing = asyncio.ensure_future(complete(transaction, own))
                    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
                    while not await asyncio.to_thread(place.value, waiting):
                        assert not completing.done()
                    if rival_commits:
                        rival.commit()
                        with pytest.raises(LeaseLostError):
                            await completing
                    else:
                        rival.rollback()
                        await completing
            assert place.effects() == (0 if rival_commits else 1)
            assert place.value("SELECT count(*) FROM twicesafe_records") == 1

    asyncio.run(trial())


@KIND
def test_a_rival_between_rollback_and_record_is_no_error(place, kind) -> None:
    """R15, H2: a failure rolls its effects back first; a rival that runs before it is recorded counts instead."""

    async def trial() -> None:
        plain = place.store()
        store, other = as_async(plain), as_async(place.store())
        loop = asyncio.get_running_loop()
        try:
            await store.apply_schema()
            failed: list[int] = []
            async with store.transaction() as transaction:
                own = await won(transaction)
                await place.write_in(transaction)

                async def rival() -> None:
                    await whole(place, other, "key")

                def between(n: int) -> Any:
                    # 0 is the rollback.
                    if n != 1:
                        return None
                    failed.append(n)
                    if kind == "psycopg":
                        return asyncio.run_coroutine_threadsafe(rival(), loop).result(30)
                    return rival()

                interpose(plain, between)
                await transaction.complete(own, ANSWER._replace(status=422), KEY, BODY, keep_effects=False)
            assert failed == [1]
            assert place.effects() == 1
            found = await other.read(own.digest)
            assert found.record is not None
            assert found.record.response == ANSWER
        finally:
            await store.aclose()
            await other.aclose()

    asyncio.run(trial())


@KIND
def test_an_effect_that_fails_at_the_commit_is_not_recorded(place, kind) -> None:
    """H2: a constraint that is checked at COMMIT and fails leaves neither effect nor record, and no doubt."""

    async def trial() -> None:
        place.admin.execute("ALTER TABLE effects ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction)
                await place.write_in(transaction)
                await place.write_in(transaction)
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert (await store.read(own.digest)).record is None
            await whole(place, store, "key")

    asyncio.run(trial())
