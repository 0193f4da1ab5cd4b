"""Plain functions that happen once per key, in blocking calls on Redis: beside the same by hand, and Powertools.

The floor is SET NX PX GET for the claim and a script that compares and sets for the result, by redis-py's blocking
client. aws-lambda-powertools is set up as its documentation has it, with its persistence in Redis and outside of a
Lambda function, about which it warns. One call after another, each under a key of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from os import environ, urandom
from typing import Any

import redis

from benchmarks.measure import Row, Subject, interleaved, rates
from twicesafe.once import Once
from twicesafe.stores.redis import RedisStore

ROUNDS = 7
TIMES = 600
NUMBERS = count(1)


def charge(subscription: str, cents: int) -> dict[str, Any]:
    """What is to happen once."""
    return {"subscription": subscription, "cents": cents}


def by_hand(client: Any, script: str) -> Callable[[], None]:
    """Claim, call, keep the result."""
    complete = client.register_script(script)

    def once() -> None:
        name, owner = f"by-hand:{next(NUMBERS)}", urandom(16).hex()
        assert client.set(name, owner, nx=True, px=30_000, get=True) is None
        kept = json.dumps(charge("sub_123", 4200))
        assert complete(keys=[name], args=[owner, kept, 86_400_000]) == 1

    return once


def by_twicesafe(store: RedisStore) -> Callable[[], None]:
    """As an operation."""
    once = Once(store, scope="billing", observer=lambda event: None)

    @once.operation(key=lambda subscription, cents: subscription, effects="keyed", name="charge")
    def charged(subscription: str, cents: int) -> dict[str, Any]:
        return charge(subscription, cents)

    return lambda: _check(charged(f"sub_{next(NUMBERS)}", 4200))


def by_powertools(client: Any) -> Callable[[], None]:
    """As an idempotent function."""
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

    # It names its records after the Lambda function that it takes to be there.
    warnings.filterwarnings("ignore", message="Couldn't determine the remaining time left")
    environ.setdefault("AWS_LAMBDA_FUNCTION_NAME", "benchmark")
    layer = CachePersistenceLayer(client=client)
    config = IdempotencyConfig(use_local_cache=False)

    @idempotent_function(data_keyword_argument="subscription", persistence_store=layer, config=config)
    def charged(subscription: str, cents: int) -> dict[str, Any]:
        return charge(subscription, cents)

    return lambda: _check(charged(subscription=f"sub_{next(NUMBERS)}", cents=4200))


def _check(found: Any) -> None:
    assert found["cents"] == 4200


def timed(once: Callable[[], None]) -> Callable[[int], Awaitable[float]]:
    """Seconds for one of n."""

    async def run(n: int) -> float:
        began = time.perf_counter()
        for _ in range(n):
            once()
        return (time.perf_counter() - began) / n

    return run


def run(url: str, script: str) -> list[Row]:
    """Part of benchmarks.redis; `script` compares and sets."""
    client, store = redis.Redis.from_url(url), RedisStore(url)
    ways = {"floor": by_hand(client, script), "twicesafe": by_twicesafe(store)}
    with suppress(ImportError):
        ways["aws-lambda-powertools"] = by_powertools(client)
    subjects = [Subject(name, timed(once)) for name, once in ways.items()]
    try:
        asyncio.run(interleaved(subjects, rounds=ROUNDS, times=TIMES))
    finally:
        store.close()
        client.close()
    return rates("plain function, one at a time", subjects)
