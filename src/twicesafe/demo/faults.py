"""What may go wrong with a payment, armed in advance for one cart and struck once in each lane."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from twicesafe.demo.lanes import Lane


class Fault(StrEnum):
    """What breaks the world outside of the browser: switches on the page, and three that only a check throws."""

    SLOW = "slow"
    """The provider takes longer than the page is willing to wait."""
    KILL = "kill"
    """The server process is killed between the charge and the answer."""
    LOSE = "lose"
    """The answer is lost on its way back, after the charge."""
    BUSY = "busy"
    """The service says 429 before it has done anything."""
    FAIL = "fail"
    """The service says 500 after it has written the charge."""
    HOLD = "hold"
    """The provider does not answer before it is told to."""


MOST_ARMED: Final = 1000
"""Carts that nobody pays are forgotten after this many others."""


class ArmedFaults:
    """Which faults still have to strike. A cart is named by who shops and by the key made with it."""

    def __init__(self) -> None:
        self._armed: dict[tuple[str, str], dict[Lane, set[Fault]]] = {}

    def arm(self, shopper: str, key: str, faults: Iterable[Fault]) -> None:
        """Let each of `faults` strike once in each lane. Whatever was armed for this cart before is forgotten."""
        wanted = set(faults)
        self._armed.pop((shopper, key), None)
        self._armed[shopper, key] = {lane: set(wanted) for lane in Lane}
        while len(self._armed) > MOST_ARMED:
            del self._armed[next(iter(self._armed))]

    def strike(self, lane: Lane, shopper: str, key: str) -> frozenset[Fault]:
        """The faults of the request that is passing now.

        An answer can be lost in one way only, and one that comes too late is lost already. So the server is killed
        under the first answer, and the network loses the first one that would have reached the page.
        """
        left = self._armed.get((shopper, key), {}).get(lane)
        if not left:
            return frozenset()
        first = left & {Fault.SLOW, Fault.KILL}
        struck = frozenset(first or left)
        left -= struck
        return struck
