"""Many clients of one server, in simulated time: the client's own rules and budgets, no sockets and no waiting."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, NamedTuple

from twicesafe.client import Budgets, Contract, FailureKind, Outcome, RetryPolicy, Sent, Work
from twicesafe.core.attempts import Answered, Call, Failed, Send, attempts
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_budget import Budget

LATENCY = 0.01
"""Seconds from a client to the server and back."""

Told = Callable[["Answered[None] | Failed[None] | float"], None]
"""Who waits for an attempt to end, or for time to pass."""


class World:
    """Time, and what happens in it. Everything that is drawn comes from one seed."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), happens))

    def run(self) -> None:
        """Until nothing more happens."""
        while self._agenda:
            self.now, _, happens = heapq.heappop(self._agenda)
            happens()

    def answered(self, status: int, headers: HeaderLines = ()) -> Answered[None]:
        return Answered(None, status, headers, None, self.now, self.random.random(), 0.0)

    def failed(self, kind: FailureKind, sent: Sent) -> Failed[None]:
        return Failed(OSError(kind), kind, sent, self.now, self.random.random())


class Server:
    """Counts the attempts that reach it, and when. What becomes of them is `_meet`'s to say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.arrivals: list[float] = []

    def ask(self, timeout: float, told: Told) -> None:
        """An attempt, which is given up after `timeout` seconds."""
        self.arrivals.append(self.world.now)
        self._meet(timeout, told)

    def _meet(self, timeout: float, told: Told) -> None:
        raise NotImplementedError

    def answer(self, told: Told, status: int, headers: HeaderLines = ()) -> None:
        self.world.at(self.world.now + LATENCY, lambda: told(self.world.answered(status, headers)))


class DownFor(Server):
    """Answers 503 to everything, with these headers, for so many seconds, and then 201."""

    def __init__(self, world: World, seconds: float, headers: HeaderLines) -> None:
        super().__init__(world)
        self._until = seconds
        self._headers = headers

    def _meet(self, timeout: float, told: Told) -> None:
        if self.world.now < self._until:
            self.answer(told, 503, self._headers)
        else:
            self.answer(told, 201)


class Shedding(Server):
    """Does `rate` requests a second and answers 503 to whatever is above that."""

    def __init__(self, world: World, rate: float, headers: HeaderLines) -> None:
        super().__init__(world)
        self._rate = rate
        self._headers = headers
        self._free, self._then = 0.0, 0.0

    def _meet(self, timeout: float, told: Told) -> None:
        now = self.world.now
        self._free = min(self._rate / 10, self._free + (now - self._then) * self._rate)
        self._then = now
        if self._free >= 1:
            self._free -= 1
            self.answer(told, 201)
        else:
            self.answer(told, 503, self._headers)


class Queueing(Server):
    """Does `rate` requests a second, in the order they came, and also those whose clients have long gone."""

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world)
        self._each = 1 / rate
        self._busy_until = 0.0

    def _meet(self, timeout: float, told: Told) -> None:
        world = self.world
        self._busy_until = max(self._busy_until, world.now) + self._each
        if self._busy_until + LATENCY - world.now <= timeout:
            world.at(self._busy_until + LATENCY, lambda: told(world.answered(201)))
        else:
            world.at(world.now + timeout, lambda: told(world.failed(FailureKind.TIMEOUT, Sent.YES)))


class Endless:
    """No budget at all, for comparison."""

    def take(self, cost: float, now: float) -> bool:
        return True

    def success(self, now: float) -> float:
        return 0.0

    def left(self, now: float) -> float:
        return 0.0


class Process(NamedTuple):
    """A client's process: what it sends shares a budget."""

    server: Server
    policy: RetryPolicy
    budgets: Budgets | None
    outcomes: list[Outcome[None]]

    def send(self) -> None:
        """One operation, from now on."""
        world, policy = self.server.world, self.policy
        budget: Budget = Endless()
        if self.budgets is not None:
            budget = self.budgets.of("pay.example:443", Work.INTERACTIVE)
        call = Call(Contract.KEYED, "k", policy, world.now + policy.deadline_s)
        decisions: Any = attempts(call, budget, world.now, [])

        def go_on(step: Any) -> None:
            if isinstance(step, Send):
                self.server.ask(step.timeout, told)
            else:
                world.at(world.now + step.seconds, lambda: told(world.now))

        def told(event: Any) -> None:
            try:
                step = decisions.send(event)
            except StopIteration as end:
                self.outcomes.append(end.value)
            else:
                go_on(step)

        go_on(next(decisions))


def busy(server: Server, policy: RetryPolicy, *, processes: int, rate: float, seconds: float, budgets: bool) -> int:
    """So many processes, each with `rate` new operations a second on average. Returns how many there were in all."""
    world, operations = server.world, 0
    for _ in range(processes):
        process = Process(server, policy, Budgets() if budgets else None, [])
        when = world.random.expovariate(rate)
        while when < seconds:
            world.at(when, process.send)
            operations += 1
            when += world.random.expovariate(rate)
    world.run()
    return operations


def fullest(times: list[float], window: float) -> int:
    """The most of `times` that lie in one window of so many seconds, wherever it begins."""
    ordered = sorted(times)
    most = first = 0
    for last, time in enumerate(ordered):
        while time - ordered[first] >= window:
            first += 1
        most = max(most, last - first + 1)
    return most
