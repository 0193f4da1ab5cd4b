"""PostgreSQL's isolation levels, set in each way there is: no stale snapshot runs, and conflicts end cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError
from sqlalchemy.exc import SQLAlchemyError

from tests.servers.postgresql import PostgresqlServer
from tests.stores import django_kinds, joined_kinds, postgresql_kinds
from tests.stores.claims import wish
from tests.stores.postgresql_kinds import Place, complete, whole, won
from twicesafe.core.claims import Claimed
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore, AsyncTransaction
from twicesafe.testing import Outcome, check_store

TRANSACTIONAL = Effects.TRANSACTIONAL
JOINED = ["SQLAlchemy, psycopg", "SQLAlchemy, asyncpg", "Django", "Django, async"]
NATIVE = list(postgresql_kinds.KINDS)
CONFLICTS = (SQLAlchemyError, DatabaseError)
LEVELS = pytest.mark.parametrize("level", ["repeatable read", "serializable"])


@pytest.fixture
def place(postgresql_server: PostgresqlServer, kind: str) -> Iterator[Place]:
    """A schema of its own."""
    makers: Any = postgresql_kinds if kind in NATIVE else django_kinds if kind.startswith("Django") else joined_kinds
    made = makers.new_place(postgresql_server, kind)
    with made.admin:
        yield made


def strict(level: str) -> dict[str, Any]:
    """Options of a store whose sessions default to this level, as a role's or a pool's settings make them."""
    return {"settings": {"default_transaction_isolation": level}}


async def level_of(place: Place, transaction: AsyncTransaction) -> str:
    """The level that a handler has."""
    return str(await place.sql_in(transaction, "SELECT current_setting('transaction_isolation')"))


@pytest.mark.parametrize("kind", JOINED)
@LEVELS
def test_a_session_keeps_the_level_it_was_given(place, kind, level) -> None:
    """R23: where the application asked for more isolation, its handlers have it, and answers are recorded."""

    async def trial() -> None:
        async with place.opened(**strict(level)) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                assert await level_of(place, transaction) == level
                await place.write_in(transaction)
                await complete(transaction, own)
            found = await store.claim(wish())
            assert found.verdict is Verdict.REPLAY
            assert place.effects() == 1

    asyncio.run(trial())


@pytest.mark.parametrize("kind", JOINED[:2])
@LEVELS
def test_the_level_of_an_engine_is_kept_too(place, kind, level) -> None:
    """R23: isolation_level of SQLAlchemy's engine reaches the handler, and the leased way does not mind."""

    async def trial() -> None:
        async with place.opened(engine={"isolation_level": level.upper()}) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                assert await level_of(place, transaction) == level
                await complete(transaction, own)
            await complete(store, await won(store, "leased"))

    asyncio.run(trial())


@pytest.mark.parametrize("kind", NATIVE)
@LEVELS
def test_a_drivers_own_store_begins_at_read_committed(place, kind, level) -> None:
    """R23, K: whatever role or pool default to, the drivers' stores begin at READ COMMITTED, as their page says."""

    async def trial() -> None:
        async with place.opened(**strict(level)) as store, store.transaction() as transaction:
            await won(transaction, effects=TRANSACTIONAL)
            assert await level_of(place, transaction) == "read committed"

    asyncio.run(trial())


@pytest.mark.parametrize("kind", JOINED)
@LEVELS
@pytest.mark.parametrize("before", ["nothing", "completed", "claimed"])
def test_a_stale_snapshot_neither_runs_nor_misreports(place, kind, level, before) -> None:
    """K, I1, C2: a transaction that read before a rival committed cannot see it; its claim is refused."""

    async def trial() -> None:
        async with place.opened(**strict(level)) as store:
            rival = await won(store) if before != "nothing" else None
            if before == "completed":
                await store.release(rival)
                await whole(place, store)
            async with store.transaction() as transaction:
                await transaction.begin()
                await place.sql_in(transaction, "SELECT count(*) FROM effects")
                if before == "nothing":
                    await whole(place, store)
                elif before == "claimed":
                    await complete(store, rival)
                if before == "completed":
                    found = await transaction.claim(wish(effects=TRANSACTIONAL))
                    assert found.verdict is Verdict.REPLAY
                else:
                    with pytest.raises(StoreUnavailableError, match="40001"):
                        await transaction.claim(wish(effects=TRANSACTIONAL))
            async with store.transaction() as transaction:
                found = await transaction.claim(wish(effects=TRANSACTIONAL))
                assert not isinstance(found, Claimed)
                assert found.verdict is Verdict.REPLAY

    asyncio.run(trial())


