"""The retry budgets that a process shares (R39): one for each host and class of work."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

from twicesafe.core.retry_budget import DEFAULT_SIZES, Budget, BudgetSize, RetryBudget, Work

_MANY: Final = 1024
"""Hosts after which budgets that are full, and so say nothing, are forgotten."""


class Budgets:
    """Budgets by host and class of work, made when first asked for. Safe to share between threads."""

    def __init__(self, sizes: Mapping[Work, BudgetSize] = DEFAULT_SIZES) -> None:
        self._sizes = {work: size.checked() for work, size in {**DEFAULT_SIZES, **sizes}.items()}
        self._budgets: dict[tuple[str, Work], RetryBudget] = {}
        self._guard = Lock()

    def of(self, host: str, work: Work, now: float) -> Budget:
        """The budget of `host`, an address with its port."""
        with self._guard:
            budget = self._budgets.get((host, work))
            if budget is None:
                if len(self._budgets) >= _MANY:
                    self._budgets = {name: other for name, other in self._budgets.items() if not other.full(now)}
                budget = self._budgets[host, work] = RetryBudget(self._sizes[work], now)
        return _Guarded(budget, self._guard)


class _Guarded:
    __slots__ = ("_budget", "_guard")

    def __init__(self, budget: RetryBudget, guard: Lock) -> None:
        self._budget = budget
        self._guard = guard

    def take(self, cost: float, now: float) -> bool:
        with self._guard:
            return self._budget.take(cost, now)

    def success(self, now: float) -> float:
        with self._guard:
            return self._budget.success(now)

    def left(self, now: float) -> float:
        with self._guard:
            return self._budget.left(now)


OF_THIS_PROCESS: Final = Budgets()
"""What everything uses that is given no other. Two clients of one process ask one host together."""
