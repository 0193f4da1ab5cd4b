"""Redis when an answer is lost on the way, a server is away, refuses, or has forgotten the scripts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.servers.cutting import CuttingProxy, Loss
from tests.servers.redis import RedisServer
from tests.stores.claims import ANSWER, KEY, LEASE, digest_of, wish
from tests.stores.postgresql_kinds import as_async, complete, won
from tests.stores.redis_kinds import KINDS, new_prefix
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import RecordState
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, SchemaError, StoreUnavailableError
from twicesafe.stores import redis_async, redis_blocking
from twicesafe.stores.redis import AsyncRedisStore
from twicesafe.stores.redis_errors import RIDE_OUT, PassingError, refused

KIND = pytest.mark.parametrize("kind", KINDS)
SOON = timedelta(milliseconds=300)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away is given up at once."""
    for module in (redis_async, redis_blocking):
        monkeypatch.setattr(module, "RIDE_OUT", 0.1)


def opened(kind: str, url: str, **options: Any) -> Any:
    """A store under a prefix of its own, as an AsyncStore."""
    return as_async(KINDS[kind](url, **{"prefix": new_prefix(), **options}))


@KIND
@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.REQUEST])
def test_a_claim_whose_answer_is_lost_is_in_doubt_and_recognised(
    redis_server: RedisServer, kind: str, loss: Loss
) -> None:
    """B6: whether the claim arrived or not its owner is told that it may stand, asks again, and runs once."""

    async def trial() -> None:
        async with CuttingProxy(redis_server.port) as proxy:
            store = opened(kind, redis_server.at(port=proxy.port))
            await store.now()
            mine = wish()
            proxy.arm(mine.owner, loss)
            with pytest.raises(AmbiguousWriteError):
                await store.claim(mine)
            again = await store.claim(mine)
            assert isinstance(again, Claimed) and again.ownership.epoch == 1
            rival = await store.claim(wish())
            assert isinstance(rival, Existing) and rival.verdict is Verdict.IN_PROGRESS
            await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_completion_whose_answer_is_lost_is_made_again(redis_server: RedisServer, kind: str) -> None:
    """B6, I5: the completion arrived and its answer did not; made again it changes nothing."""

    async def trial() -> None:
        async with CuttingProxy(redis_server.port) as proxy:
            store = opened(kind, redis_server.at(port=proxy.port))
            own = await won(store)
            await complete(store, await won(store, "another"))  # from now on the server knows the script
            proxy.arm(b"charged", Loss.ANSWER)
            with pytest.raises(AmbiguousWriteError):
                await store.complete(own, ANSWER, KEY, KEY)
            before = await store.read(own.digest)
            await store.complete(own, ANSWER, KEY, KEY)
            after = await store.read(own.digest)
            assert before.record == after.record and after.record.state is RecordState.COMPLETED
            await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_release_whose_answer_is_lost_is_not_sent_again_by_itself(redis_server: RedisServer, kind: str) -> None:
    """I3: sent once more, a release that was done would look like a claim that was lost: its caller is asked."""

    async def trial() -> None:
        async with CuttingProxy(redis_server.port) as proxy:
            store = opened(kind, redis_server.at(port=proxy.port))
            own = await won(store)
            await store.release(await won(store, "another"))  # from now on the server knows the script
            proxy.arm(own.owner, Loss.ANSWER)
            with pytest.raises(AmbiguousWriteError):
                await store.release(own)
            assert (await store.read(own.digest)).record is None
            with pytest.raises(LeaseLostError):
                await store.release(own)
            await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_read_whose_answer_is_lost_changed_nothing(redis_server: RedisServer, kind: str) -> None:
    """A read is never in doubt: it is sent again."""

    async def trial() -> None:
        async with CuttingProxy(redis_server.port) as proxy:
            store = opened(kind, redis_server.at(port=proxy.port))
            own = await won(store)
            proxy.arm(own.digest.hex().encode(), Loss.ANSWER)
            assert (await store.read(own.digest)).record is not None
            assert proxy.cut.is_set()
            await store.aclose()

    asyncio.run(trial())


