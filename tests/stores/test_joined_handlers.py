"""What handlers do with a session or a transaction of Django that twicesafe is to end."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from django.db import connections
from django.db import transaction as django_transaction
from django.db.backends.signals import connection_created
from django.db.transaction import TransactionManagementError
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from tests.servers.postgresql import PostgresqlServer
from tests.stores import django_kinds, joined_kinds
from tests.stores.claims import ANSWER, wish
from tests.stores.joined_places import (
    EVERY,
    JOINED,
    OF_DJANGO,
    OF_SESSIONS,
    OF_SQLALCHEMY,
    TRANSACTIONAL,
    call,
    place_of,
    sql_in,
)
from tests.stores.postgresql_kinds import Place, complete, whole, won
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Ownership
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.django import DjangoStore


@pytest.fixture
def place(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own."""
    made = place_of(postgresql_server, kind)
    with made.admin:
        yield made


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


@OF_SESSIONS
def test_a_handler_cannot_commit_past_its_session(place, kind) -> None:
    """R23, H2: commit() on the connection that a session gives raises before anything is committed, and undoes all."""

    def handler(session: Any) -> None:
        place_write(session)
        with pytest.raises(RuntimeError, match="do not commit it inside the handler"):
            session.connection().commit()

    async def trial() -> None:
        async with place.opened() as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await call(transaction, handler)
                with pytest.raises(RuntimeError, match="ended its transaction itself"):
                    await complete(transaction, own)
            assert place.effects() == 0
            await whole(place, store)
            assert place.effects() == 1

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


def test_a_renewal_leaves_no_connection_behind(postgresql_server: PostgresqlServer) -> None:
    """R12, C8: its thread is nobody's request, so what it opened, persistent by Django's settings, is closed there."""
    place = place_of(postgresql_server, "Django, async")
    assert isinstance(place, django_kinds.DjangoPlace)
    alias = place.alias()
    connections.settings[alias]["CONN_MAX_AGE"] = None
    del connections.settings[alias]["OPTIONS"]["pool"]
    opened: list[Any] = []

    def note(connection: Any, **_: object) -> None:
        opened.append(connection.connection)

    def renew(own: Ownership) -> None:
        store.renew(own, 30_000_000)

    with place.admin:
        store = DjangoStore(alias)
        try:
            store.apply_schema()
            found = store.claim(wish("one"))
            assert isinstance(found, Claimed)
            connection_created.connect(note)
            for _ in range(2):
                thread = Thread(target=renew, args=(found.ownership,))
                thread.start()
                thread.join()
            assert [connection.closed for connection in opened] == [True, True]
            renew(found.ownership)
            assert len(opened) == 2
        finally:
            connection_created.disconnect(note)
            connections[alias].close()
            store.close()


def test_what_a_transaction_opened_is_closed_with_its_thread(postgresql_server: PostgresqlServer) -> None:
    """C8, R23: persistent connections of Django's are not left behind by threads that end with their transaction."""
    place = place_of(postgresql_server, "Django, async")
    assert isinstance(place, django_kinds.DjangoPlace)
    alias = place.alias()
    connections.settings[alias]["CONN_MAX_AGE"] = None
    del connections.settings[alias]["OPTIONS"]["pool"]
    opened: list[Any] = []

    def note(connection: Any, **_: object) -> None:
        opened.append(connection.connection)

    async def trial() -> None:
        store = django_kinds.AsyncOwned(alias)
        await store.apply_schema()
        connection_created.connect(note)
        try:
            for name in ("one", "two"):
                async with store.transaction() as transaction:
                    own = await won(transaction, name, effects=TRANSACTIONAL)
                    await place.write(transaction.connection, "key")
                    await complete(transaction, own)
        finally:
            connection_created.disconnect(note)
        assert [connection.closed for connection in opened] == [True, True]
        assert place.effects() == 2
        await store.aclose()

    with place.admin:
        asyncio.run(trial())
