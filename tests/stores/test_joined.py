"""Sessions of SQLAlchemy and transactions of Django, beyond the contract: what handlers do, and lost answers."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.db import transaction as django_transaction
from django.db.transaction import TransactionManagementError
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, registry, sessionmaker

from tests.servers.cutting import CuttingProxy, Loss
from tests.servers.postgresql import PostgresqlServer
from tests.stores import django_kinds, joined_kinds, postgresql_kinds
from tests.stores.claims import ANSWER, wish
from tests.stores.postgresql_kinds import Place, complete, whole, won
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    ConfigurationError,
    LeaseLostError,
    StoreUnavailableError,
)
from twicesafe.stores.contract import AsyncStore, AsyncTransaction
from twicesafe.stores.django import DjangoStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore
from twicesafe.testing.threads import TransactionInThread

TRANSACTIONAL = Effects.TRANSACTIONAL
SESSIONS = ["SQLAlchemy, psycopg", "SQLAlchemy, asyncpg"]
CORE = ["SQLAlchemy Core, psycopg", "SQLAlchemy Core, asyncpg"]
DJANGO = list(django_kinds.KINDS)
NATIVE = list(postgresql_kinds.KINDS)
OF_SESSIONS = pytest.mark.parametrize("kind", SESSIONS)
OF_SQLALCHEMY = pytest.mark.parametrize("kind", [*SESSIONS, *CORE])
OF_DJANGO = pytest.mark.parametrize("kind", DJANGO)
JOINED = pytest.mark.parametrize("kind", [*SESSIONS, *CORE, *DJANGO])
EVERY = pytest.mark.parametrize("kind", [*NATIVE, *SESSIONS, *CORE, *DJANGO])
FAILURES = (psycopg.Error, SQLAlchemyError)


class Effect:
    """A row of the application's own, as an object."""

    def __init__(self, name: str) -> None:
        self.name = name


registry().map_imperatively(
    Effect, Table("effects", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))
)


def place_of(server: PostgresqlServer, kind: str) -> Place:
    """A place for stores of any kind."""
    if kind in NATIVE:
        return postgresql_kinds.new_place(server, kind)
    return (django_kinds if kind in DJANGO else joined_kinds).new_place(server, kind)


