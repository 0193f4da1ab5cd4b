"""MySQL when an answer is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.servers.cutting import CuttingProxy, Loss
from tests.stores.claims import ANSWER, wish
from tests.stores.mysql_kinds import KIND, Place, complete, whole, won
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, StoreUnavailableError
from twicesafe.stores.contract import AsyncStore

TRANSACTIONAL = Effects.TRANSACTIONAL


@asynccontextmanager
async def proxied(place: Place) -> AsyncIterator[tuple[CuttingProxy, AsyncStore]]:
    """A store that is reached through a proxy."""
    async with CuttingProxy(place.server.port) as proxy, place.opened(port=proxy.port) as store:
        yield proxy, store


@KIND
def test_a_commit_whose_answer_is_lost_is_in_doubt_and_read_back(mysql_place, kind) -> None:
    """R23, K: COMMIT arrived and its answer did not: an ambiguous write, one effect, and the row has my owner token."""

    async def trial() -> None:
        async with proxied(mysql_place) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await mysql_place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.ANSWER, happened=mysql_place.effects)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
                assert proxy.cut.is_set()
            assert mysql_place.effects() == 1
            found = await store.read(own.digest)
            assert found.record is not None
            assert found.record.ownership == own
            async with store.transaction() as again:
                await complete(again, own)
            assert mysql_place.effects() == 1

    asyncio.run(trial())


@KIND
def test_a_commit_that_never_arrives_is_in_doubt_and_left_nothing(mysql_place, kind) -> None:
    """R23, K: COMMIT did not arrive: the same error, for nobody can tell; neither record nor effect is there."""

    async def trial() -> None:
        async with proxied(mysql_place) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await mysql_place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.REQUEST)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
                assert proxy.cut.is_set()
            found = await store.read(own.digest)
            assert found.record is None
            assert mysql_place.effects() == 0
            async with store.transaction() as again:
                with pytest.raises(LeaseLostError):
                    await complete(again, own)
            await whole(mysql_place, store, "key")

    asyncio.run(trial())


@KIND
def test_a_read_waits_for_a_commit_on_its_way(mysql_place, kind) -> None:
    """R23, K: while COMMIT is still on its way a read does not say that nothing is there; it waits, and finds it."""

    async def trial() -> None:
        async with proxied(mysql_place) as (proxy, store):
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await mysql_place.write_in(transaction)
                proxy.arm(b"COMMIT", Loss.TIME, happened=mysql_place.effects)
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
            reading = asyncio.ensure_future(store.read(own.digest))
            waiting = (
                "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()"
            )
            while not await asyncio.to_thread(mysql_place.value, waiting):
                assert not reading.done()
            assert mysql_place.effects() == 0
            proxy.deliver()
            found = await reading
            assert mysql_place.effects() == 1
            assert found.record is not None
            assert found.record.ownership == own

    asyncio.run(trial())


@KIND
def test_what_fails_before_the_end_left_nothing(mysql_place, kind) -> None:
    """R23: a claim whose answer is lost in a transaction is no matter of doubt: nothing was changed."""

    async def trial() -> None:
        async with proxied(mysql_place) as (proxy, store):
            for loss in (Loss.REQUEST, Loss.ANSWER):
                async with store.transaction() as transaction:
                    proxy.arm(b"START TRANSACTION", loss)
                    with pytest.raises(StoreUnavailableError):
                        await transaction.claim(wish(effects=TRANSACTIONAL))
                    assert proxy.cut.is_set()
                assert (await store.read(wish().digest)).record is None
            await whole(mysql_place, store, "key")

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
def test_a_leased_claim_whose_answer_is_lost_is_recognised(mysql_place, kind, loss) -> None:
    """B6: whether the claim arrived or not, asked again under the same owner token it is won, once."""

    async def trial() -> None:
        async with proxied(mysql_place) as (proxy, store):
            claim = wish()
            # As a text, and to a statement that is prepared.
            proxy.arm(claim.owner.hex().encode(), loss, claim.owner)
            with pytest.raises(AmbiguousWriteError):
                await store.claim(claim)
            own = await won(store, claim)
            rival = await store.claim(wish())
            assert isinstance(rival, Existing)
            assert rival.verdict is Verdict.IN_PROGRESS
            proxy.arm(own.owner.hex().encode(), loss, own.owner)
            with pytest.raises(AmbiguousWriteError):
                await complete(store, own)
            await complete(store, own)
            replay = await store.claim(wish())
            assert isinstance(replay, Existing)
            assert replay.record is not None
            assert replay.record.response == ANSWER

    asyncio.run(trial())
