"""The daily layout of PostgreSQL: the contract on it, midnight, partitions that are not there, and days that go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, FEWER_KEYS, FEWER_RIVALS, OTHER_REQUEST, digest_of, wish
from tests.stores.postgresql_kinds import KINDS, MANUAL_CLOCK, Place, complete, emptied_place, new_place, whole, won
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError, SchemaError
from twicesafe.reaper import AsyncReaper
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.sql.daily import DailyQueries
from twicesafe.stores.sql.statements import Placeholder
from twicesafe.stores.urls import open_store
from twicesafe.testing import CHECKS, ManualClock, Outcome, check_store
from twicesafe.testing.check import Check

DAY = timedelta(days=1)
DAY_US = DAY // timedelta(microseconds=1)
HOUR_US = DAY_US // 24
MIDNIGHT = 20_800 * DAY_US
BOTH = ["asyncpg", "psycopg"]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_daily_layout_keeps_the_contract(postgresql_server: PostgresqlServer, kind: str, check: Check) -> None:
    """R20, I1, I3, I4, I5, C2, C4, K: every promise holds with bodies in daily partitions, on both kinds of drivers."""
    place = emptied_place(postgresql_server, kind, "daily")
    elsewhere = place.store

    def store(**options: Any) -> Any:
        return elsewhere(daily_bodies=DAY, **options)

    place.store = store  # type: ignore[method-assign]
    [result] = check_store(place.subject, only=[check.name], rivals=FEWER_RIVALS, keys=FEWER_KEYS)
    assert result.outcome is Outcome.PASSED, result.reason


@dataclass
class World:
    """A place, its clock, and a store of the daily layout on it."""

    place: Place
    clock: ManualClock
    store: AsyncStore

    def days(self) -> list[int]:
        """The days that have a partition."""
        found = self.place.admin.execute(
            "SELECT substr(inhrelid::regclass::text, 18)::bigint FROM pg_inherits"
            " WHERE inhparent = 'twicesafe_bodies'::regclass"
        )
        return sorted(row[0] for row in found)

    def tables(self) -> int:
        """How many tables of bodies there are, attached or not."""
        found: int = self.place.value(
            "SELECT count(*) FROM pg_class WHERE relname ~ '^twicesafe_bodies_' AND relkind = 'r'"
            " AND relnamespace = current_schema()::regnamespace"
        )
        return found

    async def until_detaching_waits(self) -> None:
        """Until a DETACH waits for somebody's transaction."""
        for _ in range(60_000):
            # Its own view of who waits is of one moment within a transaction; the locks are as they are.
            if self.place.value("SELECT count(*) FROM pg_locks WHERE locktype = 'virtualxid' AND NOT granted"):
                return
            await asyncio.sleep(0.001)
        pytest.fail("no DETACH waits")

    def bodies(self) -> tuple[int, int]:
        """How many bodies lie in partitions, and how many in the records."""
        return (
            self.place.value("SELECT count(*) FROM twicesafe_bodies"),
            self.place.value("SELECT count(*) FROM twicesafe_records WHERE body IS NOT NULL"),
        )

    async def done(self, key: str = "key", key_us: int = DAY_US, body_us: int = DAY_US) -> None:
        """Claim and complete."""
        own = await won(self.store, key, key_us=key_us)
        await self.store.complete(own, ANSWER, key_us, body_us)

    async def told(self, key: str = "key", **changes: Any) -> Existing:
        """What the next attempt is told."""
        found = await self.store.claim(wish(key, **changes))
        assert isinstance(found, Existing), "a key that is remembered was claimed again"
        return found

    async def replayed(self, key: str = "key") -> bool:
        """Whether the next attempt gets the whole answer, rather than that it was done."""
        found = await self.told(key)
        assert found.record is not None and found.record.response is not None
        if found.verdict is Verdict.REPLAY:
            assert found.record.response == ANSWER
            return True
        assert found.verdict is Verdict.GONE
        return False


