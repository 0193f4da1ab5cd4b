"""Redis holds the claims, another store the records: what is done stays done, whatever happens to Redis."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.servers.redis import RedisServer
from tests.stores.claims import ANSWER, HEAD, KEY, LEASE, OTHER_REQUEST, wish
from tests.stores.postgresql_kinds import as_async, complete, won
from tests.stores.redis_kinds import KINDS, new_prefix
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import LeaseLostError, StoreUnavailableError
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore

KIND = pytest.mark.parametrize("kind", KINDS)
OPAQUE = Effects.OPAQUE


class Counting:
    """A store whose calls are counted, and fail on demand."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.away = False

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        if self.away:
            raise StoreUnavailableError("it is away")
        return getattr(self._store, name)


class Place:
    """A Redis server of one's own, and a SQLite file for the records."""

    def __init__(self, server: RedisServer, kind: str, folder: Any) -> None:
        self.server = server
        self._kind = kind
        self._prefix = new_prefix()
        file = folder / "records.db"
        self.records = Counting(SqliteStore(file) if kind == "blocking" else AsyncSqliteStore(file))
        self._close: list[Any] = []

    async def __aenter__(self) -> Place:
        return self

    async def store(self) -> Any:
        """Another process's store on both."""
        store = as_async(KINDS[self._kind](self.server.url, prefix=self._prefix, records=self.records))
        await store.apply_schema()
        self._close.append(store)
        return store

    async def __aexit__(self, *exc: object) -> None:
        for store in self._close:
            await store.aclose()
        await as_async(self.records._store).aclose()

    def flush(self) -> None:
        """Redis forgets everything."""
        with self.server.client() as client:
            client.flushall()


async def verdict(store: Any, **changes: Any) -> Verdict | str:
    """What another attempt is told."""
    found = await store.claim(wish(**changes))
    return found.verdict if isinstance(found, Existing) else "ran"


@KIND
def test_what_is_completed_survives_the_loss_of_redis(redis_server: RedisServer, kind: str, tmp_path: Any) -> None:
    """I5, K: Redis forgets everything; the retry gets its answer, another request its refusal, and nothing runs."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store = await place.store()
            await complete(store, await won(store))
            place.flush()
            found = await store.claim(wish())
            assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
            assert found.record is not None and found.record.response == ANSWER
            place.flush()
            assert await verdict(store, fingerprint=OTHER_REQUEST) is Verdict.MISMATCH
            # Nor did the refused one leave a claim behind.
            assert await verdict(store) is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_what_is_unknown_survives_the_loss_of_redis(redis_server: RedisServer, kind: str, tmp_path: Any) -> None:
    """I6: held by its owner, or found stale by somebody else, an outcome stays unknown until it is settled."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store = await place.store()
            await store.hold(await won(store, "held", effects=OPAQUE))
            await won(store, "stale", effects=OPAQUE, lease_us=1)
            await won(store, "swept", effects=OPAQUE, lease_us=1)
            assert await verdict(store, digest=wish("stale").digest) is Verdict.UNKNOWN
            swept = await _sweep(store)
            assert swept == 1
            place.flush()
            for key in ("held", "stale", "swept"):
                assert await verdict(store, digest=wish(key).digest) is Verdict.UNKNOWN
            row = (await store.read(wish("held").digest)).record
            assert await store.settle(row.ownership, ANSWER, KEY, KEY)
            row = (await store.read(wish("stale").digest)).record
            assert await store.settle(row.ownership, None, KEY, KEY)
            assert await verdict(store, digest=wish("held").digest) is Verdict.REPLAY
            assert await verdict(store, digest=wish("stale").digest) == "ran"

    asyncio.run(trial())


