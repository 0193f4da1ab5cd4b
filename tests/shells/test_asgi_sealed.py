"""The ASGI shell on a sealed store: replays are opened, and what cannot be opened is never run again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.shells.probe import Probe, append_in_transaction, post
from tests.shells.rig import Rig
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sealed import AsyncSealedStore
from twicesafe.stores.sqlite import AsyncSqliteStore

FIRST, SECOND = Keyring.new_key(), Keyring.new_key()
OLD = Keyring({"first": FIRST}, current="first")
BOTH = Keyring({"first": FIRST, "second": SECOND}, current="second")
MISSING = Keyring({"second": SECOND}, current="second")
DISCARDED = Keyring({"second": SECOND}, current="second", discarded={"first"})


@pytest.mark.parametrize(
    ("keys", "status", "kind"),
    [(OLD, 201, None), (BOTH, 201, None), (MISSING, 503, "store-unavailable"), (DISCARDED, 201, "result-not-kept")],
    ids=["same keys", "rotated", "missing", "discarded"],
)
def test_what_a_retry_is_told_by_a_process_with_other_keys(keys, status, kind):
    """R22, R20, R42: one effect whatever keys there are; replayed, asked to come again, or told that it is done."""

    async def trial():
        inner, probe, unreadable = AsyncMemoryStore(), Probe(), []
        first = await post(Rig(probe=probe, store=AsyncSealedStore(inner, keys=OLD)).safe)
        later = AsyncSealedStore(inner, keys=keys, unreadable=lambda record, why: unreadable.append(record.key_hint))
        again = await post(Rig(probe=probe, store=later).safe)
        assert len(probe.ledger) == 1
        assert (first.status, again.status) == (201, status)
        if kind is None:
            assert (again.body, again.replayed, unreadable) == (first.body, True, [])
        else:
            assert again.kind == kind
            assert first.body not in again.body
            assert len(unreadable) == 1

    asyncio.run(trial())


def test_a_transactional_handler_on_a_sealed_store(tmp_path: Path):
    """R23, R22: effect and sealed answer are one transaction on the connection that the handler is given."""

    async def trial():
        inner = AsyncSqliteStore(tmp_path / "shop.db")
        store = AsyncSealedStore(inner, keys=OLD)
        await store.apply_schema()
        async with store.transaction() as transaction:
            await transaction.begin()
            await transaction.connection.execute("CREATE TABLE ledger (n INTEGER PRIMARY KEY, body BLOB)")
            await transaction.commit()
        probe = Probe(effect=append_in_transaction)
        rig = Rig(Policy(effects=Effects.TRANSACTIONAL), probe, store=store)
        first, again = await post(rig.safe), await post(rig.safe)
        async with store.transaction() as transaction:
            await transaction.begin()
            rows = await (await transaction.connection.execute("SELECT count(*) FROM ledger")).fetchone()
            kept = await (await transaction.connection.execute("SELECT body FROM twicesafe_records")).fetchone()
        assert rows[0] == 1
        assert (first.status, again.status, again.replayed) == (201, 201, True)
        assert again.body == first.body and first.body not in kept[0]
        await store.aclose()

    asyncio.run(trial())
