"""Whoever waits for another attempt on Redis is told by pub/sub, and looks by itself now and then."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers.redis import Cluster, RedisServer, until
from tests.stores.claims import SECOND, digest_of, wish
from tests.stores.postgresql_kinds import as_async, complete, won
from tests.stores.redis_kinds import KINDS, new_prefix
from twicesafe.core.record import Effects
from twicesafe.stores import redis_waiting
from twicesafe.stores.redis_blocking import Servers
from twicesafe.stores.redis_driver import address_of
from twicesafe.stores.redis_waiting import Waiters
from twicesafe.testing.threads import StoreInThreads

KIND = pytest.mark.parametrize("kind", KINDS)
LONG = 60 * SECOND


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by itself, unless a test says so."""
    monkeypatch.setattr(redis_waiting, "POLL", 1000.0)


def settled(store: Any, digest: bytes, within_us: int) -> asyncio.Task[None]:
    """One who waits, in a thread where the store blocks."""
    inner: Any = store
    if isinstance(store, StoreInThreads):
        return asyncio.ensure_future(store.run(store._store.settled, digest, within_us))
    return asyncio.ensure_future(inner.settled(digest, within_us))


async def listening(server: RedisServer, channels: int) -> None:
    """Until so many channels are listened to."""
    with server.client() as client:
        await asyncio.to_thread(until, lambda: len(client.execute_command("PUBSUB SHARDCHANNELS")) == channels)


ENDS: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
    "completed": lambda store, own: complete(store, own),
    "released": lambda store, own: store.release(own),
    "held": lambda store, own: store.hold(own),
}


@KIND
@pytest.mark.parametrize("end", ENDS)
def test_a_waiter_is_woken_by_every_end_of_a_claim(redis_server: RedisServer, kind: str, end: str) -> None:
    """R11: completed, released or held by somebody else, the claim's end is told to whoever waits for it."""

    async def trial() -> None:
        prefix = new_prefix()
        owner, waiting = (as_async(KINDS[kind](redis_server.url, prefix=prefix)) for _ in range(2))
        own = await won(owner, lease_us=LONG)
        await listening(redis_server, 0)
        waiter = settled(waiting, own.digest, LONG)
        await listening(redis_server, 1)
        assert not waiter.done()
        await ENDS[end](owner, own)
        await asyncio.wait_for(waiter, 10)
        await listening(redis_server, 0)
        await owner.aclose()
        await waiting.aclose()

    asyncio.run(trial())


