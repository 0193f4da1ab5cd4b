"""What befalls the events on their way to the consumer, drawn from the storm's seed: which faults meet which event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from twicesafe.storm.plan import HANDLER_KILLS, Fault, Plan, Planned

DeliveryPlan: TypeAlias = Mapping[int, Sequence[Planned]]
"""By intent, in the order in which its deliveries meet them."""

_COMMON: Final = (
    (Fault.ANSWER_DROPPED, 6),
    (Fault.HANDLER_FAILS, 4),
    (Fault.ANSWER_CUT, 2),
    (Fault.RESET_BEFORE, 2),
    (Fault.RESET_MIDWAY, 2),
    (Fault.RESET_AFTER, 2),
)
"""Weights of what any delivery may meet. An acknowledgement lost after the commit is the classic here as well."""

DELIVERY_FAULTS: Final = tuple(sorted({*(fault for fault, _ in _COMMON), Fault.ANSWER_DELAYED, *HANDLER_KILLS}))

_FIRST_FAULT: Final = 0.3
_NEXT_FAULT: Final = 0.25
_INTENTS_PER_KILL: Final = 300
"""Of each of the points at which the consumer kills itself, and of answers delayed up to the relay's time-out."""


def draw_deliveries(plan: Plan) -> DeliveryPlan:
    """To be repeated as `plan` is. Where there are enough intents every fault is in it."""
    random = Random(f"delivery {plan.seed}")  # noqa: S311 - a plan is to be repeated, not kept secret
    intents = range(len(plan.intents))
    drawn: defaultdict[int, list[Planned]] = defaultdict(list)
    costly = [*HANDLER_KILLS, Fault.ANSWER_DELAYED] * max(1, len(intents) // _INTENTS_PER_KILL)
    first = [*costly, *(fault for fault, _ in _COMMON)]
    for number, fault in zip(random.sample(intents, min(len(first), len(intents))), first, strict=False):
        drawn[number].append(Planned(fault, 0.01))
    faults, weights = zip(*_COMMON, strict=True)
    for number in intents:
        chance = _FIRST_FAULT
        while random.random() < chance:
            [fault] = random.choices(faults, weights)
            drawn[number].append(Planned(fault, random.uniform(0.0, 0.03)))
            chance = _NEXT_FAULT
    return dict(drawn)
