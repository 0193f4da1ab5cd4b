"""DynamoDB's limits: what an item holds, when it vanishes, and the table it lies in."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, LEASE, wish
from tests.stores.dynamodb_place import KIND, opened, write
from tests.stores.postgresql_kinds import as_async, complete, won
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import (
    SchemaError,
    StoreUnavailableError,
)
from twicesafe.testing import ManualClock

TRANSACTIONAL = Effects.TRANSACTIONAL
LEASE_ENDS = timedelta(microseconds=LEASE)


@KIND
def test_an_answer_too_large_to_keep_is_done_all_the_same(dynamodb_place, dynamodb_faults, kind) -> None:
    """A4, R18: over 400 KB, deflated or not, the body is not kept, or not the lines either; never a second run."""
    large = ANSWER._replace(body=os.urandom(450_000))
    lines = ANSWER._replace(headers=tuple((b"x-%d" % n, os.urandom(60_000)) for n in range(8)))

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            for key, answer, kept in (("body", large, ANSWER.headers), ("lines", lines, ())):
                own = await won(store, key)
                await store.complete(own, answer, KEY, BODY)
                async with store.transaction() as transaction:
                    own = await won(transaction, f"{key} in a transaction", effects=TRANSACTIONAL)
                    await write(dynamodb_place, transaction)
                    await transaction.complete(own, answer, KEY, BODY)
                for again in (key, f"{key} in a transaction"):
                    found = await store.claim(wish(again))
                    assert isinstance(found, Existing) and found.verdict is Verdict.GONE
                    assert found.record is not None and found.record.response is not None
                    assert found.record.response == (201, kept, None)
            assert dynamodb_place.effects() == 2
            claim = wish("request")._replace(request=os.urandom(450_000))
            with pytest.raises(StoreUnavailableError, match="400 KB"):
                await store.claim(claim)
            assert dynamodb_place.item(claim.digest) is None

    asyncio.run(trial())


@KIND
def test_only_what_is_completed_vanishes_by_itself(dynamodb_place, dynamodb_faults, kind) -> None:
    """R20, I6: the attribute of Time To Live is on completed items only, in whole seconds, never too early."""

    async def trial() -> None:
        clock = ManualClock(1_790_000_000_000_001)
        async with opened(dynamodb_place, clock=clock) as store:

            def expires(digest: bytes) -> str | None:
                item = dynamodb_place.item(digest)
                assert item is not None
                return item["expires"]["N"] if "expires" in item else None

            own = await won(store)
            assert expires(own.digest) is None
            await complete(store, own)
            assert expires(own.digest) == str(1_790_000_000 + KEY // 1_000_000 + 1)
            clock.advance(LEASE_ENDS * 200)
            again = await won(store)
            assert expires(again.digest) is None
            await store.hold(again)
            assert expires(again.digest) is None

    asyncio.run(trial())


@KIND
def test_the_table_is_looked_at(dynamodb_place, dynamodb_faults, kind) -> None:
    """R14: a missing table, one without expiry and one of something else are told with the command that mends them."""

    async def trial() -> None:
        store = as_async(dynamodb_place.store())
        for asked in (store.check_schema(), store.claim(wish())):
            with pytest.raises(SchemaError, match="twicesafe schema apply --store dynamodb://"):
                await asked
        await asyncio.gather(*[store.apply_schema() for _ in range(3)])
        await store.check_schema()
        off = {"Enabled": False, "AttributeName": "expires"}
        dynamodb_place.client.update_time_to_live(TableName=dynamodb_place.table, TimeToLiveSpecification=off)
        with pytest.raises(SchemaError, match="for ever"):
            await store.check_schema()
        await store.apply_schema()
        await store.check_schema()
        await store.aclose()
        dynamodb_place.table = dynamodb_place.effects_table
        other = as_async(dynamodb_place.store())
        with pytest.raises(SchemaError, match="something else"):
            await other.check_schema()
        await other.aclose()

    asyncio.run(trial())
