"""Rivals of a transaction on SQLite, which leaves no trace of its key until it is committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, OTHER_REQUEST, wish
from tests.stores.sqlite_file import File, effect
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.testing.threads import StoreInThreads

TRANSACTIONAL = {"effects": Effects.TRANSACTIONAL}

TURNS = 100_000

KINDS = pytest.mark.parametrize("kind", ["tasks", "threads"])


def made(file: File, kind: str) -> Any:
    if kind == "threads":
        return StoreInThreads(file.store())
    return AsyncSqliteStore(file.path, clock=file.clock)


async def asked(store: Any, **changes: Any) -> Verdict | Claimed:
    """What a claim in a transaction of its own is told."""
    async with store.transaction() as transaction:
        found = await transaction.claim(wish(**TRANSACTIONAL, **changes))
        return found.verdict if isinstance(found, Existing) else found


@KINDS
@pytest.mark.parametrize("end", ["complete", "release", "leave"])
def test_a_rival_is_told_at_once_that_it_is_in_progress(file: File, kind: str, end: str) -> None:
    """R11, I4: while a transaction runs, its key is in progress and another request under it a mismatch; nobody waits
    for the write lock to learn that, and the mark is gone with the transaction, however it ends."""

    async def trial() -> None:
        store = made(file, kind)
        async with asyncio.timeout(4):
            async with store.transaction() as first:
                found = await first.claim(wish(**TRANSACTIONAL))
                assert isinstance(found, Claimed)
                await (first.run(effect, first) if kind == "threads" else effect_in(first))
                assert await asyncio.gather(*(asked(store) for _ in range(20))) == [Verdict.IN_PROGRESS] * 20
                assert await asked(store, fingerprint=OTHER_REQUEST) is Verdict.MISMATCH
                if end == "complete":
                    await first.complete(found.ownership, ANSWER, KEY, BODY)
                elif end == "release":
                    await first.release(found.ownership)
                if end != "leave":
                    after = await asked(store)
            if end == "leave":
                after = await asked(store)
        assert file.effects() == (1 if end == "complete" else 0)
        if end == "complete":
            assert after is Verdict.REPLAY
        else:
            assert isinstance(after, Claimed)
        await store.aclose()

    asyncio.run(trial())


async def effect_in(transaction: Any) -> None:
    await transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")


@KINDS
def test_replays_are_never_in_progress(file: File, kind: str) -> None:
    """R11: of many that ask for a completed key at once, each is given the answer, and none is another's rival."""

    async def trial() -> None:
        store = made(file, kind)
        async with store.transaction() as first:
            found = await first.claim(wish(**TRANSACTIONAL))
            assert isinstance(found, Claimed)
            await first.complete(found.ownership, ANSWER, KEY, BODY)
        assert await asyncio.gather(*(asked(store) for _ in range(50))) == [Verdict.REPLAY] * 50
        await store.aclose()

    asyncio.run(trial())


@KINDS
def test_of_many_at_once_one_runs(file: File, kind: str) -> None:
    """I1, C1: of claims that arrive together one is won, and the others are told it is in progress, or replayed."""

    async def trial() -> None:
        store = made(file, kind)

        async def one() -> Verdict | Claimed:
            async with store.transaction() as transaction:
                found = await transaction.claim(wish(**TRANSACTIONAL))
                if isinstance(found, Existing):
                    return found.verdict
                await (transaction.run(effect, transaction) if kind == "threads" else effect_in(transaction))
                await transaction.complete(found.ownership, ANSWER, KEY, BODY)
                return found

        told = await asyncio.gather(*(one() for _ in range(50)))
        assert file.effects() == 1
        assert sum(isinstance(each, Claimed) for each in told) == 1
        assert {each for each in told if not isinstance(each, Claimed)} <= {Verdict.IN_PROGRESS, Verdict.REPLAY}
        await store.aclose()

    asyncio.run(trial())


@KINDS
def test_a_claim_that_failed_leaves_no_mark(file: File, kind: str) -> None:
    """R11: a claim that never got its turn, or was cancelled, does not keep its key in progress."""

    async def trial() -> None:
        store = made(file, kind)
        async with store.transaction() as other:
            await other.begin()
            task = asyncio.create_task(asked(store))
            if kind == "tasks":
                for _ in range(TURNS):
                    if store._transactions.running._claims:
                        break
                    await asyncio.sleep(0)
                else:
                    raise AssertionError("it does not queue")
                task.cancel()
            await other.commit()
            await asyncio.wait([task])
        assert isinstance(await asked(store), Claimed)
        await store.aclose()

    asyncio.run(trial())
