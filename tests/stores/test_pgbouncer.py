"""Behind PgBouncer in transaction mode: the contract, rivals, and what says that prepared statements are in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgresqlServer
from tests.stores.pooled_kinds import JOINED, NATIVE, new_place
from tests.stores.postgresql_kinds import ASYNC_KINDS, as_async, complete, won
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore
from twicesafe.testing import CHECKS, Outcome, check_store
from twicesafe.testing.check import Check


@pytest.fixture(scope="module")
def pgbouncer(postgresql_server: PostgresqlServer) -> Iterator[PgBouncer]:
    """One pooler for all of them."""
    with PgBouncer(postgresql_server) as pooler:
        yield pooler


@pytest.mark.parametrize("kind", ASYNC_KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_behind_a_pooler_the_contract_holds(
    postgresql_server: PostgresqlServer, pgbouncer: PgBouncer, kind: str, check: Check
) -> None:
    """R10, R23, C1, C8: with three sessions behind it for every client, nothing of the contract is lost."""
    make = new_place(postgresql_server, pgbouncer, kind).subject
    [result] = check_store(make, only=[check.name], rivals=6, keys=10)
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("kind", [*JOINED, "psycopg"])
@pytest.mark.parametrize(
    "check", ["one_of_many_wins", "one_of_many_transactions_commits", "own_rows_survive_a_refusal"]
)
def test_behind_a_pooler_threads_and_sessions_have_rivals_too(
    postgresql_server: PostgresqlServer, pgbouncer: PgBouncer, kind: str, check: str
) -> None:
    """R23, C1, C2: by threads and by SQLAlchemy's sessions, one commits for each key."""
    make = new_place(postgresql_server, pgbouncer, kind).subject
    [result] = check_store(make, only=[check], rivals=6, keys=10)
    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize("kind", NATIVE)
def test_prepared_statements_behind_a_pooler_are_refused_in_words(
    postgresql_server: PostgresqlServer, pgbouncer: PgBouncer, kind: str
) -> None:
    """R23: a store that prepares its statements is told so by its first error, which names the setting to change."""
    place = new_place(postgresql_server, pgbouncer, kind)

    async def many(store: AsyncStore, name: str) -> None:
        for n in range(50):
            await complete(store, await won(store, f"{name}-{n}"))

    async def trial() -> None:
        async with place.opened():
            pass
        stores = [as_async(place.store(prepared=True)) for _ in range(6)]
        try:
            calls = [many(store, f"{m}") for m, store in enumerate(stores)]
            met = await asyncio.gather(*calls, return_exceptions=True)
            assert any("prepared=False" in str(error) for error in met if isinstance(error, StoreUnavailableError))
        finally:
            await asyncio.gather(*[store.aclose() for store in stores])

    with place.admin:
        asyncio.run(trial())
