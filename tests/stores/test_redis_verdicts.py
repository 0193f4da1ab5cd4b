"""The Redis stores judge as lifecycle.decide() does: the same thousand steps on them and in memory, compared."""

from __future__ import annotations

import random
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from tests.servers.redis import RedisServer
from tests.stores.claims import ANSWER, BODY, HEAD, KEY, OTHER_REQUEST, REQUEST, wish
from tests.stores.redis_kinds import new_prefix
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Standing, standing
from twicesafe.core.record import Effects, Ownership
from twicesafe.errors import LeaseLostError
from twicesafe.stores.memory import MemoryStore
from twicesafe.stores.redis import RedisStore
from twicesafe.testing import ManualClock

SECOND = 1_000_000
STEPS = 1200
KEYS = 3


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_the_memory_stores(redis_server: RedisServer, seed: int) -> None:
    """I1 to I6, I12: claims, endings, settlements and the passing of time, in any order, give equal verdicts, owners,
    answers and refusals."""
    chance = random.Random(seed)
    clock = ManualClock()
    stores = MemoryStore(clock=clock), RedisStore(redis_server.url, prefix=new_prefix(), clock=clock)
    owned: list[tuple[Ownership, Ownership]] = []
    seen = set()
    for _ in range(STEPS):
        step = chance.choice(STEP_NAMES)
        if step == "time":
            clock.advance(timedelta(seconds=chance.choice([1, 10, 29, 30, 31, 60, 61])))
            continue
        if step == "claim":
            wanted = claim(chance)
            told = [store.claim(wanted) for store in stores]
            if isinstance(told[0], Claimed) and isinstance(told[1], Claimed):
                owned.append((told[0].ownership, told[1].ownership))
        elif step == "settle":
            digest = digest_of(chance)
            response = chance.choice([None, ANSWER])
            told = [settled(store, digest, response) for store in stores]
        elif owned:
            pair = chance.choice(owned[-6:])
            if standing(*stores[0].read(pair[0].digest)) is Standing.FREE:
                continue  # memory may remember what is over until it purges, and Redis does not
            told = [written(store, step, own) for store, own in zip(stores, pair, strict=True)]
        else:
            continue
        assert shown(told[0]) == shown(told[1]), f"after {step} with seed {seed}"
        seen.add((step, shown(told[0])[:1]))
    assert len(seen) >= 14, seen
    stores[1].close()


def test_what_is_refused_shortens_no_ones_answer(redis_server: RedisServer) -> None:
    """B4, I3: a late completion, a repeated one and a settlement that is refused, all with the very same body and a
    shorter retention, leave the recorded body as long as it was to last."""
    prefix = new_prefix()
    store = RedisStore(redis_server.url, prefix=prefix)
    late, own = [won.ownership for won in (store.claim(wish(lease_us=1)), store.claim(wish())) if type(won) is Claimed]
    store.complete(own, ANSWER, KEY, BODY)
    with redis_server.client() as client:
        [body] = client.keys(f"{prefix}*:*")
        with pytest.raises(LeaseLostError):
            store.complete(late, ANSWER, KEY, 1)
        store.complete(own, ANSWER, KEY, 1)
        assert not store.settle(own, ANSWER, KEY, 1)
        assert client.pttl(body) > BODY / 2000
    store.close()


STEP_NAMES = ["time", "claim", "claim", "claim", "renew", "start_answer", "complete", "release", "hold", "settle"]


def digest_of(chance: random.Random) -> bytes:
    """One of a few."""
    return sha256(b"%d" % chance.randrange(KEYS)).digest()


def claim(chance: random.Random) -> Claim:
    """One of the many that can be made."""
    fingerprint = chance.choice([REQUEST, REQUEST, REQUEST, OTHER_REQUEST])
    effects = chance.choice(list(Effects))
    return Claim(
        digest_of(chance), "caller", "POST /charges", "…", fingerprint, effects, chance.randbytes(16), 30 * SECOND,
        chance.choice([45, 120]) * SECOND,
    )  # fmt: skip


def written(store: Any, step: str, own: Ownership) -> Any:
    """One of the owner's writes; whether it was still its."""
    arguments = {
        "renew": (30 * SECOND,),
        "start_answer": (HEAD,),
        "complete": (ANSWER, 60 * SECOND, 30 * SECOND),
        "release": (),
        "hold": (),
    }[step]
    try:
        getattr(store, step)(own, *arguments)
    except LeaseLostError:
        return "lost"
    return "written"


def settled(store: Any, digest: bytes, response: Any) -> Any:
    """What an operator does, who has just read the record."""
    record = store.read(digest).record
    own = Ownership(digest, bytes(16), 1) if record is None else record.ownership
    return store.settle(own, response, 60 * SECOND, 30 * SECOND)


def shown(told: Any) -> tuple[Any, ...]:
    """All of an answer but the epochs: Redis forgets expired records, and begins at 1 again."""
    if isinstance(told, Claimed):
        return "claimed", told.ownership.owner, told.now, _record(told.previous)
    if isinstance(told, Existing):
        return str(told.verdict), told.now, _record(told.record)
    return (told,)


def _record(record: Any) -> Any:
    if record is None:
        return None
    if record.response is not None and record.response.body is not None:
        return record._replace(epoch=0)
    # When a body that is not kept would have gone is nobody's business.
    return record._replace(epoch=0, body_until=0)