@pytest.mark.parametrize("kind", JOINED)
@pytest.mark.parametrize(
    "check",
    ["one_of_many_wins", "one_of_many_transactions_commits", "one_of_many_takes_over", "a_take_over_rolls_back_too"],
)
def test_repeatable_read_changes_no_answer(place, kind, check) -> None:
    """K, C1: at REPEATABLE READ rivals are told what they are told elsewhere, without an error."""
    [result] = check_store(
        lambda clock: place.subject(clock, **strict("repeatable read")), only=[check], rivals=6, keys=5
    )
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("kind", JOINED)
def test_serializable_rivals_have_one_effect(place, kind) -> None:
    """K, I1: at SERIALIZABLE some are refused and ask again; in the end there is one effect for each key."""

    async def one(store: AsyncStore, key: str) -> None:
        for _ in range(1000):
            async with store.transaction() as transaction:
                try:
                    found = await transaction.claim(wish(key, effects=TRANSACTIONAL))
                    if isinstance(found, Claimed):
                        await place.write_in(transaction, key)
                        await complete(transaction, found.ownership)
                        return
                except StoreUnavailableError:
                    continue
                except CONFLICTS:
                    # In the handler's own statement.
                    continue
            if found.verdict is Verdict.REPLAY:
                return
            await asyncio.sleep(0.005)

    async def trial() -> None:
        async with place.opened(**strict("serializable")) as store, asyncio.timeout(60):
            keys = [f"key-{n % 6}" for n in range(24)]
            await asyncio.gather(*[one(store, key) for key in keys])
            assert [place.effects(key) for key in set(keys)] == [1] * 6

    asyncio.run(trial())


@pytest.mark.parametrize("kind", [kind for kind in JOINED if kind != "Django, async"])  # which has one to each task
def test_a_conflict_at_the_commit_leaves_the_key_free(place, kind) -> None:
    """K, H2: of two SERIALIZABLE handlers that read what the other writes one is refused, and runs when asked again."""

    async def work(transaction: AsyncTransaction, key: str) -> int:
        count = await place.sql_in(transaction, "SELECT count(*) FROM effects")
        await place.write_in(transaction, key)
        return int(count)

    async def trial() -> None:
        async with place.opened(**strict("serializable")) as store:
            async with store.transaction() as one, store.transaction() as other:
                first = await won(one, "one", effects=TRANSACTIONAL)
                second = await won(other, "other", effects=TRANSACTIONAL)
                assert await work(one, "one") == 0
                assert await work(other, "other") == 0
                await complete(one, first)
                with pytest.raises(StoreUnavailableError, match="40001"):
                    await complete(other, second)
            assert (place.effects("one"), place.effects("other")) == (1, 0)
            async with store.transaction() as again:
                own = await won(again, "other", effects=TRANSACTIONAL)
                assert await work(again, "other") == 1
                await complete(again, own)

    asyncio.run(trial())


@pytest.mark.parametrize("kind", [*JOINED, *NATIVE])
def test_a_deadlock_of_handlers_leaves_the_key_free(place, kind) -> None:
    """K, H2: of two handlers that wait for each other one fails by 40P01 and its key is free; the other commits."""
    place.admin.execute("CREATE TABLE stock (item text PRIMARY KEY, left_over int)")
    place.admin.execute("INSERT INTO stock VALUES ('pen', 9), ('ink', 9)")

    async def take(transaction: AsyncTransaction, item: str) -> None:
        await place.sql_in(transaction, f"UPDATE stock SET left_over = left_over - 1 WHERE item = '{item}'")

    async def handler(store: AsyncStore, key: str, items: list[str], barrier: asyncio.Barrier) -> str:
        async with store.transaction() as transaction:
            own = await won(transaction, key, effects=TRANSACTIONAL)
            await take(transaction, items[0])
            await barrier.wait()
            try:
                await take(transaction, items[1])
            except Exception as error:
                await transaction.release(own)
                return str(error)
            await complete(transaction, own)
            return "done"

    async def trial() -> None:
        async with place.opened(settings={"deadlock_timeout": "50ms"}) as store:
            barrier = asyncio.Barrier(2)
            told = await asyncio.gather(
                handler(store, "one", ["pen", "ink"], barrier), handler(store, "other", ["ink", "pen"], barrier)
            )
            assert sorted(one == "done" for one in told) == [False, True]
            assert any("deadlock" in one for one in told)
            assert place.value("SELECT sum(left_over) FROM stock") == 16
            failed = "one" if told[0] != "done" else "other"
            await whole(place, store, failed)

    asyncio.run(trial())
