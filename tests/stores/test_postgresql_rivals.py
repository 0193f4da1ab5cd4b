"""Rivals in PostgreSQL that the locks do not know of, and rows of others."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.postgresql_kinds import (
    KIND,
    as_async,
    complete,
    interpose,
    whole,
    won,
)
from twicesafe.core.record import Effects
from twicesafe.errors import (
    CommitRefusedError,
    LeaseLostError,
)

TRANSACTIONAL = Effects.TRANSACTIONAL


# --- rivals ----------------------------------------------------------------------------------------------------------


@KIND
@pytest.mark.parametrize("rival_commits", [True, False])
def test_the_unique_key_arbitrates_where_locks_are_passed_by(place, kind, rival_commits) -> None:
    """I1, I3: against a rival that takes no lock one row goes in: a claim that lost it rolls its effect back."""
    columns = "digest, owner, epoch, created_at, lease_until, key_until, body_until, purge_minute, state, effects, "
    columns += "fingerprint, scope, operation, key_hint, status, headers"

    async def trial() -> None:
        async with place.opened() as store:
            claim = wish(effects=TRANSACTIONAL)
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
def test_a_rival_between_rollback_and_record_has_the_one_answer(place, kind) -> None:
    """R15, H2: a failure rolls its effects back first; a rival that runs before its record counts instead."""

    async def trial() -> None:
        plain = place.store()
        store, other = as_async(plain), as_async(place.store())
        loop = asyncio.get_running_loop()
        try:
            await store.apply_schema()
            failed: list[int] = []
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
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
                with pytest.raises(LeaseLostError):
                    await transaction.complete(own, ANSWER._replace(status=422), KEY, BODY, keep_effects=False)
            assert place.effects() == 1
            assert failed == [1]
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
                own = await won(transaction, effects=TRANSACTIONAL)
                await place.write_in(transaction)
                await place.write_in(transaction)
                with pytest.raises(CommitRefusedError):
                    await complete(transaction, own)
            assert place.effects() == 0
            assert (await store.read(own.digest)).record is None
            await whole(place, store, "key")

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
