"""Transactions on PostgreSQL by asyncpg, 32 tasks: effect, claim and answer in one, beside the same by hand.

The floor sends the very statements that twicesafe sends, over the same driver and its pool as it comes, from a loop
that decides nothing; `floor, no reset` saves the round trip with which asyncpg cleans each connection, as twicesafe's
own pool does. `twicesafe` is claim, effect and answer on the store; `twicesafe, ASGI` is the whole request: its key
parsed, its body fingerprinted, its answer captured. `effect alone` is an application that protects nothing.

Other drivers are in postgresql_drivers and postgresql_blocking, replays in postgresql_replay, several processes in
postgresql_scale; postgresql_round_trips counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from os import urandom
from typing import Any

import asyncpg

from benchmarks.asgi import discard, fresh_key, request
from benchmarks.load import throughput
from benchmarks.measure import Row, Subject, interleaved, rates
from benchmarks.statements import ANSWER, BODY, LINES
from twicesafe import Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.record import StoredResponse
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.packing import pack_headers
from twicesafe.stores.postgresql import queries
from twicesafe.stores.sql.advisory import lock_keys
from twicesafe.stores.sql.statements import Placeholder, inlined
from twicesafe.storm.postgresql import PrivatePostgreSQL

TASKS = 32
ROUNDS = 9
TIMES = 1500
NUMBERS = count(1)

Effect = Callable[[Any], Awaitable[None]]


async def one_row(connection: Any) -> None:
    """The smallest effect there is."""
    await connection.execute("INSERT INTO ledger (account, amount) VALUES ($1, $2)", 7, 100)


async def four_statements(connection: Any) -> None:
    """What a payment does at least: look, charge, book, tell."""
    account = next(NUMBERS) % 1000 + 1
    await connection.fetchrow("SELECT balance FROM accounts WHERE id = $1", account)
    await connection.execute("UPDATE accounts SET balance = balance - $2 WHERE id = $1", account, 100)
    await connection.execute("INSERT INTO ledger (account, amount) VALUES ($1, $2)", account, 100)
    await connection.execute("INSERT INTO events (account, kind) VALUES ($1, $2)", account, "charged")


SCHEMA = """
CREATE TABLE ledger (id bigserial PRIMARY KEY, account bigint NOT NULL, amount bigint NOT NULL);
CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE events (id bigserial PRIMARY KEY, account bigint NOT NULL, kind text NOT NULL);
INSERT INTO accounts SELECT n, 1000000 FROM generate_series(1, 1000) AS n;
"""


class ByHand:
    """One request's transaction, hand-written."""

    def __init__(self) -> None:
        sql = queries(Placeholder.NUMBER, None)
        self._begin = sql("begin").text + ";"
        self._lock = lambda digest, fingerprint: inlined(sql("lock", **lock_keys(digest, fingerprint)))
        self._look = sql("look", digest=b"").text
        names = [
            *("digest", "scope", "operation", "key_hint", "fingerprint", "effects", "owner", "epoch", "created_at"),
            *("key_us", "body_us", "purge_us", "status", "headers", "body"),
            *("seen_owner", "seen_epoch", "seen_state", "seen_lease_until", "seen_key_until"),
        ]
        record = sql("record", **{name: name for name in names})
        self._record, self._order = record.text, record.parameters
        self._fixed = dict.fromkeys(names, 0) | {
            "scope": "user", "operation": "http", "key_hint": "…0001", "effects": "transactional", "epoch": 1,
            "key_us": 86_400_000_000, "body_us": 86_400_000_000, "purge_us": 86_400_000_000, "status": 201,
            "headers": pack_headers(LINES), "body": ANSWER, "seen_owner": b"", "seen_state": "completed",
        }  # fmt: skip

    async def __call__(self, connection: Any, effect: Effect) -> None:
        digest, fingerprint = urandom(32), b"\x01" + urandom(32)
        await connection.execute(self._begin + self._lock(digest, fingerprint))
        seen = (await connection.fetch(self._look, digest))[0]
        assert seen["digest"] is None and seen["lock"] == "mine"
        await effect(connection)
        mine = {"digest": digest, "fingerprint": fingerprint, "owner": urandom(16), "created_at": seen["now"]}
        values = self._fixed | mine
        assert await connection.fetch(self._record, *[values[name] for name in self._order])
        await connection.execute("COMMIT")


