"""What the provider will do, drawn from the storm's seed: which faults meet which charge, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.storm.plan import KILL_POINTS, Plan

CHARGES: Final = ("charge", "fee")
"""What an operation of several steps asks the provider for, each in a call of its own."""


class Wanted(NamedTuple):
    """One charge of one intent."""

    intent: int
    charge: str

    def reference(self, run: str) -> str:
        """As the provider knows it. `run` tells this storm's from another's."""
        return f"{run}/{self.intent}/{self.charge}"


ProviderPlan = Mapping[Wanted, Sequence[ProviderFault]]

_COMMON: Final = (
    (ProviderFault.DROP_AFTER, 6),
    (ProviderFault.ERROR_AFTER, 4),
    (ProviderFault.ERROR_BEFORE, 3),
    (ProviderFault.TOO_MANY, 3),
    (ProviderFault.RESET_BEFORE, 2),
    (ProviderFault.SLOW, 1),
)
"""Weights of what any charge may meet. An answer lost after the charge is the classic, so it comes most often."""

_FIRST_FAULT: Final = 0.3
_NEXT_FAULT: Final = 0.25
_INTENTS_PER_KILL: Final = 200
"""Of each of the two points at which the provider kills itself."""


def draw_faults(plan: Plan) -> ProviderPlan:
    """What the provider does in a storm of this plan, to be repeated as that is. Every fault is in it at least once.

    Attempts at which a server is to die meet none, so that they come so far.
    """
    random = Random(f"provider {plan.seed}")  # noqa: S311 - a plan is to be repeated, not kept secret
    intents = len(plan.intents)
    spared = {intent.number for intent in plan.intents if any(one.fault in KILL_POINTS for one in intent.faults)}
    meeting = [number for number in range(intents) if number not in spared] or range(intents)
    charges = [Wanted(intent, charge) for intent in meeting for charge in CHARGES]
    # An abandoned intent may never have come to a server before all is calm.
    surely = [wanted for wanted in charges if not plan.intents[wanted.intent].abandoned] or charges
    drawn: defaultdict[Wanted, list[ProviderFault]] = defaultdict(list)
    kills = [ProviderFault.KILL_BEFORE, ProviderFault.KILL_AFTER] * max(1, intents // _INTENTS_PER_KILL)
    costly = [*kills, *(fault for fault, _ in _COMMON)]
    for wanted, fault in zip(random.sample(surely, min(len(costly), len(surely))), costly, strict=False):
        drawn[wanted].append(fault)
    faults, weights = zip(*_COMMON, strict=True)
    for wanted in charges:
        chance = _FIRST_FAULT
        while random.random() < chance:
            drawn[wanted] += random.choices(faults, weights)
            chance = _NEXT_FAULT
    return dict(drawn)
