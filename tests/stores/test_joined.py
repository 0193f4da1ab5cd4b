"""Transactions of SQLAlchemy and Django, beyond the contract: lost answers, constraints, pools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from django.db import connections
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

from tests.servers.cutting import Loss
from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import wish
from tests.stores.joined_places import (
    EVERY,
    JOINED,
    OF_SESSIONS,
    OF_SQLALCHEMY,
    TRANSACTIONAL,
    Effect,
    place_of,
    proxied,
)
from tests.stores.postgresql_kinds import Place, complete, unlocked, whole, won
from twicesafe.core.claims import Claimed
from twicesafe.core.lifecycle import Verdict
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    ConfigurationError,
    LeaseLostError,
    StoreUnavailableError,
)
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.django import DjangoStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore


@pytest.fixture
def place(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own."""
    made = place_of(postgresql_server, kind)
    with made.admin:
        yield made


# --- answers that are lost -------------------------------------------------------------------------------------------


@JOINED
def test_a_commit_whose_answer_is_lost_is_in_doubt_and_read_back(postgresql_server, place, kind) -> None:
    """R23, K: COMMIT arrived and its answer did not: an ambiguous write, one effect, and the row has my owner token."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.ANSWER, happened=place.effects)
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


@JOINED
def test_a_commit_that_never_arrives_is_in_doubt_and_left_nothing(postgresql_server, place, kind) -> None:
    """R23, K: COMMIT did not arrive: the same error, for nobody can tell; neither record nor effect is there."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.REQUEST)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
                assert proxy.cut.is_set()
            assert (await store.read(own.digest)).record is None
            assert place.effects() == 0
            async with store.transaction() as again:
                with pytest.raises(LeaseLostError):
                    await complete(again, own)
            unlocked(place)
            await whole(place, store, "key")

    asyncio.run(trial())


@JOINED
def test_what_fails_before_the_commit_left_nothing(postgresql_server, place, kind) -> None:
    """R23: a connection that is lost while the record is written is no matter of doubt: nothing was changed."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            for loss in (Loss.REQUEST, Loss.ANSWER):
                async with store.transaction() as transaction:
                    own = await won(transaction, effects=TRANSACTIONAL)
                    await place.write_in(transaction)
                    proxy.arm(b"INSERT INTO twicesafe_records", loss)
                    with pytest.raises(StoreUnavailableError):
                        await complete(transaction, own)
                    assert proxy.cut.is_set()
                assert place.effects() == 0
                assert (await store.read(own.digest)).record is None
                unlocked(place)
            await whole(place, store, "key")

    asyncio.run(trial())


# --- constraints -----------------------------------------------------------------------------------------------------


@EVERY
def test_a_constraint_that_fails_at_the_commit_refuses_it_for_good(place, kind) -> None:
    """R23, H2: a deferred constraint of the application's says no at COMMIT: rolled back, told so, the key is free."""
    place.admin.execute("ALTER TABLE effects ADD CONSTRAINT one_of_a_name UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                await place.write_in(transaction)
                with pytest.raises(CommitRefusedError, match="23505"):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert place.value("SELECT count(*) FROM twicesafe_records") == 0
            await whole(place, store)

    asyncio.run(trial())


@OF_SESSIONS
def test_objects_are_flushed_before_the_answer_is_recorded(place, kind) -> None:
    """R23: objects that were only added are written with the answer; one that a constraint refuses, refuses both."""
    place.admin.execute("CREATE UNIQUE INDEX ON effects (name)")

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                transaction.connection.add(Effect("key"))
                await complete(transaction, own)
            assert place.effects() == 1
            async with store.transaction() as transaction:
                own = await won(transaction, "other", effects=TRANSACTIONAL)
                transaction.connection.add(Effect("key"))
                with pytest.raises(CommitRefusedError, match="duplicate key"):
                    await complete(transaction, own)
            assert place.effects() == 1
            assert place.value("SELECT count(*) FROM twicesafe_records") == 1
            await whole(place, store, "other")

    asyncio.run(trial())


# --- pools -----------------------------------------------------------------------------------------------------------


@EVERY
def test_a_pool_smaller_than_the_load_never_hangs(place, kind) -> None:
    """C8, I1: at a pool of 2, 20 requests with keys of their own and 20 rivals for one key all come to an end."""

    async def one(store: AsyncStore, key: str) -> bool:
        for _ in range(1000):
            async with store.transaction() as transaction:
                found = await transaction.claim(wish(key, effects=TRANSACTIONAL))
                if isinstance(found, Claimed):
                    await place.write_in(transaction, key)
                    await complete(transaction, found.ownership)
                    return True
            if found.verdict is Verdict.REPLAY:
                return False
            assert found.verdict is Verdict.IN_PROGRESS
            await asyncio.sleep(0.01)
        raise AssertionError("a rival was told for ever to wait")

    async def trial() -> None:
        async with place.opened(pool_size=2) as store, asyncio.timeout(60):
            keys = [*(f"key-{n}" for n in range(20)), *["one"] * 20]
            ran = await asyncio.gather(*[one(store, key) for key in keys])
            assert sum(ran[:20]) == 20
            assert sum(ran[20:]) == 1
            assert {place.effects(key) for key in keys} == {1}

    asyncio.run(trial())


# --- what cannot be joined -------------------------------------------------------------------------------------------


@OF_SQLALCHEMY
def test_an_engine_that_commits_each_statement_is_refused(place, kind) -> None:
    """R23: AUTOCOMMIT has no transactions, so the first claim says so, and no handler runs."""

    async def trial() -> None:
        async with (
            place.opened(engine={"isolation_level": "AUTOCOMMIT"}) as store,
            store.transaction() as transaction,
        ):
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                await transaction.claim(wish(effects=TRANSACTIONAL))

    asyncio.run(trial())


def test_what_no_transaction_can_join_is_refused_when_the_store_is_made(tmp_path) -> None:
    """R23: other databases, databases in memory, sessions over several databases and no engine at all are refused."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    refused = {
        "file": create_engine("sqlite://"),
        "spans": sessionmaker(engine, twophase=True),
        "binds": sessionmaker(engine, binds={Effect: engine}),
        "NoneType": sessionmaker(),
        "Session": Session(engine),
    }
    for said, database in refused.items():
        with pytest.raises(ConfigurationError, match=said):
            SqlalchemyStore(database)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="engine"):
        AsyncSqlalchemyStore("postgresql://somewhere")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="nowhere"):
        DjangoStore("nowhere")
    assert "default" in connections
