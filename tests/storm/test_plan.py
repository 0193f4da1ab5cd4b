"""The plan: what will break is known before anything does."""

from __future__ import annotations

from collections import Counter

import pytest

from twicesafe.storm.plan import KILL_POINTS, TIMEOUTS, BlowKind, Fault, Plan, draw

SIZES = (1, 2, 7, 40, 300, 2000)


def faults_of(plan: Plan) -> Counter[Fault]:
    return Counter(planned.fault for intent in plan.intents for planned in intent.faults)


@pytest.mark.parametrize("intents", SIZES)
def test_a_seed_is_a_plan(intents: int) -> None:
    """R42: the same seed and size give the same plan, another seed another one."""
    assert draw(7, intents) == draw(7, intents)
    assert draw(7, intents) != draw(8, intents)


@pytest.mark.parametrize("seed", range(20))
def test_every_fault_is_in_it(seed: int) -> None:
    """R42: a storm of the usual size meets every kind of fault, whatever its seed."""
    plan = draw(seed, 300)
    assert set(faults_of(plan)) == set(Fault)
    assert {blow.kind for blow in plan.blows} == set(BlowKind)
    assert any(intent.copies > 1 for intent in plan.intents)


@pytest.mark.parametrize("intents", SIZES)
def test_five_servers_are_killed_from_outside_at_least(intents: int) -> None:
    """R42: five SIGKILLs are in every plan, besides those that armed servers give themselves."""
    plan = draw(7, intents)
    assert Counter(blow.kind for blow in plan.blows)[BlowKind.SIGKILL] >= 5


@pytest.mark.parametrize("intents", SIZES)
def test_blows_fall_while_there_is_work(intents: int) -> None:
    """R42: each blow falls when enough intents are done, and before one that waits for it: never after the last."""
    blows = draw(7, intents).blows
    for blow in blows:
        assert 0 <= blow.after <= blow.before < intents
    assert [blow.before for blow in blows] == sorted(blow.before for blow in blows)


def test_an_intent_that_kills_its_server_goes_alone_and_first() -> None:
    """R42: no parallel copy can complete an intent before the attempt that is to die under way."""
    armed = [
        intent for intent in draw(7, 2000).intents if any(planned.fault in KILL_POINTS for planned in intent.faults)
    ]
    assert len(armed) >= 6
    assert all(intent.copies == 1 and intent.faults[0].fault in KILL_POINTS for intent in armed)


def test_whoever_is_to_meet_a_time_out_is_impatient() -> None:
    """R42: time-outs are met by clients that wait little, and by nobody else, so that they do not hold up the rest."""
    for intent in draw(7, 300).intents:
        assert intent.impatient == any(planned.fault in TIMEOUTS for planned in intent.faults)