@asynccontextmanager
async def world(
    server: PostgresqlServer, kind: str = "asyncpg", start: int = MIDNIGHT - HOUR_US
) -> AsyncIterator[World]:
    """A fresh one, an hour before midnight."""
    place = new_place(server, kind)
    clock = ManualClock(start)
    clock.watch(place.set_clock)
    async with place.opened(now_sql=MANUAL_CLOCK, daily_bodies=DAY, timeout=timedelta(minutes=2)) as store:
        yield World(place, clock, store)
    place.admin.close()


@pytest.mark.parametrize("kind", BOTH)
def test_a_key_is_one_key_on_both_sides_of_midnight(postgresql_server: PostgresqlServer, kind: str) -> None:
    """I1, I4, K: completed before midnight and asked for after it, a key replays; another request is refused."""

    async def trial() -> None:
        async with world(postgresql_server, kind) as here:
            await here.done("answered")
            in_progress = await won(here.store, "in progress", lease_us=2 * HOUR_US)
            here.clock.advance(timedelta(hours=1))
            assert await here.replayed("answered")
            assert (await here.told("answered", fingerprint=OTHER_REQUEST)).verdict is Verdict.MISMATCH
            assert (await here.told("in progress")).verdict is Verdict.IN_PROGRESS
            await complete(here.store, in_progress)
            assert await here.replayed("in progress")
            assert here.bodies() == (2, 0)

    asyncio.run(trial())


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_rivals_at_midnight_make_one_effect_each_at_every_isolation_level(
    postgresql_server: PostgresqlServer, isolation: str
) -> None:
    """I1, K: while the clock jumps over midnight 8 rivals race for each of 20 keys, in transactions: 20 effects."""

    async def trial() -> None:
        place = new_place(postgresql_server, "asyncpg")
        clock = ManualClock(MIDNIGHT - 1)
        clock.watch(place.set_clock)
        settings = {"default_transaction_isolation": isolation}
        async with place.opened(now_sql=MANUAL_CLOCK, daily_bodies=DAY, settings=settings) as store:

            async def rival(key: str) -> None:
                async with store.transaction() as transaction:
                    found = await transaction.claim(wish(key, effects=Effects.TRANSACTIONAL))
                    if isinstance(found, Claimed):
                        await place.write_in(transaction, key)
                        await complete(transaction, found.ownership)

            async def jump() -> None:
                clock.advance(timedelta(microseconds=2))

            keys = [f"key-{n}" for n in range(20)]
            rivals = [rival(key) for _ in range(8) for key in keys]
            await asyncio.gather(*rivals[:80], jump(), *rivals[80:])
            for key in keys:
                await rival(key)
            assert [place.effects(key) for key in keys] == [1] * 20
        place.admin.close()

    asyncio.run(trial())


@pytest.mark.parametrize("kind", BOTH)
def test_claims_work_where_partitions_are_missing(postgresql_server: PostgresqlServer, kind: str) -> None:
    """K, R20: nobody made partitions for a week: nothing fails, bodies stay in their records, and are replayed."""

    async def trial() -> None:
        async with world(postgresql_server, kind) as here:
            here.clock.advance(timedelta(days=7))
            await here.done("leased")
            async with here.store.transaction() as transaction:
                own = await won(transaction, "transactional", effects=Effects.TRANSACTIONAL)
                await here.place.write_in(transaction, "transactional")
                await transaction.complete(own, ANSWER, DAY_US, DAY_US)
            held = await won(here.store, "settled")
            await here.store.hold(held)
            assert await here.store.settle(held, ANSWER, DAY_US, DAY_US)
            assert here.place.effects("transactional") == 1
            assert here.bodies() == (0, 3)
            for key in ("leased", "transactional", "settled"):
                assert await here.replayed(key)
            # The first purge makes them; what is inline stays there, and ends with its key.
            await here.store.purge()
            await here.done("partitioned")
            assert here.bodies() == (1, 3)
            here.clock.advance(DAY)
            assert await here.store.purge() == 4
            assert here.place.value("SELECT count(*) FROM twicesafe_records") == 0

    asyncio.run(trial())


