"""The clients of the storm: each makes one key for one intent, and asks until it knows what became of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import httpx2

from twicesafe.client import Budgets, BudgetSize, Rejected, RetryPolicy, Succeeded, Work
from twicesafe.client import Intent as Sending
from twicesafe.client.httpx import asend
from twicesafe.storm.census import Ending, Told
from twicesafe.storm.http import ACCOUNT_HEADER
from twicesafe.storm.plan import Intent

PATIENT: Final = timedelta(seconds=10)
"""How long most clients wait for one answer: long enough for a server under load, even on a slow machine."""
IMPATIENT: Final = timedelta(seconds=1)
"""How long those wait that are to meet a time-out. Short, because on SQLite a slow handler keeps all others waiting."""

_POLICY: Final = RetryPolicy(
    attempts=10_000,
    in_progress=10_000,
    attempt_timeout=PATIENT,
    first_delay=timedelta(milliseconds=100),
    longest_delay=timedelta(seconds=2),
)
"""Time is the only bound: the storm asks whether it happens once, not whether clients give up in time."""

_UNBOUNDED: Final = {work: BudgetSize(full=1e9, per_success=0.0, per_second=0.0) for work in Work}
"""For the same reason: a fleet's clients would spare a server that keeps failing, and the storm could not go on."""


_POOLS: Final = 16
"""Of connections. A pool looks through all of its connections for each request, which hundreds make too many."""


class Clients:
    """All clients of one run, which send to `port`. An async context manager."""

    def __init__(self, port: int) -> None:
        self.run: Final = uuid4().hex
        """Tells this run's payments from those of another on the same database."""
        self._url = f"http://127.0.0.1:{port}/payments"
        self._intents: dict[int, Sending] = {}
        self._budgets = Budgets(_UNBOUNDED)
        unlimited = httpx2.Limits(max_connections=None)
        self._pools = [plain_client(limits=unlimited, timeout=None) for _ in range(_POOLS)]

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for pool in self._pools:
            await pool.aclose()

    def key(self, intent: Intent) -> str:
        """The key of `intent`, made when it is first asked for."""
        return self._sending(intent).key

    async def pay(self, intent: Intent, deadline: timedelta) -> Told:
        """Ask for `intent`, in as many copies as planned, until each has its answer or `deadline` is over."""
        patience = IMPATIENT if intent.impatient else PATIENT
        policy = _POLICY.but(deadline=deadline, attempt_timeout=patience)
        if intent.abandoned:
            policy = policy.but(attempts=1, in_progress=0)
        told = await asyncio.gather(*(self._ask(intent, policy) for _ in range(intent.copies)))
        knows = min(told, key=lambda one: _WORTH[one.ending])
        return Told(knows.ending, frozenset().union(*(one.payments for one in told)))

    async def ask_again(self, intent: Intent, deadline: timedelta) -> Told:
        """Ask once more what became of `intent`, in no hurry."""
        return await self._ask(intent, _POLICY.but(deadline=deadline))

    def _sending(self, intent: Intent) -> Sending:
        if intent.number not in self._intents:
            self._intents[intent.number] = Sending.new(
                "POST",
                self._url,
                json={"run": self.run, "intent": intent.number, "account": intent.account, "amount": intent.amount},
                headers={ACCOUNT_HEADER: intent.account},
            )
        return self._intents[intent.number]

    async def _ask(self, intent: Intent, policy: RetryPolicy) -> Told:
        pool = self._pools[intent.number % _POOLS]
        outcome = await asend(pool, self._sending(intent), policy=policy, budgets=self._budgets)
        if isinstance(outcome, Succeeded):
            return Told(Ending.SUCCESS, frozenset({outcome.response.json()["payment"]}))
        if isinstance(outcome, Rejected):
            return Told(Ending.REJECTED)
        conflict = outcome.response is not None and outcome.response.status_code == httpx2.codes.CONFLICT
        return Told(Ending.STUCK if conflict else Ending.NO_ANSWER)


_WORTH: Final = {ending: worth for worth, ending in enumerate(Ending)}
"""Which of several clients with one intent knows most."""


def plain_client(**options: Any) -> httpx2.AsyncClient:
    """One for this machine. It reads no certificates, which takes longer than some of a storm's processes live."""
    return httpx2.AsyncClient(trust_env=False, verify=False, **options)
