"""The result is lost on its way: clients hang up, tasks are cancelled, sockets break, servers shut down."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Failing, Rig, settled
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.stores.memory import AsyncMemoryStore

LEASE = timedelta(seconds=30)


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_client_that_hangs_up_changes_nothing():
    """A1a, R14: the client leaves while the handler works; the work is finished and recorded, the retry replays it."""

    async def trial():
        working, go = asyncio.Event(), asyncio.Event()

        async def after():
            working.set()
            await go.wait()

        rig = Rig(probe=Probe(after=after))
        wire = Wire(rig.safe).start()
        await working.wait()
        wire.hang_up()
        go.set()
        await wire.end()
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, True)

    run(trial())


@pytest.mark.parametrize("effects", [Effects.OPAQUE, Effects.KEYED])
def test_cancelling_the_request_at_every_await_never_doubles_its_effect(effects):
    """A1c, R14: cancelled at its n-th turn for every n; effects never exceed 1, a retry makes it 1."""

    async def one(turns: int) -> bool:
        async def pause():
            await asyncio.sleep(0)

        noise: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        rig = Rig(Policy(effects=effects), Probe(before=pause, after=pause))
        failing = Failing(rig.store)
        for method in ("claim", "complete"):
            failing.before[method] = pause
        rig.safe._shared.store = failing
        wire = Wire(rig.safe).start()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert wire.task is not None
        over = wire.task.done()
        wire.task.cancel()
        await wire.end()
        await settled(rig)
        again = await post(rig.safe)
        assert rig.effects == 1, turns
        assert again.status == 201, turns
        assert not noise, noise
        return over

    async def trial():
        turns = 0
        while not await one(turns):
            turns += 1
            assert turns < 100
        assert turns > 4

    run(trial())


def test_what_a_request_raises_as_it_is_cancelled_is_told_once():
    """A1c: cancelled at its n-th turn for every n, what the handler raises reaches the caller or the loop's handler."""

    async def one(turns: int) -> bool:
        async def pause():
            await asyncio.sleep(0)

        told: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        failure = ValueError("no such thing")
        rig = Rig(probe=Probe(before=pause, raise_after=failure))
        wire = Wire(rig.safe).start()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert wire.task is not None
        over = wire.task.done()
        wire.task.cancel()
        reply = await wire.end()
        await settled(rig)
        await asyncio.sleep(0)
        if rig.effects:
            errors = [context["exception"] for context in told if context["message"].startswith("a request failed")]
            assert len(told) == len(errors), told
            assert [*errors, reply.raised].count(failure) == 1, turns
        return over

    async def trial():
        turns = 0
        while not await one(turns):
            turns += 1
            assert turns < 100
        assert turns > 2

    run(trial())


def test_a_hang_up_while_the_answer_is_being_recorded_changes_nothing():
    """A1b, I11: the client leaves while a slow store records; nothing was sent before it was recorded."""

    async def trial():
        recording, go = asyncio.Event(), asyncio.Event()

        async def slow():
            recording.set()
            await go.wait()

        rig = Rig()
        failing = Failing(rig.store)
        failing.before["complete"] = slow
        rig.safe._shared.store = failing
        wire = Wire(rig.safe).start()
        await recording.wait()
        assert wire.reply.messages == []
        wire.hang_up()
        wire.task.cancel()
        await wire.end()
        go.set()
        await settled(rig)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_a_duplicate_that_comes_while_the_first_runs_is_told_to_wait():
    """A7, R11, R21: the retry is refused with 409 and an honest Retry-After; afterwards it replays."""

    async def trial():
        working, go = asyncio.Event(), asyncio.Event()

        async def after():
            working.set()
            await go.wait()

        rig = Rig(probe=Probe(after=after))
        wire = Wire(rig.safe).start()
        await working.wait()
        early = await post(rig.safe)
        assert rig.effects == 1
        assert (early.status, early.kind) == (409, "in-progress")
        assert early.problem["retryable"] is True and early.problem["safe_new_key"] is False
        assert early.header(b"retry-after") == b"1"
        go.set()
        first = await wire.end()
        late = await post(rig.safe)
        assert rig.effects == 1
        assert first.status == 201
        assert (late.status, late.replayed) == (201, True)

    run(trial())


