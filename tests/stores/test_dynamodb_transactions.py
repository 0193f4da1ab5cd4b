"""DynamoDB when transactions are lost, cancelled, overtaken or left."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.servers.dynamodb import Fault
from tests.stores.claims import LEASE, wish
from tests.stores.dynamodb_place import KIND, opened, write
from tests.stores.postgresql_kinds import complete, won
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, RecordState
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    LeaseLostError,
    StoreUnavailableError,
)
from twicesafe.testing import ManualClock
from twicesafe.testing.threads import TransactionInThread

TRANSACTIONAL = Effects.TRANSACTIONAL
LEASE_ENDS = timedelta(microseconds=LEASE)


@KIND
@pytest.mark.parametrize("remembered", [True, False], ids=["token remembered", "token forgotten"])
def test_a_commit_whose_answer_is_lost_is_asked_for_again(
    dynamodb_server, dynamodb_place, dynamodb_faults, kind, remembered, monkeypatch
) -> None:
    """R23, K: sent again under the same token, or recognised by its record: one effect, and no doubt is left."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store, store.transaction() as transaction:
            own = await won(transaction, effects=TRANSACTIONAL)
            await write(dynamodb_place, transaction)
            dynamodb_faults.append(("TransactWriteItems", Fault.LOST_ANSWER))
            dynamodb_server.seen.clear()
            monkeypatch.setattr(dynamodb_server, "record", True)
            if not remembered:
                monkeypatch.setattr(dynamodb_server, "before", lambda name, body: dynamodb_server._tokens.clear())
            await complete(transaction, own)
        sent = [body for name, body in dynamodb_server.seen if name == "TransactWriteItems"]
        assert len(sent) == 2 and sent[0] == sent[1]
        assert sent[0]["ClientRequestToken"].startswith(own.owner.hex())
        assert dynamodb_place.effects() == 1

    asyncio.run(trial())


@KIND
def test_a_commit_that_never_arrives_did_nothing(dynamodb_place, dynamodb_faults, kind) -> None:
    """R23, I3: lost on the way each time, the claim is taken back: nothing was committed, and nothing can be later."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction)
                dynamodb_faults.extend([("TransactWriteItems", Fault.LOST_REQUEST)] * 4)
                with pytest.raises(StoreUnavailableError, match="nothing was committed"):
                    await complete(transaction, own)
            assert dynamodb_place.effects() == 0
            assert dynamodb_place.item(own.digest) is None

    asyncio.run(trial())


@KIND
def test_a_commit_whose_every_answer_is_lost_is_found_out(
    dynamodb_server, dynamodb_place, dynamodb_faults, kind
) -> None:
    """R23, I5: committed and never answered, the claim cannot be taken back, and so the commit is known."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction)
                dynamodb_faults.extend([("TransactWriteItems", Fault.LOST_ANSWER)] * 4)
                await complete(transaction, own)
            assert dynamodb_place.effects() == 1
            found = await store.claim(wish())
            assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_a_commit_in_the_dark_stays_in_doubt(dynamodb_place, dynamodb_faults, kind) -> None:
    """R23, K: where nothing answers any more the write is ambiguous, and read back later it carries my owner token."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction)
                dynamodb_faults.extend(
                    [("TransactWriteItems", Fault.LOST_ANSWER)] * 4 + [("DeleteItem", Fault.LOST_REQUEST)]
                )
                with pytest.raises(AmbiguousWriteError):
                    await complete(transaction, own)
            found = await store.read(own.digest)
            assert found.record is not None and found.record.owner == own.owner
            assert dynamodb_place.effects() == 1

    asyncio.run(trial())


@KIND
def test_a_conflict_passes(dynamodb_place, dynamodb_faults, kind) -> None:
    """R23: cancelled because another transaction is at work on an item, the same transaction is sent again."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store, store.transaction() as transaction:
            own = await won(transaction, effects=TRANSACTIONAL)
            await write(dynamodb_place, transaction)
            dynamodb_faults.extend([("TransactWriteItems", Fault.CONFLICT)] * 2)
            await complete(transaction, own)
        assert dynamodb_place.effects() == 1

    asyncio.run(trial())


