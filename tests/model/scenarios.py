"""What is explored: who meets whom over one key, and how much may go wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from tests.model.answering import NEVER
from tests.model.attempts import Attempt, Handler, charging, inserting, renewing, streaming
from tests.model.relay_world import RelayWorld
from tests.model.relaying import standing_still
from tests.model.settling import operator
from tests.model.state import Bounds, State
from tests.model.stepwise import REMEMBERS, Stepwise
from tests.model.world import World
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects
from twicesafe.testing.exploring import Explored, explore, replay


class Scenario(NamedTuple):
    """Attempts of one key, all under one contract."""

    make: Callable[[Bounds], Any]
    bounds: Bounds
    """As far as it is explored to the end."""
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """What stands while it is."""


def _attempts(
    effects: Effects,
    handler: Handler,
    requests: str = "aa",
    *,
    operators: int = 0,
    scopes: tuple[str, str] = ("user-1", "user-1"),
    worker: bool = False,
    inserts_first: bool = False,
    late_lock: bool = False,
    remembers: timedelta | None = None,
    **policy: Any,
) -> Callable[[Bounds], World]:
    def make(bounds: Bounds) -> World:
        contract = Policy(effects=effects, **policy)
        attempts = [
            Attempt(
                number,
                contract,
                handler,
                request=request,
                scope=scopes[number == 2],
                inserts_first=inserts_first,
                worker=worker and number == 2,
            )
            for number, request in [*enumerate(requests, 1), (RETRY, requests[0])]
        ]
        *these, retry = [attempt.actor() for attempt in attempts]
        remembers_us = NEVER if remembers is None else remembers // _MICROSECOND
        these += [operator() for _ in range(operators)]
        return World(these, bounds, retry=retry, late_lock=late_lock, remembers_us=remembers_us)

    return make


def standing_still_before_it_sends(*, looks_up: bool = False, in_time: bool = True) -> Callable[[Bounds], World]:
    """Time enough that another attempt goes on, and that the other system forgets; asked instead, it knows no keys."""
    remembers = None if looks_up else REMEMBERS
    handler = Stepwise(looks_up=looks_up, remembers=remembers, in_time=in_time)
    return _attempts(RESUMABLE, handler, remembers=remembers or timedelta(0))


_MICROSECOND: Final = timedelta(microseconds=1)
RETRY: Final = 9
ANYTHING: Final = Bounds(faults=99, crashes=99, jumps=99)
BOTH: Final = Bounds(faults=1, crashes=1, jumps=2)
LESS: Final = Bounds(faults=1, crashes=1, jumps=1)
RELAYS: Final = Bounds(faults=0, crashes=1, jumps=0, switches=1)
FEW: Final = Bounds(faults=1, crashes=0, jumps=1)
OPERATORS: Final = Bounds(faults=0, crashes=1, jumps=1, switches=2)
STEPWISE: Final = Bounds(faults=1, crashes=1, jumps=1, switches=1)
STANDING_STILL: Final = Bounds(faults=0, crashes=0, jumps=2, switches=1)
THREE: Final = Bounds(faults=0, crashes=1, jumps=1, switches=2)
KEYED, OPAQUE, RESUMABLE, TRANSACTIONAL = Effects.KEYED, Effects.OPAQUE, Effects.RESUMABLE, Effects.TRANSACTIONAL

SCENARIOS: Final = {
    "keyed": Scenario(_attempts(KEYED, charging), LESS),
    "keyed, a changed request": Scenario(_attempts(KEYED, charging, "ab"), LESS),
    "keyed, over a network": Scenario(_attempts(KEYED, renewing, inserts_first=True), FEW),
    "opaque": Scenario(_attempts(OPAQUE, charging), LESS),
    "opaque, a changed request": Scenario(_attempts(OPAQUE, charging, "ab"), LESS),
    "opaque, waiting": Scenario(_attempts(OPAQUE, charging, wait=timedelta(milliseconds=60)), FEW),
    "opaque, a stream": Scenario(_attempts(OPAQUE, streaming), FEW),
    "transactional": Scenario(_attempts(TRANSACTIONAL, inserting), BOTH),
    "transactional, a changed request": Scenario(_attempts(TRANSACTIONAL, inserting, "ab"), BOTH),
    "transactional, no lock of the key": Scenario(_attempts(TRANSACTIONAL, inserting, late_lock=True), BOTH),
    "keyed, two callers": Scenario(_attempts(KEYED, charging, "aA", scopes=("user-1", "user-2")), LESS),
    "opaque, unknown on errors": Scenario(_attempts(OPAQUE, charging, unknown_on_error=True), LESS),
    "opaque, a body kept for an hour": Scenario(_attempts(OPAQUE, charging, body_retention=timedelta(hours=1)), LESS),
    "opaque, an operator": Scenario(_attempts(OPAQUE, charging, operators=1), OPERATORS),
    "resumable": Scenario(_attempts(RESUMABLE, Stepwise(looks_up=False), remembers=REMEMBERS), STEPWISE),
    "resumable, with look-ups": Scenario(
        _attempts(RESUMABLE, Stepwise(looks_up=True), remembers=REMEMBERS), STEPWISE._replace(crashes=0)
    ),
    "resumable, by a worker": Scenario(
        _attempts(RESUMABLE, Stepwise(looks_up=False), worker=True, remembers=REMEMBERS), STEPWISE
    ),
    "resumable, a process that stands still": Scenario(standing_still_before_it_sends(), STANDING_STILL),
    "resumable, standing still, with look-ups": Scenario(
        standing_still_before_it_sends(looks_up=True), STANDING_STILL._replace(crashes=1)
    ),
    "relays": Scenario(RelayWorld, STEPWISE, standing_still),
    "relays, and a handler": Scenario(partial(RelayWorld, writer=True), RELAYS, standing_still),
    "keyed, three": Scenario(_attempts(KEYED, charging, "aab"), THREE),
    "opaque, three": Scenario(_attempts(OPAQUE, charging, "aab"), THREE),
    "transactional, three": Scenario(
        _attempts(TRANSACTIONAL, inserting, "aab", late_lock=True), THREE._replace(jumps=0, switches=1)
    ),
}


def gone_through(name: str, **other: int | None) -> Explored:
    """Explore a scenario, up to its bounds or these."""
    scenario = SCENARIOS[name]
    # Millions of states that are all still needed: there is nothing to collect.
    gc.disable()
    try:
        with scenario.around():
            return explore(scenario.make(scenario.bounds._replace(**other)))
    finally:
        gc.enable()


def replayed(line: str) -> State:
    """Go the schedule of a line such as `keyed: 1 1 2 + 2`. BrokenError where something is so that must never be."""
    name, _, schedule = line.rpartition(":")
    with SCENARIOS[name].around():
        return replay(SCENARIOS[name].make(ANYTHING), schedule)
