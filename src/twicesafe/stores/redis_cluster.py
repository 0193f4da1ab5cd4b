"""Which server of a cluster has which slot, as far as is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

SLOTS: Final = 16384

Place = tuple[str, int]


class SlotMap:
    """Learns from CLUSTER SLOTS, and from MOVED. `seeds` are asked first."""

    def __init__(self, seeds: Sequence[Place]) -> None:
        self._seeds = tuple(seeds)
        self._owners: list[Place | None] = [None] * SLOTS
        self.known = False
        """False: ask before the next command."""

    def owner(self, slot: int) -> Place | None:
        """The server that has it."""
        return self._owners[slot]

    def owners(self) -> list[Place]:
        """Every server that has slots."""
        return sorted({owner for owner in self._owners if owner is not None})

    def to_ask(self) -> Iterable[Place]:
        """Servers that may know, the best first."""
        return dict.fromkeys([*self.owners(), *self._seeds])

    def learn(self, answer: Sequence[Any], asked: Place) -> None:
        """CLUSTER SLOTS, of the server at `asked`: one that does not know its own name means that one."""
        owners: list[Place | None] = [None] * SLOTS
        for first, last, primary, *_ in answer:
            host = primary[0].decode() if primary[0] else asked[0]
            owners[first : last + 1] = [(host, primary[1])] * (last + 1 - first)
        self._owners = owners
        self.known = True

    def moved(self, slot: int, to: Place) -> None:
        """One slot has moved; where one has, others may have."""
        self._owners[slot] = to
        self.known = False