async def effect_alone(connection: Any, effect: Effect) -> None:
    """What an application without protection sends."""
    await connection.execute("BEGIN")
    await effect(connection)
    await connection.execute("COMMIT")


async def no_reset(connection: Any) -> None:
    """As the store's own pool: what was begun was ended."""


def by_pool(pool: Any, work: Callable[[Any, Effect], Awaitable[None]], effect: Effect) -> Callable[[], Awaitable[None]]:
    """One piece of work on a pooled connection."""

    async def once() -> None:
        async with pool.acquire() as connection:
            await work(connection, effect)

    return once


def by_store(store: AsyncpgStore, effect: Effect, policy: Policy) -> Callable[[], Awaitable[None]]:
    """One transaction on the store."""
    response = StoredResponse(201, LINES, ANSWER)

    async def once() -> None:
        claim = Claim(
            urandom(32), "user", "http", "…0001", GivenFingerprint(b"\x01" + urandom(32)), policy.effects, urandom(16),
            policy.lease_us, policy.key_us,
        )  # fmt: skip
        async with store.transaction() as transaction:
            won = await transaction.claim(claim)
            assert type(won) is Claimed
            await effect(transaction.connection)
            await transaction.complete(won.ownership, response, policy.key_us, policy.body_us)

    return once


def by_shell(store: AsyncpgStore, effect: Effect, policy: Policy) -> Callable[[], Awaitable[None]]:
    """One first request through the ASGI shell."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await effect(current(scope).connection)
        await send({"type": "http.response.start", "status": 201, "headers": LINES})
        await send({"type": "http.response.body", "body": ANSWER})

    safe = IdempotencyMiddleware(app, store, scope=lambda scope: "user", policy=policy)

    async def once() -> None:
        scope, receive = request(fresh_key(), BODY)
        await safe(scope, receive, discard)

    return once


async def measured(url: str) -> list[Row]:
    """All cases."""
    found: list[Row] = []
    store = AsyncpgStore(url, pool_size=TASKS)
    pool = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS)
    bare_pool = await asyncpg.create_pool(url, min_size=TASKS, max_size=TASKS, reset=no_reset)
    try:
        await store.apply_schema()
        await pool.execute(SCHEMA)
        policy = Policy(effects=Effects.TRANSACTIONAL)
        for name, effect in (("one-row effect", one_row), ("four-statement effect", four_statements)):
            subjects = [
                Subject("effect alone", throughput(by_pool(pool, effect_alone, effect), TASKS)),
                Subject("floor", throughput(by_pool(pool, ByHand(), effect), TASKS)),
                Subject("floor, no reset", throughput(by_pool(bare_pool, ByHand(), effect), TASKS)),
                Subject("twicesafe", throughput(by_store(store, effect, policy), TASKS)),
                Subject("twicesafe, ASGI", throughput(by_shell(store, effect, policy), TASKS)),
            ]
            await interleaved(subjects, rounds=ROUNDS, times=TIMES)
            found += rates(f"asyncpg, transactional, {name}, {TASKS} tasks", subjects)
    finally:
        await pool.close()
        await bare_pool.close()
        await store.aclose()
    return found


def run() -> list[Row]:
    """The benchmark with its parts, on a private server with fsync on."""
    # Here, because each process of postgresql_scale needs this module, and none of what the others need.
    from benchmarks import (
        postgresql_blocking,
        postgresql_drivers,
        postgresql_replay,
        postgresql_round_trips,
        postgresql_scale,
    )

    with PrivatePostgreSQL({"max_connections": str(8 * TASKS)}) as server:
        found = asyncio.run(measured(server.url))
        found += postgresql_round_trips.run(server.url)
        for part in (postgresql_drivers, postgresql_blocking, postgresql_replay, postgresql_scale):
            found += part.run(server.url)
    return found
