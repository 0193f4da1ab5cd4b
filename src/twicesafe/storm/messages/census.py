"""What became of the messages: what was committed against what arrived, and what that did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from twicesafe.storm.messages.books import Sent


class Findings(NamedTuple):
    """Counts. All but the first three are 0 where all is well, and there are as many effects as messages."""

    messages: int
    deliveries: int
    duplicates: int
    """Deliveries beyond a message's first."""
    effects: int
    out_of_order: int
    """First deliveries that came after one of a later message of their aggregate."""
    lost: int
    """Messages of committed transactions that were not delivered, or had no effect."""
    phantoms: int
    """Messages delivered that no committed transaction wrote."""
    repeated: int
    """Effects beyond a message's first."""

    @property
    def clean(self) -> bool:
        """Every message delivered, in order, with exactly one effect."""
        return self.effects == self.messages and not (self.out_of_order or self.lost or self.phantoms or self.repeated)


def take(sent: Sequence[Sent], deliveries: Sequence[str], effects: Sequence[str]) -> Findings:
    """`deliveries` and `effects` are messages' ids, the former in the order in which they were handled."""
    known = {one.message: one for one in sent}
    had = Counter(effects)
    highest: dict[str, int] = {}
    out_of_order = 0
    firsts = dict.fromkeys(deliveries)
    for one in (known[message] for message in firsts if message in known):
        out_of_order += one.place < highest.get(one.aggregate, 0)
        highest[one.aggregate] = max(one.place, highest.get(one.aggregate, 0))
    return Findings(
        messages=len(sent),
        deliveries=len(deliveries),
        duplicates=len(deliveries) - len(firsts),
        effects=len(effects),
        out_of_order=out_of_order,
        lost=sum(1 for message in known if message not in firsts or message not in had),
        phantoms=sum(1 for message in {**firsts, **had} if message not in known),
        repeated=len(effects) - len(had),
    )
