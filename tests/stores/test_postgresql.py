"""PostgreSQL beyond the contract: its clock, its isolation, what handlers do with a connection, pools and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row

from tests.servers.cutting import CuttingProxy
from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, BODY, KEY, LEASE, wish
from tests.stores.postgresql_kinds import KINDS, Place, as_async, place
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership
from twicesafe.errors import (
    AmbiguousWriteError,
    ConfigurationError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.contract import AsyncSession, AsyncStore
from twicesafe.stores.postgresql import Failure, store_error, without_password
from twicesafe.stores.psycopg import AsyncPsycopgStore, PsycopgStore
from twicesafe.testing import Outcome, check_store

KIND = pytest.mark.parametrize("kind", KINDS)
ODD_ZONES = ("Pacific/Kiritimati", "America/Adak", "Asia/Kathmandu")
TRANSACTIONAL = Effects.TRANSACTIONAL


@pytest.fixture(name="place")
def place_of_its_own(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own."""
    made = place(postgresql_server, kind)
    with made.admin:
        yield made


async def won(session: AsyncSession, key: str = "key", **changes: Any) -> Ownership:
    """Claim and win."""
    found = await session.claim(wish(key, **changes))
    assert isinstance(found, Claimed), found
    return found.ownership


async def complete(session: AsyncSession, own: Ownership, **named: Any) -> None:
    """With the usual answer."""
    await session.complete(own, ANSWER, KEY, BODY, **named)


async def whole(place: Place, store: AsyncStore, key: str = "key") -> None:
    """A whole exchange on a key of its own."""
    async with store.transaction() as transaction:
        own = await won(transaction, key, effects=TRANSACTIONAL)
        await place.write_in(transaction, key)
        await complete(transaction, own)
    assert place.effects(key) == 1


# --- its clock -------------------------------------------------------------------------------------------------------


@KIND
def test_no_time_zone_moves_a_lease(place, kind) -> None:
    """I12, K: whatever the session's time zone, a lease ends its length after the server's clock, to the second."""

    async def trial() -> None:
        async with place.opened() as store:
            await won(store, "here")
            for zone in ODD_ZONES:
                there = as_async(place.store(settings={"TimeZone": zone, "DateStyle": "SQL, DMY"}))
                try:
                    found = await there.claim(wish("here"))
                    assert isinstance(found, Existing)
                    assert found.verdict is Verdict.IN_PROGRESS
                    assert found.record is not None
                    assert 0 < found.record.lease_until - found.now <= LEASE
                    own = await won(there, zone)
                    row = (await store.read(own.digest)).record
                    assert row is not None
                    assert 0 <= await store.now() - row.created_at < 60_000_000
                finally:
                    await there.aclose()
            seconds = place.value("SELECT extract(epoch FROM clock_timestamp())::bigint")
            assert abs(await store.now() - seconds * 1_000_000) < 60_000_000

    asyncio.run(trial())


@KIND
def test_a_lease_in_an_old_transaction_begins_now(place, kind) -> None:
    """I12, K: the clock is the moment's, not the beginning of the transaction: no lease is born expired."""

    async def trial() -> None:
        async with place.opened() as store, store.transaction() as transaction:
            await transaction.begin()
            began = await place.sql_in(transaction, "SELECT (extract(epoch FROM now()) * 1000000)::bigint")
            await place.sql_in(transaction, "SELECT pg_sleep(0.05)")
            found = await transaction.claim(wish(effects=TRANSACTIONAL))
            assert isinstance(found, Claimed)
            assert found.now - began >= 50_000
            await complete(transaction, found.ownership)
            row = (await store.read(found.ownership.digest)).record
            assert row is not None
            assert row.created_at - began >= 50_000
            assert row.key_until >= row.created_at + KEY

    asyncio.run(trial())


# --- its isolation ---------------------------------------------------------------------------------------------------


