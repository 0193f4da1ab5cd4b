"""A primary that is lost, and a standby that is promoted while clients go on: what a failover costs.

The clients reach whichever server takes writes by one address with both hosts in it, as applications do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg

from tests.servers.postgresql import PostgresqlServer, Standby
from tests.shells.probe import Reply, post
from tests.stores.claims import wish
from tests.stores.postgresql_kinds import ASYNC_KINDS, KINDS, POOL_SIZE, as_async, complete, won
from twicesafe import PUBLIC, Effects, Policy
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Ownership
from twicesafe.errors import StoreUnavailableError

CLIENTS = 16
BEFORE = 60
"""Intents that are done before the primary is lost."""
AFTER = 10
"""Intents that each client does from its loss on, the one under way included."""
LEASED = 10


@dataclass
class Pair:
    """A primary and its standby."""

    primary: PostgresqlServer
    standby: Standby

    @property
    def dsn(self) -> str:
        """The one that takes writes, whichever it is."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://twicesafe@{hosts}/postgres?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """The primary crashes for good, and the standby takes over."""
        self.primary.stop("immediate")
        self.standby.promote()


@contextmanager
def pair(*, synchronous: bool) -> Iterator[Pair]:
    """Both, with a table of effects; what is committed on the primary is on the standby too if `synchronous`."""
    with PostgresqlServer() as primary, Standby(primary) as standby:
        with psycopg.connect(primary.dsn(), autocommit=True) as admin:
            admin.execute("CREATE TABLE effects (id bigserial PRIMARY KEY, key text NOT NULL)")
            if synchronous:
                admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{Standby.NAME}'")
                admin.execute("SELECT pg_reload_conf()")
            state = "sync" if synchronous else "async"
            until(admin, f"SELECT count(*) FROM pg_stat_replication WHERE sync_state = '{state}'", 1)
        yield Pair(primary, standby)


def until(connection: psycopg.Connection[Any], query: str, wanted: int) -> None:
    """Ask until it is so."""
    for _ in range(1000):
        if connection.execute(query).fetchone() == (wanted,):
            return
        connection.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(query)


@dataclass
class Service:
    """Two operations behind the ASGI shell: a row of the database's own, and a call to somebody else's."""

    kind: str
    store: Any
    calls: list[str] = field(default_factory=list)

    def app(self, effects: Effects) -> IdempotencyMiddleware:
        policy = Policy(effects=effects, lease=timedelta(seconds=60))
        handler = self.row if effects is Effects.TRANSACTIONAL else self.call
        return IdempotencyMiddleware(handler, self.store, scope=PUBLIC, policy=policy, observer=lambda _: None)

    async def row(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        key = await _key(receive)
        connection = current(scope).connection
        if self.kind == "asyncpg":
            number = await connection.fetchval("INSERT INTO effects (key) VALUES ($1) RETURNING id", key)
        else:
            cursor = await connection.execute("INSERT INTO effects (key) VALUES (%s) RETURNING id", [key])
            (number,) = await cursor.fetchone()
        await _answer(send, f"row {number}")

    async def call(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.calls.append(await _key(receive))
        await _answer(send, f"call {len(self.calls)}")


async def _key(receive: Any) -> str:
    message = await receive()
    return bytes(message["body"]).decode()


async def _answer(send: Any, text: str) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


async def ask(app: Any, key: str) -> Reply:
    """One attempt. What a handler raises reaches the server, and its client as a 500."""
    return await post(app, key=key, body=key.encode(), raises=(Exception,))


async def insist(app: Any, key: str) -> tuple[bytes, int]:
    """Ask with the same key until there is an answer; how often it took."""
    for attempt in count(1):
        reply = await ask(app, key)
        if reply.raised is None and reply.status == 201:
            return reply.body, attempt
        assert reply.raised is not None or reply.status in (409, 503), reply.messages
        await asyncio.sleep(0.02)
    raise AssertionError


@asynccontextmanager
async def opened(kind: str, dsn: str) -> AsyncIterator[Any]:
    store = as_async(KINDS[kind][0](dsn, pool_size=POOL_SIZE, timeout=timedelta(seconds=5)))
    try:
        await store.apply_schema()
        yield store
    finally:
        await store.aclose()


class Load:
    """Clients of one driver's store before, while and after the primary is lost, and what they were told."""

    def __init__(self, kind: str, store: Any, lost: asyncio.Event) -> None:
        self._name = kind.partition(",")[0]
        self._service = Service(kind, store)
        self._store = store
        self._rows = self._service.app(Effects.TRANSACTIONAL)
        self._calls = self._service.app(Effects.OPAQUE)
        self._lost = lost
        self._owned: list[Ownership] = []
        self.answers: dict[str, bytes] = {}
        self.enough = asyncio.Event()

    async def run(self) -> int:
        """From before the loss until well after it; the most attempts that an intent took."""
        for n in range(LEASED):
            key = f"{self._name}-called-{n:05d}"
            self.answers[key] = (await ask(self._calls, key)).body
            self._owned.append(await won(self._store, f"{self._name}-leased-{n}", effects=Effects.OPAQUE))
        return max(await asyncio.gather(*(self._client(number) for number in range(CLIENTS))))

    async def _client(self, number: int) -> int:
        most, left = 0, AFTER
        for n in count():
            if left == 0:
                break
            key = f"{self._name}-client-{number}-{n:05d}"
            self.answers[key], attempts = await insist(self._rows, key)
            most = max(most, attempts)
            if len(self.answers) >= BEFORE:
                self.enough.set()
            if self._lost.is_set():
                left -= 1
        return most

    async def check(self) -> None:
        """Every key is known, to its owner and to everybody else."""
        for key, answer in self.answers.items():
            reply = await ask(self._rows if answer.startswith(b"row") else self._calls, key)
            assert (reply.status, reply.body, reply.replayed) == (201, answer, True), key
        assert len(self._service.calls) == LEASED
        for n, own in enumerate(self._owned):
            rival = await self._store.claim(wish(f"{self._name}-leased-{n}", effects=Effects.OPAQUE))
            assert isinstance(rival, Existing)
            assert rival.verdict is Verdict.IN_PROGRESS
            await complete(self._store, own)