@KIND
def test_a_claim_that_could_not_be_looked_up_leaves_nothing_behind(
    redis_server: RedisServer, kind: str, tmp_path: Any
) -> None:
    """B5, R27: the records are away when a key is claimed; its caller is told so, and the next attempt runs."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store = await place.store()
            place.records.away = True
            with pytest.raises(StoreUnavailableError):
                await store.claim(wish(effects=OPAQUE))
            place.records.away = False
            assert await verdict(store, effects=OPAQUE) == "ran"

    asyncio.run(trial())


async def _sweep(store: Any) -> int:
    settle = store._store.settle_stale if hasattr(store, "_store") else store.settle_stale
    ended = 0
    while True:
        swept = await asyncio.to_thread(settle) if hasattr(store, "_store") else await settle()
        ended += swept.settled
        if not swept.more:
            return ended


@KIND
def test_a_claim_that_redis_forgot_is_recorded_all_the_same(
    redis_server: RedisServer, kind: str, tmp_path: Any
) -> None:
    """R14: Redis forgets a claim while its work runs; the work is recorded, and no retry runs it again."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store, other = await place.store(), await place.store()
            own = await won(store, effects=OPAQUE)
            place.flush()
            await complete(store, own)
            await complete(store, own)
            place.flush()
            assert await verdict(other) is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_of_two_owners_one_has_the_answer(redis_server: RedisServer, kind: str, tmp_path: Any) -> None:
    """I3, I5: Redis forgets a claim and lets a second attempt run: this is what it loses. One answer is recorded, and
    the owner of the other learns that it lost."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store, other = await place.store(), await place.store()
            first = await won(store)
            place.flush()
            second = await won(other)
            await complete(other, second)
            place.flush()
            with pytest.raises(LeaseLostError):
                await store.complete(first, ANSWER._replace(status=500), KEY, KEY)
            found = await other.claim(wish())
            assert found.record.response.status == ANSWER.status

    asyncio.run(trial())


@KIND
def test_a_late_owner_records_nothing(redis_server: RedisServer, kind: str, tmp_path: Any) -> None:
    """I3: taken over in Redis, an owner does not get its answer into the records either."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store, other = await place.store(), await place.store()
            late = await won(store, lease_us=1)
            own = await won(other)
            with pytest.raises(LeaseLostError):
                await complete(store, late)
            assert (await as_async(place.records._store).read(own.digest)).record is None
            await complete(other, own)
            assert await verdict(other) is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_redis_may_be_away_when_the_work_is_done(kind: str, tmp_path: Any) -> None:
    """R14: without Redis the owner records its answer, and a Redis that comes back empty knows of it."""

    async def trial() -> None:
        with RedisServer() as server:
            async with Place(server, kind, tmp_path) as place:
                store = await place.store()
                own = await won(store)
                server.crash()
                await complete(store, own)
                server.start()
                assert await verdict(store) is Verdict.REPLAY

    asyncio.run(trial())


@KIND
def test_replays_and_conflicts_leave_the_records_alone(redis_server: RedisServer, kind: str, tmp_path: Any) -> None:
    """What Redis knows it answers: only a first attempt and its end cost the other store anything."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store = await place.store()
            own = await won(store)
            place.records.calls.clear()
            assert await verdict(store) is Verdict.IN_PROGRESS
            assert await verdict(store, fingerprint=OTHER_REQUEST) is Verdict.MISMATCH
            await store.renew(own, LEASE)
            assert not place.records.calls
            await complete(store, own)
            place.records.away = True
            assert await verdict(store) is Verdict.REPLAY
            # A first attempt cannot know that it is one.
            with pytest.raises(StoreUnavailableError):
                await store.claim(wish("another"))
            place.records.away = False
            found = await store.claim(wish("third"))
            assert isinstance(found, Claimed)

    asyncio.run(trial())


@KIND
def test_an_answer_is_in_the_records_before_it_leaves(redis_server: RedisServer, kind: str, tmp_path: Any) -> None:
    """I11: an answer that had begun to leave when its owner died is done, although Redis has forgotten it."""

    async def trial() -> None:
        async with Place(redis_server, kind, tmp_path) as place:
            store, other = await place.store(), await place.store()
            own = await won(store, effects=OPAQUE)
            await store.start_answer(own, HEAD)
            await store.renew(own, 1)
            place.flush()
            found = await other.claim(wish())
            assert isinstance(found, Existing) and found.verdict is Verdict.GONE
            assert found.record is not None and found.record.response == HEAD

    asyncio.run(trial())