@pytest.mark.parametrize("kind", BOTH)
def test_days_are_made_ahead_and_dropped_when_they_are_over(postgresql_server: PostgresqlServer, kind: str) -> None:
    """R20, K: today and the days that bodies may end on are there; one goes with its bodies when it is over."""

    async def trial() -> None:
        async with world(postgresql_server, kind) as here:
            today = MIDNIGHT // DAY_US - 1
            assert here.days() == [today, today + 1, today + 2]
            await here.done("today", key_us=3 * DAY_US, body_us=HOUR_US - 1)
            await here.done("tomorrow", key_us=3 * DAY_US, body_us=HOUR_US)
            here.clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
            await here.store.purge()
            assert here.days() == [today, today + 1, today + 2]
            assert not await here.replayed("today")
            here.clock.advance(timedelta(microseconds=1))
            await here.store.purge()
            assert here.days() == [today + 1, today + 2, today + 3]
            assert here.tables() == 3
            assert here.bodies() == (1, 0)
            assert not await here.replayed("today")
            assert not await here.replayed("tomorrow")

    asyncio.run(trial())


def test_a_body_that_ended_is_not_shown_though_its_day_is_not_over(postgresql_server: PostgresqlServer) -> None:
    """R20: expiry needs nobody who drops partitions; the key says done until its retention ends, then it is free."""

    async def trial() -> None:
        async with world(postgresql_server, start=MIDNIGHT) as here:
            await here.done(key_us=2 * HOUR_US, body_us=HOUR_US)
            assert await here.replayed()
            here.clock.advance(timedelta(hours=1))
            assert not await here.replayed()
            record = (await here.store.read(digest_of("key"))).record
            assert record is not None and record.response == ANSWER._replace(body=None)
            assert here.bodies() == (1, 0)
            here.clock.advance(timedelta(hours=1))
            # The same key twice in one day: the second answer takes the first one's place.
            second = await won(here.store)
            await here.store.complete(second, ANSWER, HOUR_US, HOUR_US)
            assert await here.replayed()
            assert here.bodies() == (1, 0)

    asyncio.run(trial())


def test_a_day_is_detached_under_load_and_no_claim_waits(postgresql_server: PostgresqlServer) -> None:
    """R20, K: while a reader of an old day keeps its detaching waiting, claims and replays go on; then it goes."""

    async def trial() -> None:
        async with world(postgresql_server) as here:
            await here.done("old")
            here.clock.advance(2 * DAY)
            with here.place.admin.transaction():
                # A reader who stays: a plain DROP would wait for it, and every claim for the DROP.
                here.place.admin.execute("SELECT count(*) FROM twicesafe_bodies")
                dropping = asyncio.create_task(here.store.purge())
                await here.until_detaching_waits()
                async with asyncio.timeout(60):
                    for n in range(10):
                        await here.done(f"leased-{n}")
                        assert await here.replayed(f"leased-{n}")
                        await whole(here.place, here.store, f"transactional-{n}")
                assert not dropping.done()
            await dropping
            today = here.clock() // DAY_US
            assert here.days()[0] == today
            assert here.tables() == len(here.days())

    asyncio.run(trial())


def test_what_was_left_half_detached_or_undropped_is_finished(postgresql_server: PostgresqlServer) -> None:
    """R20: a reaper that died while detaching, or between detaching and dropping, leaves nothing for people to do."""

    async def trial() -> None:
        async with world(postgresql_server, "psycopg") as here:
            today = here.clock() // DAY_US
            here.clock.advance(3 * DAY)
            admin, name = here.place.admin, here.place.name
            admin.execute(f"ALTER TABLE twicesafe_bodies DETACH PARTITION twicesafe_bodies_{today} CONCURRENTLY")
            admin.execute("UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = "
                          f"'{name}.twicesafe_bodies_{today + 1}'::regclass")  # fmt: skip
            assert here.tables() == 3
            await here.store.purge()
            assert here.days() == [today + 3, today + 4, today + 5]
            assert here.tables() == 3

    asyncio.run(trial())