def test_a_synchronous_standby_forgets_nothing() -> None:
    """R23, I1, I5, K: promoted under load, it knows every key; each intent has one row, and the answer it had."""

    async def trial(both: Pair) -> None:
        lost = asyncio.Event()
        async with asyncio.timeout(90), AsyncExitStack() as stack:
            loads = [Load(kind, await stack.enter_async_context(opened(kind, both.dsn)), lost) for kind in ASYNC_KINDS]
            idle = [await stack.enter_async_context(opened(kind, both.dsn)) for kind in KINDS]
            # Their pools are full of connections to the primary.
            await asyncio.gather(*(store.now() for store in idle for _ in range(2 * POOL_SIZE)))
            running = [asyncio.create_task(load.run()) for load in loads]
            await asyncio.gather(*(load.enough.wait() for load in loads))
            await asyncio.to_thread(both.fail_over)
            lost.set()
            # Each has felt the loss.
            assert min(await asyncio.gather(*running)) > 1

            with psycopg.connect(both.standby.dsn()) as admin:
                rows = admin.execute("SELECT key, array_agg(id) FROM effects GROUP BY key").fetchall()
            told = {key: answer for load in loads for key, answer in load.answers.items() if answer.startswith(b"row")}
            assert {key: [f"row {n}".encode() for n in ids] for key, ids in rows} == {
                key: [answer] for key, answer in told.items()
            }
            for load in loads:
                await load.check()
            for store in idle:
                for n in range(2 * POOL_SIZE):
                    await again_and_again(store, f"idle-{id(store)}-{n}")

    with pair(synchronous=True) as both:
        asyncio.run(trial(both))


async def again_and_again(store: Any, key: str) -> None:
    """Claim, by way of a pool that has to find out by itself that its connections are dead."""
    for _ in range(POOL_SIZE + 1):
        try:
            await won(store, key)
            return
        except StoreUnavailableError:
            continue
    raise AssertionError("a pool does not recover")


def test_an_asynchronous_standby_may_forget() -> None:
    """K: what the primary had not passed on is lost with it, key and row: the retry runs, and gets another answer."""

    async def trial(both: Pair) -> None:
        async with asyncio.timeout(60), opened("asyncpg", both.dsn) as store:
            service = Service("asyncpg", store)
            rows, calls = service.app(Effects.TRANSACTIONAL), service.app(Effects.OPAQUE)
            passed_on, _ = await insist(rows, "passed-on-0000-0000")
            await asyncio.to_thread(stop_following, both)
            kept_back, _ = await insist(rows, "kept-back-0000-0000")
            await insist(calls, "called-0000-0000-0000")
            await asyncio.to_thread(both.fail_over)
            assert (await insist(rows, "passed-on-0000-0000"))[0] == passed_on
            again, _ = await insist(rows, "kept-back-0000-0000")
            await insist(calls, "called-0000-0000-0000")
            with psycopg.connect(both.standby.dsn()) as admin:
                assert admin.execute("SELECT key, count(*) FROM effects GROUP BY key ORDER BY key").fetchall() == [
                    ("kept-back-0000-0000", 1),
                    ("passed-on-0000-0000", 1),
                ]
            # The row and its key were lost together; a call to somebody else was made twice.
            assert again != kept_back
            assert service.calls == ["called-0000-0000-0000"] * 2

    with pair(synchronous=False) as both:
        asyncio.run(trial(both))


def stop_following(both: Pair) -> None:
    """Have the standby receive what there is, and nothing any more."""
    with psycopg.connect(both.primary.dsn(), autocommit=True) as primary:
        (end,) = primary.execute("SELECT pg_current_wal_flush_lsn()").fetchone() or (None,)
    with psycopg.connect(both.standby.dsn(), autocommit=True) as standby:
        until(standby, f"SELECT count(*) FROM (SELECT) AS one WHERE pg_last_wal_replay_lsn() >= '{end}'", 1)
        standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
        standby.execute("SELECT pg_reload_conf()")
        until(standby, "SELECT count(*) FROM pg_stat_wal_receiver", 0)