@KIND
def test_a_condition_of_ones_own_refuses_the_commit(dynamodb_place, dynamodb_faults, kind) -> None:
    """R16, R23: where what the handler had read is no longer so, nothing is done, and the key is free at once."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction, ConditionExpression="attribute_exists(id)")
                with pytest.raises(CommitRefusedError, match="write 2: ConditionalCheckFailed"):
                    await complete(transaction, own)
            assert dynamodb_place.effects() == 0
            assert dynamodb_place.item(own.digest) is None
            await won(store)

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("wrong", ["misspelt", "twice", "no such table"])
def test_writes_that_dynamodb_does_not_understand_refuse_the_commit(
    dynamodb_place, dynamodb_faults, kind, wrong
) -> None:
    """R16, R23: what can never be committed is said to be refused for good, is not done, and leaves the key free."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction)
                connection = transaction.connection
                item = {"id": {"S": "one"}, "name": {"S": "key"}}
                if wrong == "misspelt":
                    connection.put_item(TableName=dynamodb_place.effects_table, Itm=item)
                elif wrong == "no such table":
                    connection.put_item(TableName="no-such-table", Item=item)
                else:
                    for _ in range(2):
                        connection.put_item(TableName=dynamodb_place.effects_table, Item=item)
                with pytest.raises(CommitRefusedError):
                    await complete(transaction, own)
            assert dynamodb_place.effects() == 0
            await won(store)

    asyncio.run(trial())


@KIND
def test_a_slow_transaction_loses_to_the_rival_that_took_over(dynamodb_place, dynamodb_faults, kind) -> None:
    """I3, R23: overtaken after its lease, a transaction changes nothing and learns that it lost."""

    async def trial() -> None:
        clock = ManualClock()
        async with opened(dynamodb_place, clock=clock) as store, store.transaction() as slow:
            late = await won(slow, effects=TRANSACTIONAL)
            await write(dynamodb_place, slow)
            clock.advance(LEASE_ENDS)
            async with store.transaction() as quick:
                own = await won(quick, effects=TRANSACTIONAL)
                assert own.epoch == 2
                await write(dynamodb_place, quick)
                await complete(quick, own)
            with pytest.raises(LeaseLostError):
                await complete(slow, late)
            assert dynamodb_place.effects() == 1
            found = (await store.read(own.digest)).record
            assert found is not None and found.ownership == own

    asyncio.run(trial())


@KIND
def test_a_transaction_that_died_is_taken_over(dynamodb_place, dynamodb_faults, kind) -> None:
    """R13, R23: whoever dies before the commit blocks the key for its lease, and left nothing behind."""

    async def trial() -> None:
        clock = ManualClock()
        async with opened(dynamodb_place, clock=clock) as store:
            dead = store.transaction()
            own = await won(dead, effects=TRANSACTIONAL)
            await write(dynamodb_place, dead)
            refused = await store.claim(wish(effects=TRANSACTIONAL))
            assert isinstance(refused, Existing) and refused.verdict is Verdict.IN_PROGRESS
            clock.advance(LEASE_ENDS)
            record = (await store.read(own.digest)).record
            assert record is not None and record.state is RecordState.CLAIMED
            async with store.transaction() as transaction:
                again = await won(transaction, effects=TRANSACTIONAL)
                await write(dynamodb_place, transaction)
                await complete(transaction, again)
            assert dynamodb_place.effects() == 1
            if isinstance(dead, TransactionInThread):
                await dead.__aexit__(None, None, None)

    asyncio.run(trial())


@KIND
def test_a_connection_is_for_its_transaction_only(dynamodb_place, dynamodb_faults, kind) -> None:
    """R23: what a handler wants written after the end is refused, and so is more than DynamoDB takes at once."""

    async def trial() -> None:
        async with opened(dynamodb_place) as store:
            async with store.transaction() as transaction:
                own = await won(transaction, effects=TRANSACTIONAL)
                connection = transaction.connection
                for _ in range(99):
                    dynamodb_place.write(connection)
                with pytest.raises(ValueError, match="99"):
                    dynamodb_place.write(connection)
                await transaction.release(own)
                with pytest.raises(RuntimeError, match="over"):
                    dynamodb_place.write(connection)
            assert dynamodb_place.effects() == 0

    asyncio.run(trial())
