"""Claim and answer on Redis, beside a pooled client and a multiplexed one by hand: 32 tasks, and one.

`pooled` is what an application writes: SET NX PX GET for the claim and a script that compares and sets for the answer,
on redis-py's client and its pool. `floor` sends the same two over one connection that all tasks share, by redis-py's
own connection and parser, and decides nothing. `twicesafe` is claim and complete on the store, with all that a record
holds. `twicesafe, replay` is one more attempt at what is done.

`requests` are whole requests to an ASGI application, around which are twicesafe and its peers, each as its own
documentation sets it up on Redis; the floor is the same as before, without any application. redis_functions measures
plain functions.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from hashlib import sha1
from os import urandom
from typing import Any

import redis.asyncio
from redis.asyncio.connection import Connection

from benchmarks import redis_functions, redis_peers
from benchmarks.asgi import fresh_key, request
from benchmarks.load import Once, throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import ANSWER, BODY, LINES
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
RECORD = json.dumps({"status": 201, "headers": {"content-type": "application/json"}, "body": ANSWER.decode()})

COMPARE_AND_SET = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
end
return 0
"""


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
    return first_requests(IdempotencyMiddleware(application, store, scope=lambda scope: "user", policy=policy))


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Reads its body and answers 201."""
    await receive()
    await send({"type": "http.response.start", "status": 201, "headers": list(LINES)})
    await send({"type": "http.response.body", "body": ANSWER})


def first_requests(app: Any) -> Once:
    """A request under a key of its own, which is answered."""
    status = 0

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]

    async def once() -> None:
        scope, receive = request(fresh_key(), BODY)
        await app(scope, receive, send)
        assert status == 201

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


async def compared(case: str, ways: dict[str, Once], tasks: int, times: int) -> list[Row]:
    """Rates, and their ratios to the floor's."""
    subjects = [Subject(name, throughput(once, tasks)) for name, once in ways.items()]
    await interleaved(subjects, rounds=ROUNDS, times=times)
    return rates(f"{case}, {tasks} task{'s' if tasks > 1 else ''}", subjects)


async def measured(server: PrivateRedis) -> list[Row]:
    """All cases."""
    found: list[Row] = []
    policy = Policy(effects=Effects.KEYED)
    client = redis.asyncio.Redis.from_url(server.url)
    store = AsyncRedisStore(server.url)
    try:
        async with Multiplexed(server.port) as line:
            peers = redis_peers.peers(client)
            for tasks, times in ((TASKS, TIMES), (1, TIMES_ALONE)):
                ways = {
                    "pooled": pooled(client),
                    "floor": by_hand(line),
                    "twicesafe": by_store(store, policy),
                    "twicesafe, replay": await replaying(store, policy),
                }
                found += await compared("claim and answer", ways, tasks, times)
                ways = {"floor": by_hand(line), "twicesafe": by_shell(store, policy)}
                ways |= {name: first_requests(around(application)) for name, around in peers.items()}
                # Some of the peers take a hundred times as long.
                found += await compared("requests", ways, tasks, times // 5)
    finally:
        await client.aclose()
        await store.aclose()
    return found


def run() -> list[Row]:
    """The benchmark, on a private server that keeps its data in memory: what is measured is the way to it."""
    with PrivateRedis(trusting=True) as server:
        return [*asyncio.run(measured(server)), *redis_functions.run(server.url, COMPARE_AND_SET)]
