"""The storm on Redis, small: payments are keyed, and the ledger is a system that is called."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis

from tests.cli.running import twicesafe
from twicesafe.errors import StoreUnavailableError
from twicesafe.storm.errors import StormError
from twicesafe.storm.ledger import Payment
from twicesafe.storm.ledger_downstream import DownstreamLedger
from twicesafe.storm.redis import DURABLE, PrivateRedis

INTENTS = 40
PAYMENT = Payment("run", 7, "account", "10.00")


def test_one_effect_for_each_intent_on_a_redis_of_its_own() -> None:
    """R42, A7: Redis is restarted and killed among the other faults; each payment is made once, and the output says by
    what."""
    ran = twicesafe("storm", "--intents", str(INTENTS), "--clients", "30", "--json", "--store", "redis", "--seed", "7")
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"]) == (0, 0)
    assert (ran.status, report["store"]) == (0, "redis")
    assert report["faults"]["sigkill"] >= 8
    assert (report["faults"]["database_restart"], report["faults"]["database_crash"]) == (1, 1)
    assert "Redis shares no transaction with effects" in ran.err
    assert "recognised by their derived key" in ran.err


def test_the_ledger_downstream_makes_one_payment_for_each_key(tmp_path: Path) -> None:
    """R25: a second call under a key is answered with the first one's payment; another key is another payment, and a
    duplicate that the census counts."""

    async def trial() -> None:
        ledger = DownstreamLedger(tmp_path / "ledger.db")
        await ledger.create()
        first = await ledger.pay("key", "one", PAYMENT)
        again = await ledger.pay("key", "two", PAYMENT)
        assert await ledger.payments("run") == {7: ["one"]}
        assert (first, again) == ("one", "one")
        assert await ledger.pay("another key", "three", PAYMENT) == "three"
        assert await ledger.payments("run") == {7: ["one", "three"]}
        assert await ledger.calls() == (3, 2)

    asyncio.run(trial())


def test_a_ledger_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    """A call that failed is not taken for one that was made."""
    ledger = DownstreamLedger(tmp_path / "no such folder" / "ledger.db")
    with pytest.raises(StoreUnavailableError):
        asyncio.run(ledger.pay("key", "one", PAYMENT))


def test_a_durable_server_keeps_what_it_answered_when_it_is_killed() -> None:
    """R42: appendfsync always, SIGKILL, the same port: what was answered is there; strangers are kept out."""
    with PrivateRedis(DURABLE) as server:
        port = server.port
        with redis.Redis.from_url(server.url) as client:
            for n in range(50):
                client.set(f"key-{n}", n)
        server.restart(crash=True)
        with redis.Redis.from_url(server.url) as client:
            assert client.dbsize() == 50
        assert server.port == port
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            assert client.dbsize() == 50
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        folder = server.directory
    assert not folder.exists()
    server.stop()


def test_a_server_that_does_not_start_says_why() -> None:
    """A storm that cannot be run says what to mend."""
    with pytest.raises(StormError, match="did not start"):
        PrivateRedis({"no-such-directive": "1"}).start()
