"""What people reported of other implementations, tried on processes that are really killed, on real databases."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Any

import pytest

from tests.cuts.conftest import World
from tests.cuts.market import FIRMS, PHASES, Firm
from twicesafe.core.keys import scoped_key
from twicesafe.errors import CallUnknownError, InProgressError, KeyReusedError, OutcomeUnknownError

WAY = pytest.mark.parametrize("way", FIRMS)
JOURNALLED, SENT = 5, 6
"""The steps behind which the first charge is recorded as about to be sent, and made."""


def ask(firm: Firm, job: str, order: str, *arguments: Any) -> Any:
    """What a caller gets, or is told."""
    try:
        return firm.end(firm.jobs[job](order, *arguments))
    except (InProgressError, KeyReusedError, OutcomeUnknownError, CallUnknownError) as error:
        return type(error)


def kill(world: World, way: str, job: str, orders: dict[str, int]) -> None:
    assert world.killed(way, job, orders) == [signal.SIGKILL] * len(orders)


# --- functions -------------------------------------------------------------------------------------------------------


@WAY
def test_a_function_killed_in_its_transaction_happens_once(world: World, way: str) -> None:
    """A7, B5, R13, R23: SIGKILL before the row, behind it, and when all is recorded: one row, and nobody has to wait
    for a lease."""
    orders = {f"{way}-transactional-{number}": number for number in range(3)}
    kill(world, way, "transactional", orders)
    assert [world.rows(order) for order in orders] == [[], [], ["only"]]
    with world.firm(way) as firm:
        told = [ask(firm, "transactional", order) for order in orders]
    assert [world.rows(order) for order in orders] == [["only"]] * 3
    assert told == ["written"] * 3


@WAY
@pytest.mark.parametrize("job", ["keyed", "opaque"])
def test_a_function_killed_behind_its_charge_charges_once(world: World, way: str, job: str) -> None:
    """A7, B1, B5, I6, R13: while the lease lasts a retry is refused; after it keyed work is done again under the same
    key, and opaque work is unknown: never a second charge."""
    orders = {f"{way}-{job}-{number}": number for number in range(3)}
    kill(world, way, job, orders)
    provider = world.market.provider
    with world.firm(way) as firm:
        early = [ask(firm, job, order) for order in orders]
        world.later(timedelta(seconds=31))
        told = [[ask(firm, job, order) for order in orders] for _ in range(2)]
    charges = [provider.charges(f"{order} only") for order in orders]
    assert [len(made) for made in charges] == ([1, 1, 1] if job == "keyed" else [0, 1, 1])
    assert early == [InProgressError, InProgressError, *charges[2]]
    again = [receipt for (receipt,) in charges] if job == "keyed" else [OutcomeUnknownError] * 2 + charges[2]
    assert told == [again] * 2


# --- keys that are used for something else ---------------------------------------------------------------------------


@WAY
@pytest.mark.parametrize("job", ["resumable", "keyed"])
def test_another_request_under_the_key_of_a_killed_one_harms_nothing(world: World, way: str, job: str) -> None:
    """F8, I4: refused while the first runs and after it was killed, without a trace in its record; the first one goes
    on and its caller gets its receipt."""
    order = f"{way}-{job}-reused"
    kill(world, way, job, {order: SENT if job == "resumable" else 1})
    digest = scoped_key("shop", order).digest
    with world.firm(way) as firm:
        before = firm.end(firm.store.read(digest)).record
        refused = [ask(firm, job, order, 101)]
        world.later(timedelta(seconds=40))
        refused += [ask(firm, job, order, 101) for _ in range(2)]
        after = firm.end(firm.store.read(digest)).record
        done = firm.resume().done
        receipt = ask(firm, job, order)
        refused.append(ask(firm, job, order, 101))
    what = [f"{order} charge", f"{order} fee"] if job == "resumable" else [f"{order} only"]
    charges = [world.market.provider.charges(one) for one in what]
    assert [len(made) for made in charges] == [1] * len(what)
    assert world.rows(order) == (PHASES if job == "resumable" else [])
    assert refused == [KeyReusedError] * 4
    assert before == after
    assert done == (job == "resumable")
    assert receipt.split() == [made[0] for made in charges]


# --- the provider's window -------------------------------------------------------------------------------------------


@WAY
def test_within_the_window_of_its_provider_a_call_is_sent_again(world: World, way: str) -> None:
    """R25, A7: killed when it had charged; 1.6 s later, of 2, the same key is sent again, and the provider says what
    it said."""
    order, shop = f"{way}-early", world.but(window=2, lease=0.5)
    kill(shop, way, "resumable", {order: SENT})
    world.later(timedelta(seconds=1.6))
    with shop.firm(way) as firm:
        done = firm.resume().done
        receipt = ask(firm, "resumable", order)
    (charge,) = shop.market.provider.charges(f"{order} charge")
    assert shop.market.provider.asked(f"{order} charge") == ["charge"] * 2
    assert world.rows(order) == PHASES
    assert done == 1
    assert receipt.split()[0] == charge


@WAY
@pytest.mark.parametrize(("number", "sent"), [(JOURNALLED, 0), (SENT, 1)], ids=["not sent", "sent"])
def test_past_the_window_of_its_provider_a_call_is_looked_up(world: World, way: str, number: int, sent: int) -> None:
    """R25, K: the provider remembers keys for 2 s, and the worker is back after 5 s: it looks up and does not send what
    was sent; it sends what was not."""
    order, shop = f"{way}-late-{number}", world.but(window=2, lease=0.5, looks_up=True)
    kill(shop, way, "resumable", {order: number})
    world.later(timedelta(seconds=5))
    with shop.firm(way) as firm:
        done = firm.resume().done
        receipt = ask(firm, "resumable", order)
    (charge,) = shop.market.provider.charges(f"{order} charge")
    assert shop.market.provider.asked(f"{order} charge") == (["charge", "find"] if sent else ["find", "charge"])
    assert world.rows(order) == PHASES
    assert done == 1
    assert receipt.split()[0] == charge


@WAY
def test_past_the_window_of_a_provider_that_cannot_be_asked_a_call_is_held(world: World, way: str) -> None:
    """R25, I6, K: it would charge again, so nothing is sent, whoever comes: a worker, or the caller."""
    order, shop = f"{way}-held", world.but(window=2, lease=0.5)
    kill(shop, way, "resumable", {order: SENT})
    world.later(timedelta(seconds=5))
    with shop.firm(way) as firm:
        found = firm.resume()
        told = [ask(firm, "resumable", order) for _ in range(2)]
    assert len(shop.market.provider.charges(f"{order} charge")) == 1
    assert shop.market.provider.asked(f"{order} charge") == ["charge"]
    assert world.rows(order) == PHASES[:1]
    assert (found.done, found.failed, found.held) == (0, 0, 1)
    assert told == [OutcomeUnknownError] * 2
