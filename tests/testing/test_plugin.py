"""The fixtures, as a user's pytest finds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APP = """
import asyncio
from tests.testing.shops import Shop
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder for a user's tests, which run in a process of their own: in this one, what they import and nobody had
    before would be imported twice, and its errors would be of two kinds."""
    pytester.makeini(
        f"[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider -p no:xdist -p no:sybil\npythonpath = {ROOT}"
    )
    return pytester


def test_the_fixtures_pass_for_a_safe_application(run: pytest.Pytester) -> None:
    """R42: with nothing but fixtures, a blocking and an asynchronous test of a safe application pass."""
    run.makepyfile(
        APP
        + """
def test_blocking(idempotent_client, assert_one_effect):
    shop = Shop()
    client = idempotent_client(shop.protected())
    with assert_one_effect(shop.count):
        client.twice("/charges", json={"cents": 500})
    with assert_one_effect(shop.count):
        client.lost_answer("/charges", json={"cents": 500})

def test_asynchronous(async_idempotent_client, assert_one_effect):
    async def trial():
        shop = Shop()
        async with async_idempotent_client(shop.protected()) as client, assert_one_effect(shop.acount):
            await client.at_once(5, "/charges", json={"cents": 500})
    asyncio.run(trial())
"""
    )
    run.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_message_is_what_pytest_shows(run: pytest.Pytester) -> None:
    """R42: a failing test shows which intent, how many effects, and which answers."""
    run.makepyfile(
        APP
        + """
def test_it(idempotent_client, assert_one_effect):
    shop = Shop()
    client = idempotent_client(shop)
    with assert_one_effect(shop.count):
        client.once("/charges", json={"cents": 1}, key="k-1")
    with assert_one_effect(shop.count):
        client.twice("/charges", json={"cents": 500}, key="k-2")
"""
    )
    ran = run.runpytest_subprocess()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            "E *IntentBrokenError: attempt 2 got another answer than the one there is: the body",
            "E *EffectsError: 1 intent had 2 effects: an attempt that should have been recognised as a duplicate *",
            'E * intent 2: POST /charges {"cents":500}, key k-2',
            'E *   attempt 1: 201 {"id":2}',
            'E *   attempt 2: 201 {"id":3}',
            "E * effects: 1 before, 3 after, by Shop.count",
        ]
    )


def test_the_other_fixtures(run: pytest.Pytester) -> None:
    """R42: a lost answer, a provider, a broker, processes that die, and a clock that stands, each by its fixture."""
    run.makepyfile(
        APP
        + """
import httpx2, pytest
from datetime import timedelta
from tests.testing.shops import BlockingShop

def test_dropped(drop_response):
    shop = BlockingShop()
    with httpx2.Client(transport=drop_response(shop.protected()), base_url="http://shop") as client:
        with pytest.raises(httpx2.ReadError):
            client.post("/charges", headers={"Idempotency-Key": "k"})
        client.post("/charges", headers={"Idempotency-Key": "k"})
    assert shop.count() == 1

def test_provider(fake_provider, manual_clock, assert_one_effect):
    def post():
        order = {"reference": "o", "amount": 1}
        return httpx2.post(fake_provider.url + "/charges", json=order, headers={"Idempotency-Key": "k"})

    with assert_one_effect(fake_provider.count):
        post()
        manual_clock.advance(timedelta(hours=23))
        post()
    manual_clock.advance(timedelta(hours=1))
    with assert_one_effect(fake_provider.count):
        post()

def test_broker(fake_broker):
    assert fake_broker.deliver(print) == 0

def test_cut(cut_at):
    done = []

    def trial(life):
        with life:
            life.function(done.append)(1)

    async def atrial(life):
        trial(life)

    assert cut_at(trial) == asyncio.run(cut_at(atrial)) == 3
    assert done == [1] * 4

def test_clock(manual_clock):
    before = manual_clock()
    manual_clock.advance(timedelta(hours=1))
    assert manual_clock() - before == 3_600_000_000
"""
    )
    run.runpytest_subprocess().assert_outcomes(passed=5)


def test_the_plugin_loads_nothing_that_is_not_asked_for() -> None:
    """House: where tests use none of it, it costs them no import of a client, a server or a database."""
    code = (
        "import sys, pytest; before = set(sys.modules); import twicesafe.pytest_plugin\n"
        "wanted = ('twicesafe.testing', 'twicesafe.stores', 'httpx2', 'asyncio')\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith(wanted)))"
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