@KIND
def test_all_waiters_share_one_connection(redis_server: RedisServer, kind: str) -> None:
    """R11: a waiter holds no connection of its own, and hears of its own record only."""

    async def trial() -> None:
        url = f"{redis_server.url}?client_name=waiters-{kind}"
        store = as_async(KINDS[kind](url, prefix=new_prefix()))
        owned = [await won(store, f"key-{n}", lease_us=LONG) for n in range(8)]
        waiters = [settled(store, own.digest, LONG) for own in owned for _ in range(2)]
        await listening(redis_server, 8)
        with redis_server.client() as client:
            mine = [one for one in client.client_list() if one["name"] == f"waiters-{kind}"]
            assert sum(int(one["ssub"]) > 0 for one in mine) == 1
        await complete(store, owned[0])
        await asyncio.wait_for(asyncio.gather(*waiters[:2]), 10)
        assert not any(waiter.done() for waiter in waiters[2:])
        for own in owned[1:]:
            await store.release(own)
        await asyncio.wait_for(asyncio.gather(*waiters), 10)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_nobody_waits_for_what_is_over(redis_server: RedisServer, kind: str) -> None:
    """R11: where nobody works on it the wait is over before it began, and at the end of a lease it is over too."""

    async def trial() -> None:
        store = as_async(KINDS[kind](redis_server.url, prefix=new_prefix()))
        await asyncio.wait_for(settled(store, digest_of("nothing"), LONG), 10)
        await complete(store, await won(store, "completed"))
        await asyncio.wait_for(settled(store, digest_of("completed"), LONG), 10)
        await won(store, "short", lease_us=50_000, effects=Effects.OPAQUE)
        await asyncio.wait_for(settled(store, digest_of("short"), LONG), 10)
        own = await won(store, "long", lease_us=LONG)
        await asyncio.wait_for(settled(store, own.digest, 50_000), 10)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_lost_message_is_made_up_for(redis_server: RedisServer, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: a record that changes without a word, as after a failover, is looked at again before long."""
    monkeypatch.setattr(redis_waiting, "POLL", 0.05)

    async def trial() -> None:
        prefix = new_prefix()
        store = as_async(KINDS[kind](redis_server.url, prefix=prefix))
        own = await won(store, lease_us=LONG)
        waiter = settled(store, own.digest, LONG)
        await listening(redis_server, 1)
        with redis_server.client() as client:
            assert client.delete(f"{prefix}{{{own.digest.hex()}}}") == 1
        await asyncio.wait_for(waiter, 10)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_without_a_server_the_time_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: a waiter is never told of errors; it waits for as long as it was told to."""
    monkeypatch.setattr(redis_waiting, "POLL", 0.05)

    async def trial() -> None:
        with RedisServer() as server:
            store = as_async(KINDS[kind](server.url))
            own = await won(store, lease_us=LONG)
            waiter = settled(store, own.digest, 3_000_000)
            await listening(server, 1)
        await asyncio.wait_for(waiter, 20)
        await asyncio.wait_for(settled(store, own.digest, 100_000), 20)
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_waiters_on_a_cluster_listen_where_the_record_is(redis_cluster: Cluster, kind: str) -> None:
    """R11: the channel is on the record's own server; each of many is woken by its own end."""

    async def trial() -> None:
        store = as_async(KINDS[kind](redis_cluster.url, prefix=new_prefix()))
        owned = [await won(store, f"key-{n}", lease_us=LONG) for n in range(9)]
        waiters = [settled(store, own.digest, LONG) for own in owned]
        with (
            redis_cluster.servers[0].client() as one,
            redis_cluster.servers[1].client() as two,
            redis_cluster.servers[2].client() as three,
        ):
            clients = (one, two, three)
            await asyncio.to_thread(
                until,
                lambda: sum(len(client.execute_command("PUBSUB SHARDCHANNELS")) for client in clients) == 9,
            )
        for own in owned:
            await complete(store, own)
        await asyncio.wait_for(asyncio.gather(*waiters), 10)
        await store.aclose()

    asyncio.run(trial())


def test_a_cancelled_waiter_leaves_nothing_behind(redis_server: RedisServer) -> None:
    """A1: whoever stops waiting takes its channel with it, and the others' waits go on."""

    async def trial() -> None:
        store = as_async(KINDS["async"](redis_server.url, prefix=new_prefix()))
        first, second = [await won(store, key, lease_us=LONG) for key in ("first", "second")]
        waiters = [settled(store, own.digest, LONG) for own in (first, second)]
        await listening(redis_server, 2)
        waiters[0].cancel()
        await listening(redis_server, 1)
        await complete(store, second)
        await asyncio.wait_for(waiters[1], 10)
        await won(store, "third")
        assert (await store.claim(wish("first"))).record is not None
        await store.aclose()

    asyncio.run(trial())


def test_nobody_waits_for_whoever_connects_to_a_silent_server() -> None:
    """R11, C8: threads that wait are told in time, however long the first of them takes to find that nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = Servers(address_of(f"redis://127.0.0.1:{silent.getsockname()[1]}"), 600.0, 0)
        waiters = Waiters(servers)
        connecting, others = (
            [threading.Thread(target=waiters.settled, args=(b"key", SECOND // 20, lambda: LONG)) for _ in range(number)]
            for number in (1, 3)
        )
        connecting[0].start()
        accepted, _ = silent.accept()
        try:
            for other in others:
                other.start()
            for other in others:
                other.join(60)
            assert not any(other.is_alive() for other in others)
            assert connecting[0].is_alive()
        finally:
            accepted.close()
        connecting[0].join(60)
        assert not connecting[0].is_alive()
        waiters.close()
        servers.close()
