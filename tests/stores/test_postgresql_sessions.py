"""PostgreSQL beyond the contract: its clock, its isolation, and what handlers do with a connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.stores.claims import ANSWER, BODY, KEY, LEASE, wish
from tests.stores.postgresql_kinds import (
    KIND,
    as_async,
    complete,
    whole,
    won,
)
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import (
    StoreUnavailableError,
)
from twicesafe.testing import Outcome, check_store

ODD_ZONES = ("Pacific/Kiritimati", "America/Adak", "Asia/Kathmandu")
TRANSACTIONAL = Effects.TRANSACTIONAL


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
@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
@pytest.mark.parametrize("keep_effects", [True, False])
def test_an_end_that_the_handler_made_itself_is_not_a_success(place, kind, end, keep_effects) -> None:
    """R23, H2: where a handler sent COMMIT or ROLLBACK itself, nothing is recorded, and the error says what stands."""

    async def trial() -> None:
        async with place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                await place.sql_in(transaction, end)
                with pytest.raises(RuntimeError, match="may be committed"):
                    await transaction.complete(own, ANSWER, KEY, BODY, keep_effects=keep_effects)
            before = 1 if end == "COMMIT" else 0
            assert place.effects() == before
            assert place.value("SELECT count(*) FROM twicesafe_records") == 0
            await whole(place, store, "other")
            assert place.effects("other") == 1

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
