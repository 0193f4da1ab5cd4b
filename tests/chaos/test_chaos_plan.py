"""The lab's plans: what befalls each storm is known before anything starts, and every spell of it meets work."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from twicesafe.storm.chaos.matrix import OPERATIONS, STORES, TOGETHER, Operation, cells, control
from twicesafe.storm.chaos.plan import LONGEST_BACK, LONGEST_CUT, How, Trouble, applicable, draw
from twicesafe.storm.operation import REMEMBERS, WINDOW
from twicesafe.storm.payments import KEYED_OPERATION
from twicesafe.storm.plan import KILL_POINTS, BlowKind, Fault

SEEDS = range(15)
DAY = 86400.0
ALL = tuple(Trouble)


def test_a_seed_is_a_lab() -> None:
    """R42: the same seed gives the same storms with the same spells, another seed others."""
    first = cells(7, STORES, tuple(Operation), ALL)
    assert first == cells(7, STORES, tuple(Operation), ALL) != cells(8, STORES, tuple(Operation), ALL)
    for cell in first:
        stepwise = cell.operation is Operation.RESUMABLE
        assert draw(cell.seed, cell.troubles, stepwise=stepwise) == draw(cell.seed, cell.troubles, stepwise=stepwise)


@pytest.mark.parametrize("every", [False, True])
def test_every_store_meets_every_trouble(every: bool) -> None:
    """R42: each trouble that a store can meet comes by itself, and together with the others in each operation."""
    found = cells(3, STORES, tuple(Operation), ALL, every=every)
    for store in STORES:
        alone = {cell.troubles[0] for cell in found if cell.store == store and len(cell.troubles) == 1}
        assert alone == {trouble for trouble in Trouble if applicable(trouble, store)}
        together = [cell for cell in found if cell.store == store and cell.trouble == TOGETHER]
        assert {cell.operation for cell in together} == set(OPERATIONS[store])
        assert all(set(cell.troubles) == alone for cell in together)
    assert len(set(found)) == len(found)
    assert not any(cell.naive for cell in found)
    assert control(3).naive


def test_only_what_was_asked_for() -> None:
    """R42: fewer stores, operations and troubles make fewer storms, and a trouble that cannot be met makes none."""
    found = cells(3, ["mysql"], [Operation.KEYED], [Trouble.CUT])
    assert [(cell.store, cell.operation, cell.troubles) for cell in found] == [
        ("mysql", Operation.KEYED, (Trouble.CUT,))
    ]
    assert cells(3, ["sqlite"], tuple(Operation), [Trouble.CUT]) == []
    assert cells(3, ["redis"], [Operation.RESUMABLE], ALL) == []


@pytest.mark.parametrize("stepwise", [False, True])
def test_every_spell_meets_work(stepwise: bool) -> None:
    """R42: a spell begins when its share of the intents has begun, and the next share waits until it is over; handlers
    that take long are at work when it comes."""
    for seed in SEEDS:
        for troubles in [*((trouble,) for trouble in Trouble if trouble is not Trouble.KILLS), ALL]:
            plan, spells = draw(seed, troubles, stepwise=stepwise)
            blows = [blow for blow in plan.blows if blow.kind is BlowKind.SPELL]
            assert [blow.victim for blow in blows] == list(range(len(spells)))
            assert [blow.after for blow in plan.blows] == sorted(blow.after for blow in plan.blows)
            for earlier, later in pairwise(blows):
                assert earlier.after < earlier.before <= later.after < later.before
            assert all(blow.after < blow.before <= len(plan.intents) for blow in plan.blows)
            for blow in blows:
                share = plan.intents[blow.after - 4 : blow.after + 4]
                assert any(one.faults and one.faults[0].fault is Fault.SLOW_HANDLER for one in share)


def test_nobody_dies_where_it_was_not_asked_for() -> None:
    """R42: what is seen under one trouble is that trouble's doing."""
    for trouble in Trouble:
        plan, spells = draw(11, (trouble,), stepwise=True)
        kinds = Counter(blow.kind for blow in plan.blows)
        armed = any(planned.fault in KILL_POINTS for intent in plan.intents for planned in intent.faults)
        if trouble is Trouble.KILLS:
            assert armed and kinds[BlowKind.SIGKILL] and kinds[BlowKind.DATABASE_CRASH] and spells == ()
        else:
            assert not armed and set(kinds) == {BlowKind.SPELL}
            assert {part.trouble for spell in spells for part in spell.parts} == {trouble}
            assert not any(spell.kill or spell.crash for spell in spells)


def test_together_each_comes_once_while_servers_die() -> None:
    """R42: in pairs that the seed draws; no database has to start while its disk is full."""
    for seed in SEEDS:
        _, spells = draw(seed, ALL, stepwise=False)
        met = [part.trouble for spell in spells for part in spell.parts]
        assert sorted(met) == sorted(set(Trouble) - {Trouble.KILLS})
        assert all(spell.kill for spell in spells)
        full = [spell for spell in spells if any(part.trouble is Trouble.DISK_FULL for part in spell.parts)]
        assert not any(spell.crash for spell in full)
    assert len({tuple(draw(seed, ALL, stepwise=False)[1]) for seed in SEEDS}) == len(SEEDS)


def test_cuts_outlast_leases_and_not_what_is_promised() -> None:
    """R12, R25: one cut of each kind, of which one is longer than the lease of those who pay; none is as long as a call
    may be on its way."""
    for seed in SEEDS:
        _, spells = draw(seed, (Trouble.CUT,), stepwise=False)
        assert {spell.parts[0].how for spell in spells} == set(How)
        assert max(spell.seconds for spell in spells) == LONGEST_CUT > KEYED_OPERATION.policy.lease.total_seconds()
    assert (WINDOW - REMEMBERS).total_seconds() > LONGEST_CUT


def test_the_stores_clock_jumps_within_what_is_promised() -> None:
    """R20, I12: forward by many leases and never by a retention; back by less than a provider remembers keys longer
    than it says."""
    assert (WINDOW - REMEMBERS).total_seconds() > LONGEST_BACK
    for seed in SEEDS:
        for troubles in ((Trouble.STORE_CLOCK,), ALL):
            _, spells = draw(seed, troubles, stepwise=True)
            jumps = [part.strength for spell in spells for part in spell.parts if part.trouble is Trouble.STORE_CLOCK]
            assert jumps
            assert sum(jump for jump in jumps if jump > 0) < DAY / 2
            assert sum(-jump for jump in jumps if jump < 0) <= LONGEST_BACK


def test_the_retention_of_the_storms_payments_is_a_day() -> None:
    """R20: which the jumps of clocks are within."""
    assert KEYED_OPERATION.policy.key_retention.total_seconds() >= DAY
