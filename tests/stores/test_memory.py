"""The memory store beyond the contract: it forgets on its own, at a cost that does not grow."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest

from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.keys import scoped_key
from twicesafe.core.record import Effects, StoredResponse
from twicesafe.errors import ConfigurationError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.memory_blocking import LOOKED_AT_PER_CLAIM
from twicesafe.testing import ManualClock

ANSWER = StoredResponse(201, ((b"location", b"/charges/1"),), b"x" * 100)
HOUR = timedelta(hours=1)
HOUR_US = HOUR // timedelta(microseconds=1)


def wish(n: int, *, hours: int = 1) -> Claim:
    """The n-th caller's claim."""
    digest, scope, hint = scoped_key("caller", f"key-{n}")
    owner = n.to_bytes(16, "big")
    return Claim(
        digest, scope, "op", hint, GivenFingerprint(b"\x01f"), Effects.KEYED, owner, 30_000_000, hours * HOUR_US
    )


def run(store: MemoryStore, n: int, *, hours: int = 1) -> None:
    """Claim and complete."""
    found = store.claim(wish(n, hours=hours))
    assert isinstance(found, Claimed)
    store.complete(found.ownership, ANSWER, hours * HOUR_US, hours * HOUR_US)


def test_claims_drop_what_has_expired() -> None:
    """R20, K: with nobody purging, expired records go while new ones come, and memory stays bounded."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for generation in range(5):
        for n in range(200):
            run(store, generation * 1000 + n)
        assert len(store) <= 400
        clock.advance(HOUR)


def test_a_claim_looks_at_a_few_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """K: no claim searches the keys, however many are live or over."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for n in range(1000):
        run(store, n)
    looked: list[int] = []
    look_at = MemoryStore._look_at
    monkeypatch.setattr(
        MemoryStore, "_look_at", lambda self, count, *rest: looked.append(count) or look_at(self, count, *rest)
    )
    run(store, 1000)
    assert looked == []
    clock.advance(HOUR)
    run(store, 1001)
    assert looked == [LOOKED_AT_PER_CLAIM]
    assert len(store) == 1001 - LOOKED_AT_PER_CLAIM + 1


def test_long_lived_records_do_not_hide_short_lived_ones() -> None:
    """R20: records go in whatever order they end, though they are looked at in the order they came."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for n in range(100):
        run(store, n, hours=24 if n % 2 else 1)
    clock.advance(HOUR)
    for n in range(1000, 1100):
        run(store, n, hours=24)
    assert len(store) == 50 + 100
    clock.advance(HOUR)
    assert store.purge() == 0
    clock.advance(23 * HOUR)
    assert store.purge(7) == 7
    assert store.purge() == 143
    assert len(store) == 0


def test_releasing_over_and_over_leaves_nothing_behind() -> None:
    """R15, K: a key that is claimed and released ten thousand times takes no more room than once."""
    store = MemoryStore()
    for n in range(10_000):
        found = store.claim(wish(n % 10)._replace(owner=n.to_bytes(16, "big")))
        assert isinstance(found, Claimed)
        store.release(found.ownership)
    assert len(store._queue) <= 10
    assert len(store) == 0


def test_no_cap_refuses_a_key() -> None:
    """K: there is no number of keys after which a new one is refused."""
    store = MemoryStore()
    for n in range(20_000):
        run(store, n)
    assert len(store) == 20_000


def test_records_are_nothing_to_the_garbage_collector() -> None:
    """K: a hundred thousand records add no object that a collection has to visit."""
    store = MemoryStore()
    gc.collect()
    before = len(gc.get_objects())
    for n in range(10_000):
        run(store, n)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_both_kinds_share_records() -> None:
    """I1: a blocking and an asynchronous store over the same records know of each other's claims."""
    store = MemoryStore()
    run(store, 1)
    asynchronous = AsyncMemoryStore(store)
    row = asyncio.run(asynchronous.read(wish(1).digest)).record
    assert row is not None and row.response == ANSWER
    assert len(asynchronous) == len(store) == 1


def test_an_asynchronous_purge_lets_others_run() -> None:
    """R20: while thousands of records are purged, other tasks get their turns."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for n in range(2000):
        run(store, n)
    clock.advance(HOUR)

    async def both() -> tuple[int, int]:
        turns = 0
        purging = asyncio.ensure_future(AsyncMemoryStore(store).purge(10_000))
        while not purging.done():
            turns += 1
            await asyncio.sleep(0)
        return purging.result(), turns

    purged, turns = asyncio.run(both())
    assert purged == 2000
    assert turns > 3


@pytest.mark.parametrize("store", [MemoryStore(), AsyncMemoryStore()])
def test_a_transaction_is_refused_with_advice(store: MemoryStore | AsyncMemoryStore) -> None:
    """R13, R23: a memory store has no transactions and names the stores that do."""
    assert not store.transactional
    with pytest.raises(ConfigurationError, match=r"twicesafe\.stores\.sqlite"):
        store.transaction()


def test_an_owner_lets_go_of_what_it_held_however_late() -> None:
    """R12: an unknown outcome does not age, not even one whose answer had begun to leave: its owner may still know."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    found = store.claim(wish(1))
    assert isinstance(found, Claimed)
    store.start_answer(found.ownership, ANSWER)
    store.hold(found.ownership)
    clock.advance(HOUR)
    store.release(found.ownership)
    assert store.read(found.ownership.digest).record is None
