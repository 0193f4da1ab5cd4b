"""A program that makes processes which die, by SIGKILL, at a step of a job. It is warm, so that each costs little.

It is told in lines of JSON on its standard input, and answers each by what signals ended the processes.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from typing import Any

# So that no process has to load what it needs.
import twicesafe.stores.asyncmy
import twicesafe.stores.asyncpg
import twicesafe.stores.psycopg
import twicesafe.stores.pymysql
import twicesafe.stores.sqlite  # noqa: F401
from tests.cuts.market import DEATH, FIRMS, Market
from twicesafe.core.phases import Keep
from twicesafe.resuming import AsyncSteps, Steps

AT_ONCE = 4


def count_steps() -> None:
    """Each step of an operation is one that its process may die behind, but for one that does nothing here."""
    perform, aperform = Steps._perform, AsyncSteps._perform

    def performed(steps: Any, step: Any, *others: Any) -> Any:
        answer = perform(steps, step, *others)
        if type(step) is not Keep:
            DEATH.step()
        return answer

    async def aperformed(steps: Any, step: Any, *others: Any) -> Any:
        answer = await aperform(steps, step, *others)
        if type(step) is not Keep:
            DEATH.step()
        return answer

    Steps._perform = performed  # type: ignore[method-assign]
    AsyncSteps._perform = aperformed  # type: ignore[method-assign]


def live(market: Market, way: str, job: str, order: str, number: int) -> int:
    """The life of one process. What it is killed by, or its status."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(60)
        DEATH.left = number
        firm = FIRMS[way](market)
        firm.end(firm.jobs[job](order))
        # Its caller never hears of it.
        DEATH.step()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def lives(market: Market, way: str, job: str, orders: dict[str, int]) -> list[int]:
    """What ended each of them: the number of a signal, or 0."""
    running: dict[int, str] = {}
    ended: dict[str, int] = {}

    def wait_for_one() -> None:
        pid, status = os.wait()
        ended[running.pop(pid)] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    for order, number in orders.items():
        running[live(market, way, job, order, number)] = order
        if len(running) == AT_ONCE:
            wait_for_one()
    while running:
        wait_for_one()
    return [ended[order] for order in orders]


if __name__ == "__main__":
    count_steps()
    gc.disable()
    gc.freeze()
    for line in sys.stdin:
        where, way, job, orders = json.loads(line)
        print(json.dumps(lives(Market(**where), way, job, orders)), flush=True)