@KIND
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    ("check", "size"),
    [
        ("one_of_many_wins", 40),
        ("one_of_many_takes_over", 1),
        ("one_of_many_runs_after_expiry", 1),
        ("claims_go_on_while_purging", 1),
        ("one_of_many_transactions_commits", 1),
        ("a_vanishing_row_is_claimed_anew", 1),
    ],
)
def test_stricter_isolation_changes_no_answer(place, kind, level, check, size) -> None:
    """K, C1: where sessions default to a stricter isolation, rivals are told what they are elsewhere, no errors."""
    settings = {"default_transaction_isolation": level}
    [result] = check_store(lambda clock: place.subject(clock, settings=settings), only=[check], rivals=8, keys=size)
    assert result.outcome is Outcome.PASSED


@KIND
def test_a_session_that_may_only_read_is_refused_in_words(place, kind) -> None:
    """R23: on a server that only reads, claims fail as unavailable and no work is done; reads go on."""

    async def trial() -> None:
        async with place.opened():
            pass
        store = as_async(place.store(settings={"default_transaction_read_only": "on"}))
        try:
            with pytest.raises(StoreUnavailableError, match="25006"):
                await store.claim(wish())
            assert (await store.read(wish().digest)).record is None
        finally:
            await store.aclose()

    asyncio.run(trial())


# --- what handlers do ------------------------------------------------------------------------------------------------


@KIND
def test_handlers_make_savepoints_their_drivers_way(place, kind) -> None:
    """R23: `connection.transaction()` inside is a savepoint: what it rolls back is gone, the rest commits."""

    def psycopg_handler(connection: Any) -> None:
        place.write(connection, "kept")
        with suppress(ZeroDivisionError), connection.transaction():
            place.write(connection, "dropped")
            raise ZeroDivisionError
        with connection.transaction():
            place.write(connection, "kept")

    async def handler(connection: Any) -> None:
        await place.write(connection, "kept")
        with suppress(ZeroDivisionError):
            async with connection.transaction():
                await place.write(connection, "dropped")
                raise ZeroDivisionError
        async with connection.transaction():
            await place.write(connection, "kept")

    async def trial() -> None:
        async with place.opened(pool_size=1) as store:
            for n in range(3):
                async with store.transaction() as transaction:
                    own = await won(transaction, f"key-{n}", effects=TRANSACTIONAL)
                    if kind == "psycopg":
                        await transaction.run(psycopg_handler, transaction.connection)
                    else:
                        await handler(transaction.connection)
                    await complete(transaction, own)
                assert (place.effects("kept"), place.effects("dropped")) == (2 * n + 2, 0)

    asyncio.run(trial())


@KIND
def test_a_statement_that_failed_unnoticed_is_not_a_success(place, kind) -> None:
    """H2: a handler that swallows a database error and answers 201 has nothing to commit: nothing is recorded."""

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                with pytest.raises((asyncpg.PostgresError, psycopg.Error)):
                    await place.sql_in(transaction, "SELECT 1/0")
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert (await store.read(own.digest)).record is None
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                with pytest.raises((asyncpg.PostgresError, psycopg.Error)):
                    await place.sql_in(transaction, "SELECT 1/0")
                await transaction.complete(own, ANSWER._replace(status=409), KEY, BODY, keep_effects=False)
            row = (await store.read(own.digest)).record
            assert row is not None
            assert row.response == ANSWER._replace(status=409)

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("ending", ["complete", "release", "leave", "fail"])
def test_what_a_handler_leaves_in_its_session_goes_with_it(place, kind, ending) -> None:
    """R23, S: settings, session locks and listeners of one handler do not reach the next one's connection."""

    async def trial() -> None:
        async with place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.sql_in(transaction, "SET statement_timeout = '77s'")
                await place.sql_in(transaction, "SELECT pg_advisory_lock(4711)")
                await place.sql_in(transaction, "LISTEN gossip")
                if ending == "complete":
                    await complete(transaction, own)
                elif ending == "release":
                    await transaction.release(own)
                elif ending == "fail":
                    with pytest.raises((asyncpg.PostgresError, psycopg.Error)):
                        await place.sql_in(transaction, "SELECT 1/0")
            async with store.transaction() as transaction:
                await transaction.begin()
                assert await place.sql_in(transaction, "SHOW statement_timeout") == "0"
                assert await place.sql_in(transaction, "SELECT count(*) FROM pg_listening_channels()") == 0
            assert place.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711") == 0

    asyncio.run(trial())


