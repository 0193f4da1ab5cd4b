"""An exchange cut after every step it yields, on real databases: the retry makes the effect one, never two."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.stores import django_kinds, dynamodb_place, joined_kinds, mysql_kinds, postgresql_kinds
from tests.stores.postgresql_kinds import ASYNC_KINDS, MANUAL_CLOCK, Place
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Claim
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.keys import derive, scoped_key
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.core.steps import Answer, Forward, Propagate, Result
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.cryptography import Keyring
from twicesafe.stores.sealed import AsyncSealedStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.testing import ManualClock
from twicesafe.testing.cut import Cut, cut_at

ANSWER = Responded(201, ((b"content-type", b"application/json"),), b'{"n": 1}')
OWNERS = count(1)


@dataclass
class World:
    """A store on a clock of the test's, and the effects beside it."""

    store: AsyncStore
    clock: ManualClock
    write_in: Callable[[Any], Any]
    """A row in the open transaction."""
    write: Callable[[str], None]
    """A row that is committed at once, as another system's would be."""
    effects: Callable[[], int]


@asynccontextmanager
async def sqlite(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    path = request.getfixturevalue("tmp_path") / "cut.db"
    clock = ManualClock()
    outside = sqlite3.connect(path, isolation_level=None, timeout=30)
    store = AsyncSqliteStore(path, clock=clock)
    await store.apply_schema()
    outside.execute("CREATE TABLE effects (name TEXT)")

    async def write_in(connection: Any) -> None:
        await connection.execute("INSERT INTO effects (name) VALUES ('key')")

    try:
        yield World(
            store,
            clock,
            write_in,
            lambda name: outside.execute("INSERT INTO effects (name) VALUES (?)", (name,)) and None,
            lambda: outside.execute("SELECT count(DISTINCT name || rowid) FROM effects").fetchone()[0],
        )
    finally:
        await store.aclose()
        outside.close()


def postgresql(kind: str, places: Any = postgresql_kinds, **options: Any) -> Callable[[pytest.FixtureRequest], Any]:
    @asynccontextmanager
    async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
        where = places.new_place(request.getfixturevalue("postgresql_server"), kind)
        clock = ManualClock()
        clock.watch(where.set_clock)
        try:
            async with where.opened(now_sql=MANUAL_CLOCK, **options) as store:
                yield World(
                    store,
                    clock,
                    lambda connection: in_place(where, connection),
                    lambda name: where.admin.execute("INSERT INTO effects (name) VALUES (%s)", [name]) and None,
                    lambda: where.value("SELECT count(*) FROM effects"),
                )
        finally:
            where.admin.close()

    return world


async def in_place(where: Place, connection: Any) -> None:
    """A row in the open transaction, whatever the session."""
    if isinstance(connection, Session):
        await asyncio.to_thread(where.write, connection, "key")
    else:
        await where.write(connection, "key")


@asynccontextmanager
async def mysql(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    where = mysql_kinds.new_place(request.getfixturevalue("mariadb_server"), "asyncmy")
    clock = ManualClock()
    clock.watch(where.set_clock)
    try:
        async with where.opened(now_sql=mysql_kinds.MANUAL_CLOCK) as store:
            yield World(
                store,
                clock,
                lambda connection: where.write(connection, "key"),
                lambda name: where.value("INSERT INTO effects (name) VALUES (%s)", name),
                lambda: where.value("SELECT count(*) FROM effects"),
            )
    finally:
        where.admin.close()


@asynccontextmanager
async def sealed(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with sqlite(request) as world:
        keys = Keyring({"key": Keyring.new_key()}, current="key")
        yield replace(world, store=AsyncSealedStore(world.store, keys=keys))


@asynccontextmanager
async def dynamodb(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    where = dynamodb_place.new_place(request.getfixturevalue("dynamodb_server"), "dynamodb, async")
    clock = ManualClock()
    async with dynamodb_place.opened(where, clock=clock) as store:
        yield World(
            store,
            clock,
            lambda connection: where.write_later(connection, "key"),
            lambda name: where.write(where.client, name),
            lambda: where.effects(None),
        )


WORLDS = {
    "sqlite": sqlite,
    **{kind: postgresql(kind) for kind in ASYNC_KINDS},
    "asyncpg, daily": postgresql("asyncpg", daily_bodies=timedelta(days=1)),
    "SQLAlchemy, psycopg": postgresql("SQLAlchemy, psycopg", joined_kinds),
    "SQLAlchemy, asyncpg": postgresql("SQLAlchemy, asyncpg", joined_kinds),
    "Django, async": postgresql("Django, async", django_kinds),
    "mysql": mysql,
    "dynamodb": dynamodb,
    "sealed": sealed,
}


def wish(policy: Policy, intent: str) -> Claim:
    """A claim of a new attempt at `intent`."""
    key = scoped_key("user", intent)
    return Claim(
        key.digest, key.scope, "cut", key.hint, GivenFingerprint(b"\x01" + b"f" * 32), policy.effects,
        next(OWNERS).to_bytes(16, "big"), policy.lease_us, policy.key_us,
    )  # fmt: skip


class Intent:
    """One intent in a world: attempts at it, and what they did."""

    def __init__(self, world: World, policy: Policy, name: str, *, stream: bool = False, fail: bool = False) -> None:
        self.world = world
        self.policy = policy
        self.name = name
        self.stream = stream
        self.fail = fail
        self.sent: set[str] = set()
        """What a provider that remembers keys has done."""

    async def attempt(self, stop_after: int | None = None) -> Cut:
        claim = wish(self.policy, self.name)

        async def handler(connection: Any) -> Responded | Raised:
            if connection is not None:
                await self.world.write_in(connection)
            elif self.policy.effects is Effects.KEYED:
                key = derive(claim.digest, "charge")
                if key not in self.sent:
                    self.sent.add(key)
                    self.world.write(key)
            else:
                self.world.write("opaque")
            if self.fail:
                return Raised(RuntimeError("boom"))
            return ANSWER._replace(body=None, streaming=True) if self.stream else ANSWER

        async def flow() -> Responded:
            return ANSWER

        return await cut_at(stop_after, claim, self.policy, self.world.store, handler, flow=flow)


def outcome(result: Result | None) -> str:
    """What the client of the last attempt learned."""
    match result:
        case Forward():
            return "answered"
        case Answer():
            return result.kind
        case Propagate():
            return "raised"
        case _:
            return "nothing"


async def every_cut(world: World, policy: Policy, **how: Any) -> AsyncIterator[tuple[str, int, str]]:
    """Cut a new intent's first attempt after each step in turn, wait out the lease, ask again: what it came to."""
    for n in count(1):
        before = world.effects()
        intent = Intent(world, policy, f"{policy.effects} {how} {n}", **how)
        first = await intent.attempt(stop_after=n)
        world.clock.advance(policy.lease)
        again = await intent.attempt()
        last = await intent.attempt()
        yield (f"{first.steps} then {again.steps}", world.effects() - before, outcome(again.result))
        if again.result is not None and type(again.result) is Answer and again.result.kind == "replayed":
            assert outcome(last.result) == "replayed"
        if first.result is not None:
            return


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_transactional_operation_cut_anywhere_happens_once(request, where, stream):
    """I1, I2, I11, R13, R23, R42, A7: cut after every step, the retry leaves one effect and one answer for all."""

    async def trial():
        async with WORLDS[where](request) as world:
            found = [cut async for cut in every_cut(world, Policy(effects=Effects.TRANSACTIONAL), stream=stream)]
            assert [effects for _, effects, _ in found] == [1] * len(found), found
            assert len(found) >= 4
            assert {told for _, _, told in found} == {"answered", "result-not-kept" if stream else "replayed"}

    asyncio.run(trial())


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_opaque_operation_cut_anywhere_never_happens_twice(request, where, stream):
    """I6, R13, R42, A7, B5: cut after every step, effects are never 2, and a lost outcome is called unknown."""

    async def trial():
        async with WORLDS[where](request) as world:
            found = [cut async for cut in every_cut(world, Policy(effects=Effects.OPAQUE), stream=stream)]
            assert all(effects <= 1 for _, effects, _ in found), found
            assert len(found) >= 4
            told = [told for _, _, told in found]
            # After the claim nobody can tell whether the work was done; after the record everybody can.
            assert told[0] == "outcome-unknown"
            assert told[-1] == "replayed"
            assert set(told) <= {"outcome-unknown", "result-not-kept", "replayed"}
            if stream:
                assert "result-not-kept" in told, "a head that was recorded says that the work was done"

    asyncio.run(trial())


@pytest.mark.parametrize("where", WORLDS)
def test_a_keyed_operation_cut_anywhere_reaches_its_provider_once(request, where):
    """R13, R25, R42: cut after every step, the run again sends the same derived key: one effect, always answered."""

    async def trial():
        async with WORLDS[where](request) as world:
            found = [cut async for cut in every_cut(world, Policy(effects=Effects.KEYED))]
            assert [effects for _, effects, _ in found] == [1] * len(found), found
            assert {told for _, _, told in found} == {"answered", "replayed"}

    asyncio.run(trial())


@pytest.mark.parametrize("where", WORLDS)
def test_a_transactional_operation_that_fails_leaves_nothing_at_any_cut(request, where):
    """H2, R16: the handler raises after its write; cut anywhere, nothing is left and the key is free."""

    async def trial():
        async with WORLDS[where](request) as world:
            policy = Policy(effects=Effects.TRANSACTIONAL)
            found = [cut async for cut in every_cut(world, policy, fail=True)]
            assert [effects for _, effects, _ in found] == [0] * len(found), found
            assert {told for _, _, told in found} == {"raised"}

    asyncio.run(trial())