def test_all_who_share_a_connection_are_told_when_it_breaks(redis_server: RedisServer) -> None:
    """B6: of ten claims in one piece each is in doubt, and each is recognised on the next connection."""

    async def trial() -> None:
        async with CuttingProxy(redis_server.port) as proxy:
            store = opened("async", redis_server.at(port=proxy.port))
            await store.now()
            wishes = [wish(f"key-{n}") for n in range(10)]
            proxy.arm(wishes[0].owner, Loss.ANSWER)
            found = await asyncio.gather(*(store.claim(one) for one in wishes), return_exceptions=True)
            assert all(isinstance(one, AmbiguousWriteError) for one in found), found
            again = await asyncio.gather(*(store.claim(one) for one in wishes))
            assert all(isinstance(one, Claimed) for one in again)
            await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_server_that_falls_silent_is_not_waited_for(redis_server: RedisServer, kind: str) -> None:
    """A7: the wait for an answer ends, the write is in doubt, and afterwards the claim is recognised."""

    async def trial() -> None:
        store = opened(kind, redis_server.url, timeout=SOON)
        await store.now()
        mine = wish()
        with redis_server.client() as client:
            client.client_pause(60_000, all=False)
            with pytest.raises(AmbiguousWriteError):
                await store.claim(mine)
            client.client_unpause()
        assert isinstance(await store.claim(mine), Claimed)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_where_nobody_listens_nothing_was_sent(kind: str, impatient: None) -> None:
    """B6: a server that cannot be reached leaves nothing in doubt; the address is shown without its password."""

    async def trial() -> None:
        with RedisServer() as server:
            port = server.port
        store = opened(kind, f"redis://:secret@127.0.0.1:{port}")
        with pytest.raises(StoreUnavailableError) as told:
            await store.claim(wish())
        assert not isinstance(told.value, AmbiguousWriteError)
        assert "secret" not in str(told.value) and "***" in str(told.value)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_restart_is_ridden_out(durable_redis: RedisServer, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: a claim made before the server crashed is completed after it, and nobody has to ask twice in between."""
    assert RIDE_OUT >= 1.0
    for module in (redis_async, redis_blocking):
        monkeypatch.setattr(module, "RIDE_OUT", 30.0)

    async def trial() -> None:
        store = opened(kind, durable_redis.url)
        own = await won(store)
        durable_redis.crash()
        await asyncio.sleep(0)  # for the loop to see the end of the connection
        asked = asyncio.ensure_future(complete(store, own))
        await asyncio.to_thread(durable_redis.start)
        await asked
        found = await store.claim(wish())
        assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_forgotten_scripts_are_sent_again(redis_server: RedisServer, kind: str) -> None:
    """A server that has forgotten every script is given them again, in the same call."""

    async def trial() -> None:
        store = opened(kind, redis_server.url)
        with redis_server.client() as client:
            client.script_flush()
            own = await won(store)
            client.script_flush()
            await store.renew(own, LEASE)
            client.script_flush()
            await complete(store, own)
            client.script_flush()
            assert (await store.read(own.digest)).record.response == ANSWER
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_full_server_refuses_and_changes_nothing(kind: str) -> None:
    """K: OOM is an error that says so, before the work; what is there can still be read."""

    async def trial() -> None:
        with RedisServer() as server, server.client() as client:
            store = opened(kind, server.url)
            own = await won(store)
            client.config_set("maxmemory", 1)
            with pytest.raises(StoreUnavailableError, match="memory is full"):
                await store.claim(wish("another"))
            assert (await store.read(own.digest)).record is not None
            client.config_set("maxmemory", 0)
            assert (await store.read(digest_of("another"))).record is None
            await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_replica_is_not_written_to(kind: str, impatient: None) -> None:
    """READONLY is an error that says what it means, and nothing was changed."""

    async def trial() -> None:
        with RedisServer() as server, server.client() as client:
            store = opened(kind, server.url)
            await won(store)
            client.execute_command("REPLICAOF", "127.0.0.1", 1)
            with pytest.raises(StoreUnavailableError, match=r"READONLY.*replica"):
                await store.claim(wish("another"))
            client.execute_command("REPLICAOF", "NO", "ONE")
            await won(store, "another")
            await store.aclose()

    asyncio.run(trial())


def test_who_shares_a_line_is_not_hurt_by_a_refusal() -> None:
    """B6: a server that was demoted refuses ten writes at once; each is told that nothing was changed, none is in
    doubt, and what was asked beside them is answered."""

    async def trial() -> None:
        with RedisServer() as server, server.client() as client:
            store = opened("async", server.url)
            own = await won(store)
            client.execute_command("REPLICAOF", "127.0.0.1", 1)
            writes = [store.claim(wish(f"key-{n}")) for n in range(10)]
            *refused_writes, found = await asyncio.gather(*writes, store.read(own.digest), return_exceptions=True)
            for one in refused_writes:
                assert isinstance(one, StoreUnavailableError) and "READONLY" in str(one), one
            assert found.record is not None
            await store.aclose()

    asyncio.run(trial())


@pytest.mark.parametrize("word", ["READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN"])
def test_what_passes_is_told_from_what_stays(word: str) -> None:
    """A failover and a start pass by themselves; whatever a server answers instead of working changed nothing."""
    assert isinstance(refused(word, f"{word} it says"), PassingError)
    assert f"{word} it says (" in str(refused(word, f"{word} it says"))
    for stays in ("OOM", "NOPERM", "SOMETHING"):
        error = refused(stays, f"{stays} it says")
        assert isinstance(error, StoreUnavailableError) and not isinstance(error, PassingError)


@KIND
def test_a_server_that_forgets_when_full_is_no_store(kind: str) -> None:
    """R20: eviction would let what was done be done again: the schema's check refuses such a server."""

    async def trial() -> None:
        with (
            RedisServer({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server,
            server.client() as client,
        ):
            store = opened(kind, server.url)
            with pytest.raises(SchemaError, match="maxmemory-policy"):
                await store.check_schema()
            client.config_set("maxmemory-policy", "noeviction")
            await store.check_schema()
            await store.aclose()

    asyncio.run(trial())


def test_many_tasks_share_one_connection_and_its_round_trips(redis_server: RedisServer) -> None:
    """32 tasks that claim at once use one connection, and not a round trip each."""

    async def trial() -> None:
        async with CuttingProxy(redis_server.port) as proxy:
            url = redis_server.at(port=proxy.port) + "?client_name=counted"
            store = AsyncRedisStore(url, prefix=new_prefix())
            await won(store)
            before = proxy.round_trips
            found = await asyncio.gather(*(store.claim(wish(f"key-{n}")) for n in range(32)))
            assert all(isinstance(one, Claimed) for one in found)
            assert proxy.round_trips - before <= 2
            with redis_server.client() as client:
                assert sum(1 for one in client.client_list() if one["name"] == "counted") == 1
            await store.aclose()

    asyncio.run(trial())


def test_a_cancelled_task_leaves_the_others_their_answers(redis_server: RedisServer) -> None:
    """A1: whoever is cancelled while waiting takes nobody else's answer with it."""

    async def trial() -> None:
        store = AsyncRedisStore(redis_server.url, prefix=new_prefix())
        await store.now()
        tasks = [asyncio.ensure_future(store.claim(wish(f"key-{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for n, one in enumerate(found):
            if n % 2:
                assert isinstance(one, Claimed) and one.ownership.digest == digest_of(f"key-{n}")
            else:
                assert isinstance(one, asyncio.CancelledError)
        await store.aclose()

    asyncio.run(trial())