@KIND
def test_a_kept_connection_never_meets_another_request(place, kind) -> None:
    """R23: a handler that goes on with its connection after the end writes into nobody else's transaction."""

    async def trial() -> None:
        async with place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                connection = transaction.connection
                await complete(transaction, own)
                async with asyncio.timeout(10):
                    rival = asyncio.ensure_future(whole(place, store, "other"))
                    try:
                        if kind == "psycopg":
                            await transaction.run(place.write, connection, "late")
                        else:
                            await place.write(connection, "late")
                    except asyncpg.InterfaceError:
                        assert kind == "asyncpg"
            await rival
            # By psycopg it is still its own connection, and commits by itself; by asyncpg it is dead.
            assert place.effects("late") == (0 if kind == "asyncpg" else 1)

    asyncio.run(trial())


# --- pools -----------------------------------------------------------------------------------------------------------


def test_a_pool_of_your_own_stays_yours_asyncpg(postgresql_server: PostgresqlServer) -> None:
    """C8: an asyncpg pool that was made elsewhere serves the store, and is left open and as it was."""
    made = place(postgresql_server, "asyncpg")

    async def trial() -> None:
        async with asyncpg.create_pool(made.dsn_with(), min_size=1, max_size=2) as pool:
            store = AsyncpgStore(pool)
            await store.apply_schema()
            for n in range(5):
                await whole(made, store, f"key-{n}")
            await won(store, "leased")
            await store.aclose()
            await store.aclose()
            assert await pool.fetchval("SELECT 1") == 1
            assert pool.get_idle_size() == pool.get_size()

    with made.admin:
        asyncio.run(trial())


def test_a_pool_of_your_own_stays_yours_psycopg(postgresql_server: PostgresqlServer) -> None:
    """C8: whatever row factory and commit mode a psycopg pool has, the store works on it, and leaves them alone."""
    made = place(postgresql_server, "psycopg")
    with psycopg_pool.ConnectionPool(
        made.dsn_with(), min_size=1, max_size=1, kwargs={"row_factory": dict_row}, open=True
    ) as pool:
        store = PsycopgStore(pool)
        store.apply_schema()

        async def trial() -> None:
            asynchronous = as_async(store)
            for n in range(3):
                await whole(made, asynchronous, f"key-{n}")
            await won(asynchronous, "leased")
            await asynchronous.aclose()

        asyncio.run(trial())
        with pool.connection() as connection:
            assert not connection.autocommit
            assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    made.admin.close()


def test_a_pool_of_your_own_stays_yours_psycopg_async(postgresql_server: PostgresqlServer) -> None:
    """C8: the same for an asynchronous psycopg pool."""
    made = place(postgresql_server, "psycopg, async")

    async def trial() -> None:
        async with psycopg_pool.AsyncConnectionPool(
            made.dsn_with(), min_size=1, max_size=1, kwargs={"row_factory": dict_row}, open=False
        ) as pool:
            store = AsyncPsycopgStore(pool)
            await store.apply_schema()
            for n in range(3):
                await whole(made, store, f"key-{n}")
            await won(store, "leased")
            await store.aclose()
            async with pool.connection() as connection:
                assert not connection.autocommit
                cursor = await connection.execute("SELECT 1 AS one")
                assert await cursor.fetchone() == {"one": 1}

    with made.admin:
        asyncio.run(trial())


@KIND
def test_an_empty_pool_is_told_and_not_waited_for(place, kind) -> None:
    """C8: with every connection taken, the next caller is told within the time-out; those who have one go on."""

    async def trial() -> None:
        async with place.opened(pool_size=1, timeout=timedelta(seconds=1.5)) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                with pytest.raises(StoreUnavailableError, match="pool"):
                    await store.claim(wish("other"))
                async with store.transaction() as other:
                    with pytest.raises(StoreUnavailableError, match="pool"):
                        await other.claim(wish("other"))
                await place.write_in(transaction)
                await complete(transaction, own)
            await whole(place, store, "other")
            assert place.effects() == 1

    asyncio.run(trial())


