"""Redis: what it does by itself, and what it has to be allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.servers.redis import RedisServer, until
from tests.stores.claims import ANSWER, BODY, HEAD, KEY, digest_of, wish
from tests.stores.postgresql_kinds import as_async, complete, won
from tests.stores.redis_kinds import KINDS, new_prefix
from twicesafe.errors import StoreError, StoreUnavailableError

KIND = pytest.mark.parametrize("kind", KINDS)


def opened(kind: str, url: str, **options: Any) -> Any:
    """A store under a prefix of its own, as an AsyncStore."""
    return as_async(KINDS[kind](url, **{"prefix": new_prefix(), **options}))


@KIND
def test_redis_forgets_by_itself(redis_server: RedisServer, kind: str) -> None:
    """R20, C4: a record is gone with its retention, its body sooner; claims and unknown outcomes stay."""

    async def trial() -> None:
        prefix = new_prefix()
        store = opened(kind, redis_server.url, prefix=prefix)
        with redis_server.client() as client:
            await won(store, "claimed")
            await store.hold(await won(store, "unknown"))
            await complete(store, await won(store, "completed"))
            lasting = {bytes(name): client.pttl(name) for name in client.scan_iter(f"{prefix}*")}
            by_digest = {digest_of(key).hex().encode(): key for key in ("claimed", "unknown", "completed")}
            named = {
                (by_digest[name.split(b"{")[1].split(b"}")[0]], name.endswith(b"}")): left
                for name, left in lasting.items()
            }
            assert named.pop(("claimed", True)) == -1
            assert named.pop(("unknown", True)) == -1
            assert KEY / 1000 - 60_000 < named.pop(("completed", True)) <= KEY / 1000
            assert BODY / 1000 - 60_000 < named.pop(("completed", False)) <= BODY / 1000 + 1000
            assert not named
            own = await won(store, "short")
            await store.complete(own, ANSWER, 20_000, 20_000)
            await asyncio.to_thread(until, lambda: not client.exists(f"{prefix}{{{own.digest.hex()}}}"))
            assert await store.purge() == 0
            await won(store, "short")
        await store.aclose()

    asyncio.run(trial())


RIGHTS = (
    "+client|setname +eval +evalsha +get +set +getrange +setrange +del +pexpire +time +info +scan +spublish "
    "+ssubscribe +sunsubscribe"
)


@KIND
def test_few_rights_suffice(kind: str) -> None:
    """R22: a user who may touch the store's own names only, by the commands that the documentation lists."""

    async def trial() -> None:
        with RedisServer() as server, server.client() as client:
            client.execute_command(*("ACL", "SETUSER", "app", "on", ">secret", "~own:*", "&own:*"), *RIGHTS.split(" "))
            url = server.url.replace("://", "://app:secret@")
            store = opened(kind, url, prefix="own:")
            await store.apply_schema()
            own = await won(store)
            await store.start_answer(own, HEAD)
            await store.renew(own, 1)
            ended = await store.settle_stale()
            assert ended.settled == 1
            await store.release(await won(store, "released"))
            await store.hold(await won(store, "held"))
            await complete(store, await won(store, "completed"))
            assert await store.now()
            await store.aclose()
            foreign = opened(kind, url, prefix="foreign:")
            with pytest.raises(StoreUnavailableError, match="NOPERM"):
                await foreign.claim(wish())
            await foreign.aclose()

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("keeps", [0.1, 0.25, 0.6])
def test_a_damaged_record_is_told_and_lets_nothing_run(redis_server: RedisServer, kind: str, keeps: float) -> None:
    """I1, K: a record that was cut short is an error that says what to do, and is never taken for no record."""

    async def trial() -> None:
        prefix = new_prefix()
        store = opened(kind, redis_server.url, prefix=prefix)
        own = await won(store)
        await complete(store, own)
        with redis_server.client() as client:
            name = f"{prefix}{{{own.digest.hex()}}}"
            value = client.get(name)
            client.set(name, value[: int(len(value) * keeps)])
            before = client.get(name)
            with pytest.raises(StoreError):
                await store.claim(wish())
            with pytest.raises(StoreError):
                await store.read(own.digest)
            assert client.get(name) == before
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_sweep_passes_by_what_only_looks_like_a_record(redis_server: RedisServer, kind: str) -> None:
    """R27: names of the same shape that are no digests end no sweep."""

    async def trial() -> None:
        prefix = new_prefix()
        store = opened(kind, redis_server.url, prefix=prefix)
        with redis_server.client() as client:
            client.set(f"{prefix}{{{'z' * 64}}}", "somebody else's")
            while (await store.settle_stale()).more:
                pass
            assert client.get(f"{prefix}{{{'z' * 64}}}") == b"somebody else's"
        await store.aclose()

    asyncio.run(trial())