@pytest.fixture
def place(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own."""
    made = place_of(postgresql_server, kind)
    with made.admin:
        yield made


async def call(transaction: AsyncTransaction, work: Any, *arguments: Any) -> Any:
    """Call blocking code as a handler would: in the thread of a blocking session, or in that of an asynchronous one."""
    shown = transaction.connection
    if isinstance(transaction, TransactionInThread):
        return await transaction.run(work, shown, *arguments)
    if hasattr(shown, "run_sync"):
        return await shown.run_sync(work, *arguments)
    return await sync_to_async(work)(shown, *arguments)


async def sql_in(place: Place, transaction: AsyncTransaction, *queries: str) -> Any:
    """Run these as a handler would."""
    value = None
    for query in queries:
        value = await place.sql_in(transaction, query)
    return value


@asynccontextmanager
async def proxied(place: Place, server: PostgresqlServer) -> AsyncIterator[tuple[CuttingProxy, AsyncStore]]:
    """A store that is reached through a proxy."""
    async with CuttingProxy(server.port) as proxy, place.opened(port=proxy.port) as store:
        yield proxy, store


# --- answers that are lost -------------------------------------------------------------------------------------------


@JOINED
def test_a_commit_whose_answer_is_lost_is_in_doubt_and_read_back(postgresql_server, place, kind) -> None:
    """R23, K: COMMIT arrived and its answer did not: an ambiguous write, one effect, and the row has my owner token."""

    async def trial() -> None:
        async with proxied(place, postgresql_server) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
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


# --- handlers that end the transaction -------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("ends", [("ROLLBACK", "BEGIN"), ("COMMIT", "BEGIN"), ("COMMIT AND CHAIN",)], ids=" ".join)
def test_a_transaction_that_a_handler_began_instead_is_found_out(place, kind, ends) -> None:
    """R23, H2: where the handler's SQL ended the transaction and began another, nothing is recorded, nor committed."""

    async def trial() -> None:
        async with place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await sql_in(place, transaction, *ends)
                await place.write_in(transaction)
                with pytest.raises(RuntimeError, match="may be committed"):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert place.value("SELECT count(*) FROM twicesafe_records") == 0
            await whole(place, store)

    asyncio.run(trial())


@OF_SQLALCHEMY
def test_a_handler_cannot_commit_its_session(place, kind) -> None:
    """R23: commit() inside the handler raises before anything is committed, and says what to do instead."""

    def handler(session: Any) -> None:
        place_write(session)
        with pytest.raises(RuntimeError, match="do not commit it inside the handler"):
            session.commit()

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                await won(transaction, effects=TRANSACTIONAL)
                await call(transaction, handler)
                assert place.effects() == 0
            assert place.effects() == 0
            await whole(place, store)

    asyncio.run(trial())


def place_write(session: Any) -> None:
    """In blocking calls, also where the session is carried."""
    joined_kinds.write(session, "key")


@OF_SQLALCHEMY
def test_after_a_rollback_a_session_does_nothing_more(place, kind) -> None:
    """R23, H2: rollback() inside the handler undoes all; what it does next is refused, and nothing is recorded."""

    def handler(session: Any) -> None:
        place_write(session)
        session.rollback()
        with pytest.raises(RuntimeError, match="begin_nested"):
            place_write(session)

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await call(transaction, handler)
                with pytest.raises(RuntimeError, match="may be committed"):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert place.value("SELECT count(*) FROM twicesafe_records") == 0
            await whole(place, store)

    asyncio.run(trial())


@OF_SQLALCHEMY
def test_a_nested_transaction_undoes_a_part(place, kind) -> None:
    """R23: begin_nested() is a savepoint: what it rolls back is gone, the rest commits with the answer."""

    def handler(session: Any) -> None:
        place_write(session)
        nested = session.begin_nested()
        place_write(session)
        nested.rollback()
        with session.begin_nested():
            place_write(session)

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await call(transaction, handler)
                await complete(transaction, own)
            assert place.effects() == 2

    asyncio.run(trial())


@OF_SQLALCHEMY
def test_a_session_is_of_no_use_after_its_answer(place, kind) -> None:
    """R23: what still has the session when its answer is recorded can do nothing with it, least of all commit."""

    async def trial() -> None:
        async with place.opened(pool_size=1) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                kept = transaction.connection
                await complete(transaction, own)
                with pytest.raises((RuntimeError, SQLAlchemyError)):
                    await (
                        kept.run_sync(place_write)
                        if hasattr(kept, "run_sync")
                        else asyncio.to_thread(place_write, kept)
                    )
            await whole(place, store, "other")
            assert place.effects() == 0

    asyncio.run(trial())


@OF_SESSIONS
def test_the_events_of_a_session_tell_the_truth(place, kind) -> None:
    """R23: after_commit of a session is fired once, and after the commit, not at a handler's flush."""
    told: list[int] = []

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                session = transaction.connection
                event.listen(
                    session.sync_session if isinstance(session, AsyncSession) else session,
                    "after_commit",
                    lambda _: told.append(place.effects()),
                )
                await place.write_in(transaction)
                assert told == []
                await complete(transaction, own)
            assert told == [1]

    asyncio.run(trial())


@OF_DJANGO
def test_hooks_on_commit_run_after_it_and_do_not_undo_it(place, kind, caplog) -> None:
    """R23, K: on_commit hooks run once the answer is recorded; one that fails is logged, and the answer stands."""
    told: list[int] = []

    def handler(connection: Any) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        django_transaction.on_commit(fail, using=connection.alias)
        django_transaction.on_commit(lambda: told.append(place.effects()), using=connection.alias)

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                await call(transaction, handler)
                await complete(transaction, own)
            assert told == [1]
            assert "on_commit" in caplog.text
            found = await store.claim(wish())
            assert isinstance(found, Existing)
            assert found.verdict is Verdict.REPLAY

    asyncio.run(trial())


@OF_DJANGO
def test_django_lets_no_handler_commit_and_notes_what_failed(place, kind) -> None:
    """R23, H2: commit() is refused by Django; a failed statement that was swallowed is no success."""

    def commit(connection: Any) -> None:
        with pytest.raises(TransactionManagementError):
            connection.commit()

    def fail(connection: Any) -> None:
        django_transaction.set_rollback(True, using=connection.alias)

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                await call(transaction, commit)
                await call(transaction, fail)
                with pytest.raises(StoreUnavailableError, match="nothing to commit"):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert place.value("SELECT count(*) FROM twicesafe_records") == 0
            await whole(place, store)

    asyncio.run(trial())


def test_django_refuses_to_begin_inside_an_atomic_block(postgresql_server) -> None:
    """R23, I11: inside somebody else's atomic() neither a claim nor a transaction is made: it would not be durable."""
    place = place_of(postgresql_server, "Django")
    store = place.store()
    store.apply_schema()
    try:
        with django_transaction.atomic(using=store.alias):
            with store.transaction() as transaction, pytest.raises(RuntimeError, match="ATOMIC_REQUESTS"):
                transaction.begin()
            with pytest.raises(RuntimeError, match="ATOMIC_REQUESTS"):
                store.claim(wish())
        with store.transaction() as transaction:
            found = transaction.claim(wish())
            assert isinstance(found, Claimed)
            with django_transaction.atomic(using=store.alias):
                place.write(transaction.connection, "key")
            transaction.complete(found.ownership, ANSWER, 10**9, 10**9)
        assert place.effects() == 1
    finally:
        store.close()
        place.admin.close()


@JOINED
def test_a_statement_that_failed_unnoticed_is_not_a_success(place, kind) -> None:
    """H2: a handler that swallows a database error and answers 201 has nothing to commit: nothing is recorded."""

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                with pytest.raises(Exception, match="division by zero"):
                    await place.sql_in(transaction, "SELECT 1/0")
                with pytest.raises(StoreUnavailableError):
                    await complete(transaction, own)
            assert place.effects() == 0
            await whole(place, store)

    asyncio.run(trial())


@JOINED
def test_errors_show_neither_bodies_nor_owner_tokens(place, kind) -> None:
    """R22: whatever a library prints of a failed statement, the error that is logged has none of its parameters."""

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.sql_in(transaction, "DROP TABLE twicesafe_records")
                with pytest.raises(Exception, match="schema apply") as met:
                    await complete(transaction, own)
            shown = "".join(traceback.format_exception(met.value))
            assert "charged" not in shown
            assert repr(own.owner)[2:-1] not in shown
            assert own.owner.hex() not in shown

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