@KIND
def test_waiting_for_a_key_holds_no_connection(place, kind) -> None:
    """C8: a claim that is refused has given its connection back, though its transaction was not left."""

    async def trial() -> None:
        async with place.opened(pool_size=2) as store, store.transaction() as first:
            own = await won(first, effects=TRANSACTIONAL)
            async with store.transaction() as waiting:
                found = await waiting.claim(wish(effects=TRANSACTIONAL))
                assert isinstance(found, Existing)
                assert found.verdict is Verdict.IN_PROGRESS
                await whole(place, store, "other")
                await complete(first, own)
                found = await waiting.claim(wish(effects=TRANSACTIONAL))
                assert isinstance(found, Existing)
                assert found.verdict is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_an_exchange_takes_few_round_trips(postgresql_server, place, kind) -> None:
    """R10: once statements are prepared, round trips are counted: the store adds as few as it promises."""
    expected = {
        # BEGIN with the lock, the look, the effect, the record, COMMIT.
        "asyncpg": {"transaction": 5, "claim": 1, "complete": 1, "replay": 2},
        # BEGIN with lock and look.
        "psycopg": {"transaction": 4, "claim": 1, "complete": 1, "replay": 2},
        "psycopg, async": {"transaction": 4, "claim": 1, "complete": 1, "replay": 2},
    }[kind]

    async def trial() -> None:
        async with (
            CuttingProxy(postgresql_server.port) as proxy,
            place.opened(port=proxy.port, pool_size=1) as store,
        ):
            taken = {}
            for n in range(8):
                before = proxy.round_trips
                await whole(place, store, f"t-{n}")
                taken["transaction"] = proxy.round_trips - before
                before = proxy.round_trips
                own = await won(store, f"l-{n}")
                taken["claim"] = proxy.round_trips - before
                before = proxy.round_trips
                await complete(store, own)
                taken["complete"] = proxy.round_trips - before
                before = proxy.round_trips
                await store.claim(wish(f"l-{n}"))
                taken["replay"] = proxy.round_trips - before
            assert taken == expected

    asyncio.run(trial())


# --- rows of others --------------------------------------------------------------------------------------------------


@KIND
def test_a_purge_waits_for_nobody(place, kind) -> None:
    """R20: rows that somebody is busy with are left for the next time, so that a purge never stands in a queue."""

    async def trial() -> None:
        async with place.opened(now_sql="SELECT now FROM clock") as store:
            for key in ("busy", "idle"):
                await complete(store, await won(store, key))
            place.set_clock(KEY)
            with psycopg.connect(place.dsn_with()) as somebody:
                somebody.execute("SELECT 1 FROM twicesafe_records WHERE digest = %s FOR UPDATE", [wish("busy").digest])
                assert await store.purge() == 1
            assert await store.purge() == 1
            assert place.value("SELECT count(*) FROM twicesafe_records") == 0

    asyncio.run(trial())


@KIND
def test_names_that_no_database_can_keep_are_kept_readable(place, kind) -> None:
    """G5: a scope with a zero byte or half a surrogate pair, which PostgreSQL cannot keep, claims all the same."""

    async def trial() -> None:
        async with place.opened() as store:
            for n, scope in enumerate(("zero\0byte", "half \ud83d pair")):
                own = await won(store, f"key-{n}", scope=scope)
                row = (await store.read(own.digest)).record
                assert row is not None
                assert row.scope.startswith(scope[:4])
                async with store.transaction() as transaction:
                    own = await won(transaction, f"inside-{n}", scope=scope, effects=TRANSACTIONAL)
                    await complete(transaction, own)

    asyncio.run(trial())


# --- errors ----------------------------------------------------------------------------------------------------------