def test_many_reapers_make_and_drop_days_once(postgresql_server: PostgresqlServer) -> None:
    """R20: four reapers at once over midnight: each day is made once and dropped once, and none is missing after."""

    async def trial() -> None:
        async with world(postgresql_server) as here:
            await here.done("old")
            here.clock.advance(DAY)
            reapers = [AsyncReaper(here.store, pause=timedelta(0)).run_once() for _ in range(4)]
            await asyncio.gather(*reapers)
            today = here.clock() // DAY_US
            assert here.days() == [today, today + 1, today + 2]
            assert here.tables() == 3

    asyncio.run(trial())


def test_stores_of_both_layouts_share_their_records(postgresql_server: PostgresqlServer) -> None:
    """R20, I1: turning the layout on or off under live keys loses no key; at worst an answer is no longer kept."""

    async def trial() -> None:
        async with world(postgresql_server) as here, here.place.opened(now_sql=MANUAL_CLOCK) as plain:
            own = await won(plain, "plain")
            await plain.complete(own, ANSWER, DAY_US, DAY_US)
            await here.done("daily")
            assert await here.replayed("plain")
            found = await plain.claim(wish("daily"))
            assert isinstance(found, Existing) and found.verdict is Verdict.GONE
            assert await here.replayed("daily")

    asyncio.run(trial())


@pytest.mark.parametrize("kind", KINDS)
def test_missing_tables_are_named_with_the_command_that_makes_them(
    postgresql_server: PostgresqlServer, kind: str
) -> None:
    """R20: a database of the plain layout is not of this one, and the message says which command mends that."""

    async def trial() -> None:
        place = new_place(postgresql_server, kind)
        async with place.opened() as plain:
            await plain.check_schema()
            daily = place.store(daily_bodies=timedelta(days=30))
            with pytest.raises(SchemaError, match=r"schema apply --store .*[?&]daily_bodies=30"):
                await _result(daily.check_schema())
            await _result(daily.apply_schema())
            await _result(daily.apply_schema())
            await _result(daily.check_schema())
            await _result(daily.aclose() if hasattr(daily, "aclose") else daily.close())
        assert place.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'twicesafe_bodies'::regclass") == 32
        place.admin.close()

    asyncio.run(trial())


async def _result(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


def test_the_layout_is_asked_for_in_the_address(postgresql_server: PostgresqlServer) -> None:
    """R20: postgresql://...?daily_bodies=DAYS opens a store of the daily layout; anything else there is refused."""
    place = new_place(postgresql_server, "psycopg")
    store = open_store(f"{place.dsn_with()}&daily_bodies=2")
    store.apply_schema()
    store.check_schema()
    store.close()
    assert place.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'twicesafe_bodies'::regclass") == 4
    place.admin.close()
    for wrong in ("0", "-1", "x", "", "401", "1.5"):
        with pytest.raises(ConfigurationError, match="daily_bodies"):
            open_store(f"postgresql://host/database?daily_bodies={wrong}")


@pytest.mark.parametrize("wrong", [1, timedelta(0), timedelta(days=401), True])
def test_a_retention_that_cannot_be_meant_is_refused(wrong: Any) -> None:
    """R20: the setting is the longest body_retention in use, as a timedelta."""
    for make, _ in KINDS.values():
        with pytest.raises(ConfigurationError, match="daily_bodies"):
            make("postgresql:///shop", daily_bodies=wrong)


def test_the_layout_changes_only_where_bodies_are_written_and_read() -> None:
    """I1, R20: claiming, taking over and every owner's condition are the very statements of the plain layout."""
    from twicesafe.stores.postgresql import queries

    plain, daily = queries(Placeholder.NUMBER, None), DailyQueries(Placeholder.NUMBER, 2)
    changed = {name for name, query in plain.all().items() if daily.all()[name].text != query.text}
    assert changed == {"find", "look", "complete", "record", "settle"}
    added = daily.all().keys() - plain.all().keys()
    assert added == {"bodies_present", "place_of_records", "days_missing", "days_over"}
    assert {name for name in changed if daily.all()[name].writes} == {"complete", "record", "settle"}
