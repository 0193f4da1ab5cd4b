"""Which storms the lab runs, drawn from its seed: what is not in one draw is in another's."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from random import Random
from typing import Any, Final, NamedTuple

from twicesafe.storm.chaos.plan import Trouble, applicable


class Operation(StrEnum):
    """What a payment is declared to be."""

    TRANSACTIONAL = "transactional"
    KEYED = "keyed"
    RESUMABLE = "resumable"


STORES: Final = ("sqlite", "postgresql", "mysql", "redis")
OPERATIONS: Final = {
    "sqlite": tuple(Operation),
    "postgresql": tuple(Operation),
    "mysql": tuple(Operation),
    "redis": (Operation.KEYED,),
}
"""Redis shares no transaction with effects, and keeps no recovery points."""
TOGETHER: Final = "together"
"""All that were asked for in one storm."""


class Cell(NamedTuple):
    """One storm. `naive`: without twicesafe, to see that it can fail."""

    store: str
    operation: Operation
    troubles: tuple[Trouble, ...]
    seed: int
    naive: bool = False

    @property
    def trouble(self) -> str:
        """In a word."""
        if self.naive:
            return "kills, naive"
        return str(self.troubles[0]) if len(self.troubles) == 1 else TOGETHER

    def as_dict(self) -> dict[str, Any]:
        """For its process."""
        return self._asdict()

    @classmethod
    def of(cls, told: dict[str, Any]) -> Cell:
        """In its process."""
        return cls(
            told["store"],
            Operation(told["operation"]),
            tuple(Trouble(name) for name in told["troubles"]),
            told["seed"],
            told["naive"],
        )


def cells(
    seed: int,
    stores: Collection[str],
    operations: Collection[Operation],
    troubles: Collection[Trouble],
    *,
    every: bool = False,
) -> list[Cell]:
    """Each store meets each trouble by itself, in one of its operations or in `every` one; and each operation of each
    store meets all of them together, where there are several."""
    random = Random(seed)  # noqa: S311 - to be repeated, not kept secret
    found = []
    for store in STORES:
        possible = [operation for operation in OPERATIONS[store] if operation in operations]
        if store not in stores or not possible:
            continue
        alone = [trouble for trouble in Trouble if trouble in troubles and applicable(trouble, store)]
        turns = random.sample(possible, len(possible))
        for index, trouble in enumerate(alone):
            met_in = possible if every else [turns[index % len(turns)]]
            found += [Cell(store, operation, (trouble,), random.randrange(1_000_000)) for operation in met_in]
        if len(alone) > 1:
            found += [Cell(store, operation, tuple(alone), random.randrange(1_000_000)) for operation in possible]
    return found


def control(seed: int) -> Cell:
    """The storm that has to fail."""
    return Cell("sqlite", Operation.TRANSACTIONAL, (Trouble.KILLS,), seed, naive=True)
