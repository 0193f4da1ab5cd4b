"""The plan: what will break is known before anything does."""

from __future__ import annotations

from collections import Counter

import pytest

from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.storm.delivery_plan import DELIVERY_FAULTS, draw_deliveries
from twicesafe.storm.plan import (
    BESIDE,
    CALL_KILLS,
    DELIVERY_ONLY,
    KILL_POINTS,
    TIMEOUTS,
    WITH_OUTBOX,
    BlowKind,
    Fault,
    Intent,
    Plan,
    draw,
)
from twicesafe.storm.provider_plan import CHARGES, Wanted, draw_faults

SIZES = (1, 2, 7, 40, 300, 2000)


def faults_of(plan: Plan) -> Counter[Fault]:
    return Counter(planned.fault for intent in plan.intents for planned in intent.faults)


def armed(intent: Intent) -> bool:
    return any(planned.fault in KILL_POINTS for planned in intent.faults)


@pytest.mark.parametrize("intents", SIZES)
def test_a_seed_is_a_plan(intents: int) -> None:
    """R42: the same seed and size give the same plan, another seed another one."""
    assert draw(7, intents) == draw(7, intents)
    assert draw(7, intents) != draw(8, intents)
    assert draw(7, intents, stepwise=True) == draw(7, intents, stepwise=True)


@pytest.mark.parametrize("seed", range(20))
def test_every_fault_is_in_it(seed: int) -> None:
    """R42: a storm of the usual size meets every kind of fault, whatever its seed."""
    plan = draw(seed, 300)
    assert set(faults_of(plan)) == set(Fault) - {*CALL_KILLS, *DELIVERY_ONLY}
    assert {blow.kind for blow in plan.blows} == set(BlowKind) - {*BESIDE, *WITH_OUTBOX, BlowKind.SPELL}
    assert any(intent.copies > 1 for intent in plan.intents)
    assert not any(intent.abandoned for intent in plan.intents)


@pytest.mark.parametrize("seed", range(20))
def test_an_operation_of_several_steps_meets_more(seed: int) -> None:
    """R42: servers die around calls too, workers and the provider are killed, and some operations are left alone."""
    plan = draw(seed, 300, stepwise=True)
    assert set(faults_of(plan)) == set(Fault) - set(DELIVERY_ONLY)
    blows = Counter(blow.kind for blow in plan.blows)
    assert set(blows) == set(BlowKind) - {*WITH_OUTBOX, BlowKind.SPELL}
    assert min(blows[kind] for kind in BESIDE) >= 2
    left = [intent for intent in plan.intents if intent.abandoned]
    assert left
    assert all(intent.copies == 1 and not armed(intent) for intent in left)


@pytest.mark.parametrize("intents", [40, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_the_provider_is_part_of_the_plan(seed: int, intents: int) -> None:
    """R42: the same seed and size give the same faults of the provider; each kind is among them, at both calls."""
    storm = draw(seed, intents, stepwise=True)
    plan = draw_faults(storm)
    assert plan == draw_faults(storm)
    assert plan != draw_faults(draw(seed + 1, intents, stepwise=True))
    assert {fault for faults in plan.values() for fault in faults} == set(ProviderFault)
    assert {wanted.charge for wanted in plan} == set(CHARGES)
    assert not any(armed(storm.intents[wanted.intent]) for wanted in plan)
    assert len({wanted.reference("run") for wanted in plan}) == len(plan)
    assert Wanted(7, "fee").reference("run") == "run/7/fee"


@pytest.mark.parametrize("intents", SIZES)
def test_five_servers_are_killed_from_outside_at_least(intents: int) -> None:
    """R42: five SIGKILLs are in every plan, besides those that armed servers give themselves."""
    plan = draw(7, intents)
    assert Counter(blow.kind for blow in plan.blows)[BlowKind.SIGKILL] >= 5


@pytest.mark.parametrize("intents", [40, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_deliveries_are_part_of_the_plan(seed: int, intents: int) -> None:
    """R42: the same seed and size give the same faults of deliveries, each kind among them; relays and the consumer are
    killed besides, and what befalls the rest is as it was."""
    storm = draw(seed, intents, with_outbox=True)
    plan = draw_deliveries(storm)
    assert plan == draw_deliveries(draw(seed, intents, with_outbox=True))
    assert plan != draw_deliveries(draw(seed + 1, intents, with_outbox=True))
    assert {planned.fault for faults in plan.values() for planned in faults} == set(DELIVERY_FAULTS)
    blows = Counter(blow.kind for blow in storm.blows)
    assert min(blows[kind] for kind in WITH_OUTBOX) >= 2
    assert storm.intents == draw(seed, intents).intents


@pytest.mark.parametrize("intents", SIZES)
def test_blows_fall_while_there_is_work(intents: int) -> None:
    """R42: each blow falls when enough intents are done, and before one that waits for it: never after the last."""
    for stepwise in (False, True):
        blows = draw(7, intents, stepwise=stepwise).blows
        for blow in blows:
            assert 0 <= blow.after <= blow.before < intents
        assert [blow.before for blow in blows] == sorted(blow.before for blow in blows)


def test_an_intent_that_kills_its_server_goes_alone_and_first() -> None:
    """R42: no parallel copy can complete an intent before the attempt that is to die under way."""
    deadly = [intent for intent in draw(7, 2000).intents if armed(intent)]
    assert len(deadly) >= 6
    assert all(intent.copies == 1 and intent.faults[0].fault in KILL_POINTS for intent in deadly)


def test_whoever_is_to_meet_a_time_out_is_impatient() -> None:
    """R42: time-outs are met by clients that wait little, and by nobody else, so that they do not hold up the rest."""
    for intent in draw(7, 300).intents:
        assert intent.impatient == any(planned.fault in TIMEOUTS for planned in intent.faults)
