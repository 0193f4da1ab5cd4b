"""Functions and operations that are disturbed at every call to their store, on real databases."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from tests.cuts.conftest import World
from tests.cuts.disturbed import WRITES, Disturbed
from tests.cuts.market import CALLS, FIRMS, PHASES, Firm
from twicesafe.errors import AmbiguousWriteError, FailedBeforeError, OutcomeUnknownError

JOB = pytest.mark.parametrize("job", ["resumable", "transactional", "keyed", "opaque"])


def effects(world: World, job: str, order: str) -> list[int]:
    """How often each row of this order was written, and each charge of it made."""
    rows = world.rows(order)
    steps = {"resumable": PHASES, "transactional": ["only"]}.get(job, [])
    assert set(rows) <= set(steps)
    charged = {"resumable": CALLS, "transactional": []}.get(job, ["only"])
    charges = [len(world.market.provider.charges(f"{order} {what}")) for what in charged]
    return [rows.count(step) for step in steps] + charges


def receipts(world: World, job: str, order: str) -> str:
    """What whoever asked is to be told."""
    if job == "transactional":
        return "written"
    what = CALLS if job == "resumable" else ["only"]
    return " ".join(receipt for one in what for receipt in world.market.provider.charges(f"{order} {one}"))


@JOB
@pytest.mark.parametrize("way", FIRMS)
def test_whichever_answer_of_the_store_is_lost_it_happens_once(world: World, way: str, job: str) -> None:
    """B6, A1, I1, I10, R14: each write is made and its answer lost, in turn: one effect, its caller gets its result,
    and nobody is told that somebody else is running."""
    with world.firm(way) as firm:
        for number in count(1):
            order, made = f"{way}-lost-{job}-{number}", count(1)

            def lose(name: str, done: bool, made: Any = made, number: int = number) -> None:
                if done and name in WRITES and next(made) == number:
                    raise AmbiguousWriteError("the answer was lost")

            told = firm.end(firm.another(Disturbed(firm.store, lose)).jobs[job](order))
            again = firm.end(firm.jobs[job](order))
            found = effects(world, job, order)
            assert found == [1] * len(found), (number, found)
            assert told == again == receipts(world, job, order), number
            if next(made) <= number:
                break
    # A claim and the record of its result, at least.
    assert number > (10 if job == "resumable" else 2)


TEARS = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, RuntimeError]


@JOB
@pytest.mark.parametrize("way", FIRMS)
def test_torn_out_at_every_moment_it_happens_once(world: World, way: str, job: str) -> None:
    """B7, B5, R13, R16, I6: whatever ends a job, before its effect or after it, the next attempt makes it happen once,
    or is told that nobody knows, where nobody can; and nobody is told for ever that it is running."""
    with world.firm(way) as firm:
        for number in count(1):
            order, moments = f"{way}-torn-{job}-{number}", count(1)
            error = TEARS[number % len(TEARS)]

            def tear(*where: object, moments: Any = moments, number: int = number, error: Any = error) -> None:
                if next(moments) == number:
                    raise error

            # Under asyncio what ends a process ends the loop as well, wherever it is; in a thread it comes in the midst
            # of a call to the store, too.
            torn: Any = firm.another(Disturbed(firm.store, tear) if way == "blocking" else None)
            torn.at_rest = tear
            with suppress(error):
                torn.end(torn.jobs[job](order))
            world.later(timedelta(seconds=35))
            told = [ask(firm, job, order) for _ in range(2)]
            found = effects(world, job, order)
            if job == "opaque":
                assert found in ([0], [1]), (number, found)
                assert told[0] in (OutcomeUnknownError, FailedBeforeError, receipts(world, job, order)), number
            else:
                assert found == [1] * len(found), (number, found)
                assert told[0] == receipts(world, job, order), number
            assert told[0] == told[1], number
            if next(moments) <= number:
                break
    assert number > 2


def ask(firm: Firm, job: str, order: str) -> Any:
    """What a caller gets, or is told."""
    try:
        return firm.end(firm.jobs[job](order))
    except (OutcomeUnknownError, FailedBeforeError) as error:
        return type(error)


async def cancelled_at(number: int, firm: Firm, job: str, order: str) -> bool:
    """Run it, and cancel it at this moment: about a call of the store's, or in the job. Whether there was one."""
    moments = count(1)

    def meet(*where: object) -> None:
        if next(moments) == number:
            task.cancel()

    noise: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))
    disturbed: Any = firm.another(Disturbed(firm.store, meet))
    disturbed.at_rest = meet
    task = asyncio.ensure_future(disturbed.jobs[job](order))
    await asyncio.wait([task])
    assert noise == []
    if next(moments) <= number:
        return False
    # What its caller wanted no more, it need not wait for; what was done by then it may be told all the same.
    assert task.cancelled() or task.result()
    return True


@JOB
def test_cancelled_at_every_moment_it_happens_once(world: World, job: str) -> None:
    """A1, B7, R24, I6: cancelled at each moment in turn; whoever asks again makes it happen once, or is told that
    nobody knows, where nobody can."""
    seen: set[Any] = set()
    with world.firm("asyncio") as firm:
        for number in count(1):
            order = f"asyncio-cancelled-{job}-{number}"
            disturbed = firm.end(cancelled_at(number, firm, job, order))
            world.later(timedelta(seconds=35))
            try:
                told = firm.end(firm.jobs[job](order))
            except OutcomeUnknownError:
                told = None
            found = effects(world, job, order)
            if told is not None:
                assert found == [1] * len(found), (number, found)
                assert told == receipts(world, job, order), number
            else:
                assert found in ([0], [1]), (number, found)
            seen.add(told is None)
            if not disturbed:
                break
    assert number > (20 if job == "resumable" else 4)
    assert seen == ({True, False} if job == "opaque" else {False})
