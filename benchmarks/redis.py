"""Claim and answer on Redis, beside a pooled client and a multiplexed one by hand: 32 tasks, and one.

`pooled` is what an application writes: SET NX PX GET for the claim and a script that compares and sets for the answer,
on redis-py's client and its pool. `floor` sends the same two over one connection that all tasks share, by redis-py's
own connection and parser, and decides nothing. `twicesafe` is claim and complete on the store, with all that a record
holds; `twicesafe, ASGI` is the whole request. `twicesafe, replay` is one more attempt at what is done.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from hashlib import sha1
from os import urandom
from typing import Any

import redis.asyncio
from redis.asyncio.connection import Connection

from benchmarks.asgi import discard, fresh_key, request
from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe import Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import StoredResponse
from twicesafe.stores.redis import AsyncRedisStore
from twicesafe.storm.redis import PrivateRedis

TASKS = 32
ROUNDS = 7
TIMES = 3000
TIMES_ALONE = 500
LEASE_MS = 30_000
DAY_MS = 86_400_000
BODY = b'{"amount": 100, "account": 7}'
ANSWER = b'{"id": "ch_1", "amount": 100}'
LINES = ((b"content-length", b"29"), (b"content-type", b"application/json"))
RECORD = json.dumps({"status": 201, "headers": {"content-type": "application/json"}, "body": ANSWER.decode()})

COMPARE_AND_SET = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
end
return 0
"""

Once = Callable[[], Awaitable[None]]


def pooled(client: Any) -> Once:
    """Claim and answer by a pooled client."""
    complete = client.register_script(COMPARE_AND_SET)

    async def once() -> None:
        name, owner = f"pooled:{urandom(16).hex()}", urandom(16).hex()
        assert await client.set(name, owner, nx=True, px=LEASE_MS, get=True) is None
        assert await complete(keys=[name], args=[owner, RECORD, DAY_MS]) == 1

    return once


class Multiplexed:
    """The least that lets tasks share a connection: what they ask in one turn of the loop goes in one piece."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(host="127.0.0.1", port=port, socket_timeout=None, protocol=2)
        self._out: list[bytes] = []
        self._in: deque[asyncio.Future[Any]] = deque()
        self._something = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Multiplexed:
        await self._connection.connect()
        self._tasks = [asyncio.ensure_future(self._write()), asyncio.ensure_future(self._read())]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.disconnect()

    def ask(self, *words: bytes) -> asyncio.Future[Any]:
        """One command."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        command = [b"*%d\r\n" % len(words), *[b"$%d\r\n%b\r\n" % (len(word), word) for word in words]]
        self._out.append(b"".join(command))
        self._in.append(future)
        self._something.set()
        return future

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            out, self._out = self._out, []
            await self._connection.send_packed_command(b"".join(out), check_health=False)

    async def _read(self) -> None:
        while True:
            answer = await self._connection.read_response(disable_decoding=True)
            self._in.popleft().set_result(answer)


def by_hand(line: Multiplexed) -> Once:
    """Claim and answer over the shared connection."""
    script = COMPARE_AND_SET.encode()
    sha = sha1(script, usedforsecurity=False).hexdigest().encode()
    loaded = False
    record, lease, day = RECORD.encode(), b"%d" % LEASE_MS, b"%d" % DAY_MS

    async def once() -> None:
        nonlocal loaded
        if not loaded:
            await line.ask(b"SCRIPT", b"LOAD", script)
            loaded = True
        name, owner = b"floor:" + urandom(16).hex().encode(), urandom(16).hex().encode()
        assert await line.ask(b"SET", name, owner, b"NX", b"PX", lease, b"GET") is None
        assert await line.ask(b"EVALSHA", sha, b"1", name, owner, record, day) == 1

    return once


def by_store(store: AsyncRedisStore, policy: Policy) -> Once:
    """Claim and answer on the store."""
    response = StoredResponse(201, LINES, ANSWER)

    async def once() -> None:
        claim = Claim(
            urandom(32), "user", "http", "…0001", GivenFingerprint(b"\x01" + urandom(32)), policy.effects, urandom(16),
            policy.lease_us, policy.key_us,
        )  # fmt: skip
        won = await store.claim(claim)
        assert type(won) is Claimed
        await store.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def by_shell(store: AsyncRedisStore, policy: Policy) -> Once:
    """One first request through the ASGI shell."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": LINES})
        await send({"type": "http.response.body", "body": ANSWER})

    safe = IdempotencyMiddleware(app, store, scope=lambda scope: "user", policy=policy)

    async def once() -> None:
        scope, receive = request(fresh_key(), BODY)
        await safe(scope, receive, discard)

    return once


async def replaying(store: AsyncRedisStore, policy: Policy) -> Once:
    """One more attempt at what is done."""
    claim = Claim(
        urandom(32), "user", "http", "…0001", GivenFingerprint(b"\x01" + bytes(32)), policy.effects, urandom(16),
        policy.lease_us, policy.key_us,
    )  # fmt: skip
    won = await store.claim(claim)
    assert type(won) is Claimed
    await store.complete(won.ownership, StoredResponse(201, LINES, ANSWER), policy.key_us, policy.body_us)

    async def once() -> None:
        found = await store.claim(claim._replace(owner=urandom(16)))
        assert type(found) is Existing and found.record is not None and found.record.response is not None

    return once


def throughput(once: Once, tasks: int) -> Callable[[int], Awaitable[float]]:
    """Seconds for one of n, at so many at a time."""

    async def run(n: int) -> float:
        left = iter(range(n))

        async def worker() -> None:
            for _ in left:
                await once()

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(tasks)))
        return (time.perf_counter() - began) / n

    return run


async def measured(server: PrivateRedis) -> list[Row]:
    """All cases."""
    found: list[Row] = []
    policy = Policy(effects=Effects.KEYED)
    client = redis.asyncio.Redis.from_url(server.url)
    store = AsyncRedisStore(server.url)
    try:
        async with Multiplexed(server.port) as line:
            for tasks, times in ((TASKS, TIMES), (1, TIMES_ALONE)):
                ways = {
                    "pooled": pooled(client),
                    "floor": by_hand(line),
                    "twicesafe": by_store(store, policy),
                    "twicesafe, ASGI": by_shell(store, policy),
                    "twicesafe, replay": await replaying(store, policy),
                }
                subjects = [Subject(name, throughput(once, tasks)) for name, once in ways.items()]
                await interleaved(subjects, rounds=ROUNDS, times=times)
                rates = [Subject(one.name, one.run, [1 / seconds for seconds in one.figures]) for one in subjects]
                found += rows(f"Redis, {tasks} task{'s' if tasks > 1 else ''}", "per s", rates, lambda rate: rate)
    finally:
        await client.aclose()
        await store.aclose()
    return found


def run() -> list[Row]:
    """The benchmark, on a private server that keeps its data in memory: what is measured is the way to it."""
    with PrivateRedis(trusting=True) as server:
        return asyncio.run(measured(server))
