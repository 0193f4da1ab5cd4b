"""Failovers and moving slots: what they lose, and what they must not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from hashlib import sha256
from itertools import count
from typing import Any

import pytest

from tests.servers.redis import Cluster, RedisServer, Sentinel, replicated, until
from tests.stores.claims import ANSWER, KEY, wish
from tests.stores.postgresql_kinds import as_async, won
from tests.stores.redis_kinds import KINDS, new_prefix
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.errors import AmbiguousWriteError, StoreUnavailableError
from twicesafe.stores import redis_async, redis_blocking
from twicesafe.stores.redis_driver import key_slot

KIND = pytest.mark.parametrize("kind", KINDS)
SOON = timedelta(milliseconds=400)


def opened(kind: str, url: str, **options: Any) -> Any:
    """A store, as an AsyncStore."""
    return as_async(KINDS[kind](url, **options))


class Work:
    """What is done under a claim, and must be done once."""

    def __init__(self) -> None:
        self.runs = 0

    async def attempt(self, store: Any, claim: Claim) -> str:
        """One attempt, as an exchange makes it; what its caller is told."""
        try:
            found = await store.claim(claim)
        except AmbiguousWriteError:
            return "ask again"
        if isinstance(found, Existing):
            return str(found.verdict)
        self.runs += 1
        return "ran"


async def failing_over(kind: str, replicas: int, *, reaches: bool) -> tuple[int, list[str]]:
    """A claim on a primary, which then dies, and another on its replica, which `reaches` had received the first or
    not. How often the work was done, and what the two attempts were told."""
    with replicated() as (primary, replica), replica.client() as to_replica:
        if not reaches:
            # From here on it receives nothing: it is promoted a moment before the claim instead of a moment after.
            to_replica.execute_command("REPLICAOF", "NO", "ONE")
        work = Work()
        # What is not to come is not waited for as long as what is.
        patience = timedelta(seconds=20) if reaches else SOON
        before = opened(kind, primary.url, prefix="p:", replicas=replicas, timeout=patience)
        told = [await work.attempt(before, wish())]
        primary.crash()
        if reaches:
            until(lambda: to_replica.info("replication")["master_link_status"] == "down")
            to_replica.execute_command("REPLICAOF", "NO", "ONE")
        after = opened(kind, replica.url, prefix="p:")
        told.append(await work.attempt(after, wish()))
        await before.aclose()
        await after.aclose()
        return work.runs, told


@KIND
def test_a_failover_forgets_what_the_replica_had_not_received(kind: str) -> None:
    """K: without WAIT the claim is lost and the work is done twice. This is what the documentation says of it."""
    runs, told = asyncio.run(failing_over(kind, 0, reaches=False))
    assert runs == 2
    assert told == ["ran", "ran"]


@KIND
def test_with_replicas_no_work_begins_under_a_claim_that_a_failover_forgets(kind: str) -> None:
    """K, I2: with WAIT the first caller is told to ask again instead of running; the work is done once."""
    runs, told = asyncio.run(failing_over(kind, 1, reaches=False))
    assert runs == 1
    assert told == ["ask again", "ran"]


@KIND
def test_with_replicas_a_confirmed_claim_survives_a_failover(kind: str) -> None:
    """I1: what the replica has confirmed stands on it when it is promoted."""
    runs, told = asyncio.run(failing_over(kind, 1, reaches=True))
    assert runs == 1
    assert told == ["ran", str(Verdict.IN_PROGRESS)]


def test_all_writes_of_one_piece_share_one_wait() -> None:
    """WAIT holds up a connection: 32 tasks that write at once wait for their replica together."""

    async def trial() -> None:
        with replicated() as (primary, _), primary.client() as client:
            store = opened("async", primary.url, prefix="p:", replicas=1)
            await won(store, "first")
            client.config_resetstat()
            found = await asyncio.gather(*(store.claim(wish(f"key-{n}")) for n in range(32)))
            assert all(isinstance(one, Claimed) for one in found)
            calls = client.info("commandstats")
            assert calls["cmdstat_wait"]["calls"] <= 2
            assert calls["cmdstat_evalsha"]["calls"] == 32
            await store.aclose()

    asyncio.run(trial())


def test_sentinels_lead_to_the_new_primary() -> None:
    """The stores find the primary by their sentinels, and after its death the one that was promoted in its place."""

    async def trial() -> None:
        with replicated() as (primary, replica), Sentinel(primary) as sentinel, sentinel.client() as to_sentinel:
            until(lambda: to_sentinel.info("sentinel")["master0"]["slaves"] == 1)
            url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/records/0"
            stores = [opened(kind, url, prefix=new_prefix()) for kind in KINDS]
            owned = [await won(store) for store in stores]
            with primary.client() as client:
                assert client.wait(1, 5000) == 1
            primary.crash()
            with replica.client() as client:
                until(lambda: client.info("replication")["role"] == "master")
            until(
                lambda: (
                    to_sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "records")[1]
                    == b"%d" % replica.port
                )
            )
            for store, own in zip(stores, owned, strict=True):
                await _insisting(lambda store=store, own=own: store.complete(own, ANSWER, KEY, KEY))
                found = await store.claim(wish())
                assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
                await store.aclose()
            unknown = opened("async", url.replace("/records/", "/others/"))
            with pytest.raises(StoreUnavailableError, match="sentinel"):
                await unknown.now()
            await unknown.aclose()

    asyncio.run(trial())


async def _insisting(write: Callable[[], Awaitable[None]]) -> None:
    """As an exchange records."""
    for _ in range(4):
        try:
            await write()
        except (StoreUnavailableError, AmbiguousWriteError):
            continue
        return
    raise AssertionError("the record could not be completed")


@KIND
def test_a_slot_moves_under_its_records(kind: str, redis_cluster: Cluster) -> None:
    """I1, I3: while a slot moves, claims old and new are found where they are (ASK), and afterwards (MOVED); none is
    won twice."""
    prefix = new_prefix()
    claims = _in_one_slot(prefix, 4)
    slot = key_slot(_name(prefix, claims[0].digest))

    async def trial() -> None:
        store, bystander = (opened(kind, redis_cluster.url, prefix=prefix) for _ in range(2))
        own = await won(store, claims[0])
        await won(bystander, claims[1])
        clients = [server.client() for server in redis_cluster.servers]
        names = [client.execute_command("CLUSTER MYID") for client in clients]
        source = next(n for n, client in enumerate(clients) if client.execute_command("CLUSTER COUNTKEYSINSLOT", slot))
        target = (source + 1) % 3
        clients[target].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[source])
        clients[source].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[target])
        # One record has moved, one has not, and one is claimed only now.
        clients[source].execute_command(
            "MIGRATE", "127.0.0.1", redis_cluster.servers[target].port, _name(prefix, own.digest), 0, 5000
        )
        new = await won(store, claims[2])
        for one in claims[:3]:
            found = await bystander.claim(wish(digest=one.digest))
            assert isinstance(found, Existing) and found.verdict is Verdict.IN_PROGRESS
        await store.complete(own, ANSWER, KEY, KEY)
        await store.renew(new, KEY)
        clients[source].execute_command(
            "MIGRATE", "127.0.0.1", redis_cluster.servers[target].port, _name(prefix, claims[1].digest), 0, 5000
        )
        for client in (clients[target], clients[source], clients[3 - source - target]):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[target])
        found = await bystander.claim(wish(digest=own.digest))
        assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
        await store.complete(new, ANSWER, KEY, KEY // 2)
        found = await bystander.claim(wish(digest=new.digest))
        assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
        await won(bystander, claims[3])
        for client in clients:
            client.close()
        await store.aclose()
        await bystander.aclose()

    asyncio.run(trial())


def _name(prefix: str, digest: bytes) -> bytes:
    return f"{prefix}{{{digest.hex()}}}".encode()


def _in_one_slot(prefix: str, wanted: int) -> list[Claim]:
    """Claims whose records one slot has."""
    found: list[bytes] = []
    slot = -1
    for n in count():
        digest = sha256(f"{prefix}{n}".encode()).digest()
        here = key_slot(_name(prefix, digest))
        if slot in (-1, here):
            slot = here
            found.append(digest)
            if len(found) == wanted:
                return [wish(digest=digest) for digest in found]
    raise AssertionError


def test_a_cluster_without_one_server_serves_the_others_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone takes its slots with it, and no other record."""
    for module in (redis_async, redis_blocking):
        monkeypatch.setattr(module, "RIDE_OUT", 0.1)

    async def trial() -> None:
        with Cluster() as cluster:
            stores = [opened(kind, cluster.url, timeout=timedelta(seconds=2)) for kind in KINDS]
            for n in range(12):
                await won(stores[n % 2], f"key-{n}")
            gone: RedisServer = cluster.servers[2]
            gone.crash()
            for store in stores:
                told = [await _asked(store, f"key-{n}") for n in range(12)]
                assert set(told) == {Verdict.IN_PROGRESS, StoreUnavailableError}
                await store.aclose()

    asyncio.run(trial())


async def _asked(store: Any, key: str) -> Any:
    try:
        return (await store.claim(wish(key))).verdict
    except (StoreUnavailableError, AmbiguousWriteError):
        return StoreUnavailableError
