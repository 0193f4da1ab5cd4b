"""DynamoDB when answers are lost and requests refused, in the leased way."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.servers.dynamodb import REGION, Fault
from tests.stores.claims import BODY, KEY, LEASE, wish
from tests.stores.dynamodb_place import KIND, opened, write
from tests.stores.postgresql_kinds import as_async, complete, won
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import (
    AmbiguousWriteError,
    LeaseLostError,
    StoreUnavailableError,
)
from twicesafe.testing import ManualClock

TRANSACTIONAL = Effects.TRANSACTIONAL
LEASE_ENDS = timedelta(microseconds=LEASE)


@KIND
def test_a_claim_whose_answer_is_lost_recognises_itself(dynamodb_place, dynamodb_faults, kind) -> None:
    """B6, I1: the put arrived and its answer did not: in doubt, and asked again it is won, while a rival is refused."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            claim = wish()
            dynamodb_faults.append(("PutItem", Fault.LOST_ANSWER))
            with pytest.raises(AmbiguousWriteError):
                await store.claim(claim)
            own = await won(store, claim)
            assert own.epoch == 1
            rival = await store.claim(wish())
            assert isinstance(rival, Existing) and rival.verdict is Verdict.IN_PROGRESS

    asyncio.run(trial())


@KIND
def test_a_client_that_repeats_by_itself_does_no_harm(dynamodb_server, dynamodb_place, dynamodb_faults, kind) -> None:
    """B6, I3, K: every write whose answer is lost is sent again behind the store's back, and comes to one write."""

    async def trial(client: Any) -> None:
        async with opened(dynamodb_place, client=client) as store:
            dynamodb_faults.extend([("PutItem", Fault.LOST_ANSWER), ("UpdateItem", Fault.LOST_ANSWER)])
            own = await won(store)
            await complete(store, own)
            found = await store.claim(wish())
            assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
            released = await won(store, "released")
            dynamodb_faults.append(("DeleteItem", Fault.LOST_ANSWER))
            await store.release(released)
            assert (await store.read(released.digest)).record is None
            with pytest.raises(LeaseLostError):
                await store.release(released)
            held = await won(store, "held")
            await store.hold(held)
            dynamodb_faults.append(("DeleteItem", Fault.LOST_ANSWER))
            assert await store.settle(held, None, KEY, BODY)
            assert not await store.settle(held, None, KEY, BODY)
            dynamodb_faults.extend([("TransactWriteItems", Fault.LOST_ANSWER)])
            async with store.transaction() as transaction:
                own = await won(transaction, "transaction", effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction)
                await complete(transaction, own)
            assert dynamodb_place.effects() == 1

    retries = {"mode": "legacy", "max_attempts": 3}
    where = {"region_name": REGION, "endpoint_url": dynamodb_server.endpoint}

    async def with_its_client() -> None:
        if kind == "dynamodb":
            client = boto3.session.Session().client("dynamodb", config=Config(retries=retries), **where)
            await trial(client)
            client.close()
        else:
            from aiobotocore.config import AioConfig
            from aiobotocore.session import get_session

            config = AioConfig(retries=retries)
            async with get_session().create_client("dynamodb", config=config, **where) as client:
                await trial(client)

    asyncio.run(with_its_client())


@KIND
def test_what_was_throttled_is_sent_again(dynamodb_server, dynamodb_place, dynamodb_faults, kind) -> None:
    """R10: throttled for a moment a claim is won; throttled for good it says that nothing was changed, and is right."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            dynamodb_faults.extend([("PutItem", Fault.THROTTLED)] * 2)
            await won(store)
            claim = wish("another")
            dynamodb_faults.extend([("PutItem", Fault.THROTTLED)] * 6)
            with pytest.raises(StoreUnavailableError, match="ProvisionedThroughputExceeded"):
                await store.claim(claim)
            assert dynamodb_place.item(claim.digest) is None

    asyncio.run(trial())


@KIND
def test_a_failure_of_the_service_leaves_a_write_in_doubt(dynamodb_place, dynamodb_faults, kind) -> None:
    """B6, I5: a 500 may have been a write; completed again under the same ownership, it is completed once."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            own = await won(store)
            dynamodb_faults.append(("UpdateItem", Fault.FAILED))
            with pytest.raises(AmbiguousWriteError):
                await complete(store, own)
            before = dynamodb_place.item(own.digest)
            await complete(store, own)
            assert dynamodb_place.item(own.digest) == before

    asyncio.run(trial())


@KIND
def test_a_refusal_says_why_and_that_nothing_was_changed(dynamodb_place, dynamodb_faults, kind) -> None:
    """R14: what the account may not do is told by DynamoDB's own name for it; a read is never in doubt."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            claim = wish()
            dynamodb_faults.append(("PutItem", Fault.FORBIDDEN))
            with pytest.raises(StoreUnavailableError, match="AccessDeniedException"):
                await store.claim(claim)
            assert dynamodb_place.item(claim.digest) is None
            dynamodb_faults.append(("GetItem", Fault.LOST_ANSWER))
            with pytest.raises(StoreUnavailableError):
                await store.read(claim.digest)

    asyncio.run(trial())


@KIND
def test_an_endpoint_out_of_reach_changed_nothing(dynamodb_place, kind) -> None:
    """R14: where no connection can be made the store says so at once, without doubt, and names the endpoint."""

    async def trial() -> None:
        store = as_async(dynamodb_place.store(endpoint="http://127.0.0.1:1", clock=ManualClock()))
        with pytest.raises(StoreUnavailableError, match=r"http://127\.0\.0\.1:1"):
            await store.claim(wish())
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_fork_takes_no_connection_along(dynamodb_place, kind) -> None:
    """C8: a blocking store that was used before a fork opens connections of its own in the child."""
    store = dynamodb_place.store("dynamodb")
    store.apply_schema()
    mine = store.client()
    child = os.fork()
    if child == 0:
        os._exit(store.client() is mine)
    assert os.waitpid(child, 0)[1] == 0
    assert store.client() is mine
    store.close()