@KIND
def test_missing_tables_are_told_with_the_command_that_makes_them(place, kind) -> None:
    """R21, R22: without tables each call says which command makes them, and the password is not in it."""

    async def trial() -> None:
        plain = KINDS[kind][0](place.dsn_with().replace("twicesafe@", "twicesafe:secret@"))
        store = as_async(plain)
        try:
            with pytest.raises(SchemaError, match="twicesafe schema apply --store postgresql://") as checked:
                await store.check_schema()
            with pytest.raises(SchemaError, match="twicesafe schema apply --store postgresql://") as claimed:
                await store.claim(wish())
            async with store.transaction() as transaction:
                with pytest.raises(SchemaError):
                    await transaction.claim(wish())
            for caught in (checked, claimed):
                assert "secret" not in str(caught.value)
            await asyncio.gather(*(store.apply_schema() for _ in range(4)))
            await store.check_schema()
            await whole(place, store)
        finally:
            await store.aclose()

    asyncio.run(trial())


@pytest.mark.parametrize(
    ("sqlstate", "doubtful", "meaning"),
    [
        (None, True, AmbiguousWriteError),
        (None, False, StoreUnavailableError),
        ("08006", True, AmbiguousWriteError),
        ("57P01", True, AmbiguousWriteError),
        ("57P02", True, AmbiguousWriteError),
        ("57P01", False, StoreUnavailableError),
        ("40001", True, StoreUnavailableError),
        ("40P01", True, StoreUnavailableError),
        ("55P03", True, StoreUnavailableError),
        ("57014", True, StoreUnavailableError),
        ("53300", True, StoreUnavailableError),
        ("23505", True, StoreUnavailableError),
        ("25P02", True, StoreUnavailableError),
        ("42P01", True, SchemaError),
        ("42703", True, SchemaError),
    ],
)
def test_an_error_is_known_by_its_number(sqlstate: str | None, doubtful: bool, meaning: type[StoreError]) -> None:
    """K: what an error means is decided by its SQLSTATE, in whatever language its message comes."""
    error = store_error(Failure(sqlstate, "Zulässige Verbindung abgerissen"), "postgresql://host/db", doubtful=doubtful)
    assert type(error) is meaning


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://app:s3cret@host/db", "postgresql://app:***@host/db"),
        ("postgresql://app:a%40b:c@host:5432/db?sslmode=require", "postgresql://app:***@host:5432/db?sslmode=require"),
        ("postgresql://host/db?user=app&password=s3cret&x=1", "postgresql://host/db?user=app&password=***&x=1"),
        ("postgresql://app@host/db", "postgresql://app@host/db"),
        ("host=h user=u password=s3cret dbname=d", "host=h user=u password=*** dbname=d"),
        ("host=h password='s3 cret' dbname=d", "host=h password=*** dbname=d"),
    ],
)
def test_no_message_shows_a_password(dsn: str, shown: str) -> None:
    """R22: a DSN is shown without its password, whatever its form."""
    assert without_password(dsn) == shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_without_an_end_is_refused(kind: str) -> None:
    """C8: a time-out of nothing, or of no kind of duration, is refused where it is set."""
    for timeout in (timedelta(0), timedelta(seconds=-1), 30, None):
        with pytest.raises(ConfigurationError):
            KINDS[kind][0]("postgresql://nobody@127.0.0.1:1/x", timeout=timeout)


@KIND
def test_a_store_is_closed_twice_without_harm(place, kind) -> None:
    """C8: closing gives back every connection, and closing again does nothing."""
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"

    async def trial() -> None:
        plain = place.store(settings={"application_name": place.name})
        store = as_async(plain)
        await store.apply_schema()
        await whole(place, store)
        assert place.value(sessions, place.name) > 0
        for _ in range(2):
            if kind == "psycopg":
                plain.close()
            else:
                await plain.aclose()
        for _ in range(1000):
            if not await asyncio.to_thread(place.value, sessions, place.name):
                return
        pytest.fail("a session outlives its store")

    asyncio.run(trial())