def test_a_duplicate_may_wait_for_the_first_instead():
    """R11: with `wait`, a duplicate rereads until the first is done and then replays."""

    async def trial():
        working, go = asyncio.Event(), asyncio.Event()

        async def after():
            working.set()
            await go.wait()

        rig = Rig(Policy(wait=timedelta(seconds=20)), Probe(after=after))
        first = Wire(rig.safe).start()
        await working.wait()
        second = Wire(rig.safe).start()
        await asyncio.sleep(0)
        go.set()
        replies = [await first.end(), await second.end()]
        assert rig.effects == 1
        assert [reply.status for reply in replies] == [201, 201]
        assert [reply.replayed for reply in replies] == [False, True]

    run(trial())


class Telling(AsyncMemoryStore):
    """Tells those who wait when a record is completed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()
        self.asked: list[tuple[bytes, int]] = []

    async def settled(self, digest, within_us):
        self.asked.append((digest, within_us))
        await self.changed.wait()

    async def complete(self, *args, **how):
        await super().complete(*args, **how)
        self.changed.set()


def test_a_duplicate_is_woken_by_a_store_that_can_tell():
    """R11: where the store tells, a duplicate sleeps until the first is done, by no clock."""

    async def trial():
        go = asyncio.Event()
        store = Telling()
        rig = Rig(Policy(wait=timedelta(seconds=20)), Probe(after=go.wait), store=store)
        first = Wire(rig.safe).start()
        for _ in range(5):
            await asyncio.sleep(0)
        others = [Wire(rig.safe).start() for _ in range(10)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert [within for _, within in store.asked] == [20_000_000] * 10
        go.set()
        replies = [await wire.end() for wire in (first, *others)]
        assert rig.effects == 1
        assert [(reply.status, reply.replayed) for reply in replies] == [(201, False)] + [(201, True)] * 10
        assert len(store.asked) == 10

    run(trial())


def test_fifty_at_once_run_once_and_nobody_gets_a_server_error():
    """C1, R10: 50 concurrent identical requests: one effect, everybody else a replay or 409, no 5xx."""

    async def trial():
        go = asyncio.Event()
        rig = Rig(probe=Probe(after=go.wait))
        wires = [Wire(rig.safe).start() for _ in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        go.set()
        replies = [await wire.end() for wire in wires]
        assert rig.effects == 1
        assert sorted({reply.status for reply in replies}) == [201, 409]
        assert sum(reply.status == 201 for reply in replies) == 1

    run(trial())


def test_a_send_that_fails_changes_nothing():
    """K, R14: the socket breaks while the answer is sent; it was recorded before, the retry replays it."""

    async def trial():
        def broken(message):
            raise OSError("broken pipe")

        rig = Rig()
        await post(rig.safe, on_send=broken)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_the_record_is_durable_before_the_first_byte_leaves():
    """I11: at the moment the first byte of the answer reaches the server, the store already has it."""

    async def trial():
        rig = Rig()
        recorded = []
        failing = Failing(rig.store)

        async def note():
            recorded.append("asked")

        failing.before["complete"] = note
        rig.safe._shared.store = failing
        await post(rig.safe, on_send=lambda message: recorded.append(message["type"]))
        assert rig.effects == 1
        assert recorded == ["asked", "http.response.start", "http.response.body"]

    run(trial())


def test_work_whose_client_is_gone_is_waited_for_on_shutdown():
    """R14: on lifespan.shutdown the shell drains what still runs before the application is told."""

    async def trial():
        inside, go = asyncio.Event(), asyncio.Event()

        async def slow():
            inside.set()
            await go.wait()

        rig = Rig(probe=Probe(after=slow))
        wire = Wire(rig.safe).start()
        await inside.wait()
        wire.task.cancel()
        await wire.end()
        told: list[str] = []

        async def app(scope, receive, send):
            told.append((await receive())["type"])
            assert rig.effects == 1
            assert not rig.safe._shared.running

        async def receive():
            return {"type": "lifespan.shutdown"}

        rig.safe.app = app
        shutdown = asyncio.ensure_future(rig.safe({"type": "lifespan"}, receive, None))
        await asyncio.sleep(0)
        assert told == []
        go.set()
        await shutdown
        assert told == ["lifespan.shutdown"]

    run(trial())
