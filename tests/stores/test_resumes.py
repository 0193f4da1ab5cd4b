"""Recovery points on every store that keeps them, blocking and not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.stores import mysql_kinds, postgresql_kinds
from tests.stores.claims import ANSWER, KEY, LEASE, wish
from tests.stores.postgresql_kinds import as_async
from tests.stores.test_sealed_contract import RING, sealed
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Ownership, Record
from twicesafe.errors import ConfigurationError, LeaseLostError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore
from twicesafe.testing import ManualClock, StoreUnderTest

FILES: dict[str, Any] = {"sqlite": SqliteStore, "sqlite, async": AsyncSqliteStore}
SEALED = ["sealed memory, async", "sealed sqlite", "sealed asyncpg"]
KINDS = ["memory", "memory, async", *FILES, *postgresql_kinds.KINDS, *mysql_kinds.KINDS, *SEALED]
Scene = Callable[[Any, ManualClock], Awaitable[None]]
FIRST, SECOND_ONE, THIRD = b'\n["reserve"]', b'\n["charge","open"]', b'\n["charge","done"]'


def on(kind: str, clock: ManualClock, folder: Path, request: pytest.FixtureRequest) -> StoreUnderTest:
    """A fresh store of this kind."""
    if kind.startswith("sealed "):
        return sealed(on(kind.removeprefix("sealed "), clock, folder, request), keys=RING)
    if kind in FILES:
        return StoreUnderTest(store=FILES[kind](folder / "records.db", clock=clock))
    if kind in postgresql_kinds.KINDS:
        return postgresql_kinds.new_place(request.getfixturevalue("postgresql_server"), kind).subject(clock)
    if kind in mysql_kinds.KINDS:
        return mysql_kinds.new_place(request.getfixturevalue("mariadb_server"), kind).subject(clock)
    store = MemoryStore(clock=clock)
    return StoreUnderTest(store=store if kind == "memory" else AsyncMemoryStore(store))


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], None]:
    """Plays a scene with a store of one kind, as an AsyncStore, and its clock."""
    clock = ManualClock()

    async def played(scene: Scene) -> None:
        subject = on(request.param, clock, tmp_path, request)
        store = as_async(subject.store)
        try:
            await store.apply_schema()
            await scene(store, clock)
        finally:
            await store.aclose()
            closed = None if subject.close is None else subject.close()
            if isawaitable(closed):
                await closed

    return lambda scene: asyncio.run(played(scene))


async def won(store: Any, **changes: Any) -> Claimed:
    """Claim, and win."""
    found = await store.claim(wish(effects=Effects.RESUMABLE, request=b"the request", **changes))
    assert isinstance(found, Claimed)
    return found


async def steps(store: Any, own: Ownership) -> tuple[str | None, bytes | None]:
    """The recovery point, and what belongs to it."""
    record = (await store.read(own.digest)).record
    assert record is not None
    return record.recovery_point, record.recovery_data


def test_a_point_moves_from_where_it_was_and_its_data_grows(play: Callable[[Scene], None]) -> None:
    """I10, I3: what is added stands behind what is there; who saw another point, or lost the claim, adds nothing."""

    async def scene(store: Any, clock: ManualClock) -> None:
        own = (await won(store)).ownership
        await store.advance(own, None, "1 done reserve", FIRST)
        for seen in (None, "1 done", "2 open charge"):
            with pytest.raises(LeaseLostError):
                await store.advance(own, seen, "2 open charge", SECOND_ONE)
        with pytest.raises(LeaseLostError):
            await store.advance(own._replace(epoch=2), "1 done reserve", "2 open charge", SECOND_ONE)
        await store.advance(own, "1 done reserve", "2 open charge", SECOND_ONE)
        assert await steps(store, own) == ("2 open charge", FIRST + SECOND_ONE)
        clock.advance(timedelta(microseconds=LEASE))
        further = await won(store)
        assert further.previous is not None and further.previous.recovery_data == FIRST + SECOND_ONE
        with pytest.raises(LeaseLostError):
            await store.advance(own, "2 open charge", "2 done charge", THIRD)
        await store.advance(further.ownership, "2 open charge", "2 done charge", THIRD)
        assert await steps(store, own) == ("2 done charge", FIRST + SECOND_ONE + THIRD)

    play(scene)


def test_in_a_transaction_data_grows_with_the_commit(play: Callable[[Scene], None]) -> None:
    """I10, R24: what was added and not committed is not there, and is added again."""

    async def scene(store: Any, clock: ManualClock) -> None:
        if not store.transactional:
            with pytest.raises(ConfigurationError):
                store.transaction()
            return
        own = (await won(store)).ownership
        await store.advance(own, None, "1 done reserve", FIRST)
        for commits in (False, True):
            async with store.transaction() as transaction:
                await transaction.begin()
                await transaction.advance(own, "1 done reserve", "2 done pay", THIRD)
                if commits:
                    await transaction.commit()
        assert await steps(store, own) == ("2 done pay", FIRST + THIRD)

    play(scene)


def test_an_operation_that_is_let_go_on_has_the_data_it_was_given(play: Callable[[Scene], None]) -> None:
    """R26, I10: the whole of it, whatever was there; and from no point on, data begins anew."""

    async def scene(store: Any, clock: ManualClock) -> None:
        own = (await won(store)).ownership
        await store.advance(own, None, "1 open charge", SECOND_ONE)
        await store.hold(own)
        clock.advance(timedelta(microseconds=1))
        assert not await store.reopen(own, None, "1 done charge", THIRD)
        assert await store.reopen(own, "1 open charge", "1 done charge", THIRD)
        assert await steps(store, own) == ("1 done charge", THIRD)
        record = await found(store)
        assert record.recovery_data == THIRD and record.request == b"the request"
        assert record.lease_until == record.created_at, "no worker waits for a turn"
        again = (await won(store)).ownership
        await store.hold(again)
        assert await store.reopen(again, "1 done charge", None, THIRD)
        anew = (await won(store)).ownership
        await store.advance(anew, None, "1 done reserve", FIRST)
        assert await steps(store, anew) == ("1 done reserve", FIRST)

    play(scene)


async def found(store: Any) -> Record:
    """The one operation that a worker's look finds."""
    (record,) = (await store.outstanding()).records
    return cast("Record", record)


