"""What a process shares about a host (R39): a retry budget for each class of work, and perhaps a circuit breaker."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final, TypeAlias

from twicesafe.core.circuits import Breaker, Circuit
from twicesafe.core.retry_budget import DEFAULT_SIZES, Budget, BudgetSize, RetryBudget, Work

_MANY: Final = 1024
"""Hosts after which budgets that are full, and so say nothing, are forgotten."""


_Name: TypeAlias = tuple[str, Work]


class Budgets:
    """Budgets by host and class of work, full until something is taken of them. Safe to share between threads.

    `breaker` gives the circuit breaker of a host, by its address: a context manager of whatever library you use. It is
    entered before each attempt, and left with an exception after one that failed. Where entering raises, the call ends.
    """

    def __init__(self, sizes: Mapping[Work, BudgetSize] = DEFAULT_SIZES, *, breaker: Breaker | None = None) -> None:
        self._breaker = breaker
        self._sizes = {work: size.checked() for work, size in {**DEFAULT_SIZES, **sizes}.items()}
        self.spent: dict[_Name, RetryBudget] = {}
        """Those of which something was taken of late. Empty as long as all goes well, which is quickly seen."""
        self._guard = Lock()

    def of(self, host: str, work: Work) -> Budget:
        """The budget of `host`, an address with its port."""
        return _Shared(self, (host, work))

    def take(self, name: _Name, cost: float, now: float) -> bool:
        """Pay for one retry, where that can be afforded."""
        with self._guard:
            budget = self.spent.get(name)
            if budget is None:
                if len(self.spent) >= _MANY:
                    self.spent = {other: kept for other, kept in self.spent.items() if not kept.full(now)}
                budget = self.spent[name] = self.unspent(name[1], now)
            return budget.take(cost, now)

    def success(self, name: _Name, now: float) -> float:
        """Pay something back. A budget that is full again says nothing, and is forgotten."""
        with self._guard:
            budget = self.spent.get(name)
            if budget is None:
                return self._sizes[name[1]].full
            left = budget.success(now)
            if budget.full(now):
                del self.spent[name]
            return left

    def left(self, name: _Name, now: float) -> float:
        """What could be paid."""
        with self._guard:
            budget = self.spent.get(name)
            return self._sizes[name[1]].full if budget is None else budget.left(now)

    @property
    def breaks(self) -> bool:
        """Whether hosts have circuit breakers."""
        return self._breaker is not None

    def unspent(self, work: Work, now: float) -> RetryBudget:
        """A budget as it is while no host has needed a retry."""
        return RetryBudget(self._sizes[work], now)

    def circuit_of(self, host: str) -> Circuit | None:
        """The circuit breaker of `host`, for one operation; None where there is none."""
        return None if self._breaker is None else Circuit(self._breaker, host)


class _Shared:
    """One of the budgets, as one operation sees it."""

    __slots__ = ("_budgets", "_name")

    def __init__(self, budgets: Budgets, name: _Name) -> None:
        self._budgets = budgets
        self._name = name

    def take(self, cost: float, now: float) -> bool:
        return self._budgets.take(self._name, cost, now)

    def success(self, now: float) -> float:
        return self._budgets.success(self._name, now)

    def left(self, now: float) -> float:
        return self._budgets.left(self._name, now)


OF_THIS_PROCESS: Final = Budgets()
"""What everything uses that is given no other. Two clients of one process ask one host together."""
