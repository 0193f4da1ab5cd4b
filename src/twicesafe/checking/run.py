"""All checks on all stores that are asked for, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from twicesafe.checking.places import BLOCKING
from twicesafe.checking.throw_away import throw_away
from twicesafe.testing import CHECKS, CheckResult, MakeStore, Outcome, acheck_store

KEYS: Final = 300
"""For which many rivals race. A slow server or an emulator wants fewer."""


@dataclass
class Standing:
    """How far it has come."""

    total: int = 0
    done: int = 0
    failed: int = 0
    store: str = "preparing"


class Checked(NamedTuple):
    """What became of it. `results` is by store: what its address begins with, and whether it was used under asyncio."""

    results: dict[str, list[CheckResult]]
    places: list[str]
    """What was made for it, and is removed again."""
    remarks: list[str]

    @property
    def passed(self) -> bool:
        """Whether every store kept every promise that it makes."""
        return all(result.passed for column in self.results.values() for result in column)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "passed": self.passed,
            "stores": {
                store: {
                    **{outcome.value.lower(): number for outcome, number in _counted(column).items()},
                    "checks": [
                        {
                            "name": one.name,
                            "cites": one.cites,
                            "outcome": one.outcome.value.lower(),
                            "reason": one.reason,
                        }
                        for one in column
                    ],
                }
                for store, column in self.results.items()
            },
            "places": self.places,
            "remarks": self.remarks,
        }


async def check_stores(
    urls: Sequence[str], standing: Standing, only: Sequence[str] = (), *, keys: int = KEYS
) -> Checked:
    """Run every check, or those named in `only`, on the stores at these addresses, each in a place of its own.

    However it ends, what was made is removed. Errors are those of throw_away.throw_away, and ValueError for a check
    that there is none of.
    """
    checked = Checked({}, [], [])
    with ExitStack() as places:
        makers: dict[str, MakeStore] = {}
        for url in urls:
            place = places.enter_context(throw_away(url))
            checked.places.append(place.what)
            checked.remarks.extend(place.remarks)
            for way, make in place.ways.items():
                makers[_column(url, way, makers)] = make
        names = [check.name for check in CHECKS if not only or check.name in only]
        standing.total = len(names) * len(makers)
        for store, make in makers.items():
            standing.store = store
            column = checked.results[store] = []
            for name in names:
                column += await acheck_store(make, only=[name], keys=keys, raise_on_failure=False)
                standing.done += 1
                standing.failed += not column[-1].passed
        standing.store = "tidying up"
    return checked


def _column(url: str, way: str, taken: dict[str, MakeStore]) -> str:
    """A short name; numbered where an address of the same kind came before."""
    name = url.partition(":")[0]
    name = name if way == BLOCKING else f"{name}, {way}"
    again = 2
    while name in taken:
        name = f"{name.partition(' #')[0]} #{again}"
        again += 1
    return name


def _counted(column: Sequence[CheckResult]) -> Counter[Outcome]:
    counted = Counter(dict.fromkeys(Outcome, 0))
    counted.update(result.outcome for result in column)
    return counted