def test_a_worker_takes_over_what_it_has_seen(play: Callable[[Scene], None]) -> None:
    """R24, I1, I3: whole, with its request and its data; of two who saw the same, one."""

    async def scene(store: Any, clock: ManualClock) -> None:
        own = (await won(store)).ownership
        await store.advance(own, None, "1 done reserve", FIRST)
        clock.advance(timedelta(microseconds=LEASE))
        seen = await found(store)
        claims = [wish(effects=Effects.RESUMABLE, seen=seen) for _ in range(3)]
        told = await asyncio.gather(*(store.claim(claim) for claim in claims))
        (mine,) = (one for one in told if isinstance(one, Claimed))
        assert mine.ownership == Ownership(own.digest, mine.ownership.owner, 2)
        assert mine.previous == seen
        assert {one.verdict for one in told if isinstance(one, Existing)} == {Verdict.IN_PROGRESS}
        with pytest.raises(LeaseLostError):
            await store.advance(own, "1 done reserve", "2 done pay", THIRD)
        await store.advance(mine.ownership, "1 done reserve", "2 done pay", THIRD)
        again = next(claim for claim in claims if claim.owner == mine.ownership.owner)
        assert (await store.claim(again)).ownership == mine.ownership, "its answer was lost on the way"

    play(scene)


@pytest.mark.parametrize("change", ["renewed", "advanced", "completed", "held", "forgotten"])
def test_what_has_changed_since_it_was_seen_is_judged_anew(play: Callable[[Scene], None], change: str) -> None:
    """I3, I5, R25, I12: its owner came back, or the time has passed in which its keys are known."""

    async def scene(store: Any, clock: ManualClock) -> None:
        own = (await won(store)).ownership
        clock.advance(timedelta(microseconds=LEASE))
        seen = await found(store)
        expected = Verdict.IN_PROGRESS
        match change:
            case "renewed":
                await store.renew(own, LEASE)
            case "advanced":
                await store.advance(own, None, "1 done reserve", FIRST)
            case "completed":
                await store.complete(own, ANSWER, KEY, KEY)
                expected = Verdict.REPLAY
            case "held":
                await store.hold(own)
                expected = Verdict.UNKNOWN
            case _:
                clock.advance(timedelta(microseconds=KEY))
                expected = Verdict.UNKNOWN
        told = await store.claim(wish(effects=Effects.RESUMABLE, seen=seen))
        if change == "advanced":
            assert told.previous.recovery_data == FIRST, "taken over, from where it is by now"
        else:
            assert told.verdict is expected

    play(scene)


def test_what_has_many_steps_keeps_all_of_them(play: Callable[[Scene], None]) -> None:
    """I10: also where a database keeps long values elsewhere than short ones."""

    async def scene(store: Any, clock: ManualClock) -> None:
        own = (await won(store)).ownership
        seen, whole = None, b""
        for number in range(60):
            addition = b"\n" + bytes([65 + number % 26]) * 997
            await store.advance(own, seen, f"{number}", addition)
            seen, whole = f"{number}", whole + addition
        assert await steps(store, own) == (seen, whole)

    play(scene)
