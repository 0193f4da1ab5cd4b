"""Addresses of Redis stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from twicesafe.errors import ConfigurationError
from twicesafe.stores.redis import AsyncRedisStore, RedisStore
from twicesafe.stores.redis_driver import Kind, Node, address_of
from twicesafe.stores.urls import open_async_store, open_store

WRONG = [
    "redis://",
    "redis://a,b/0",
    "redis://host:port",
    "redis://host/name",
    "redis://host/0/1",
    "redis+sentinel://host",
    "redis+sentinel://host/service/name",
    "redis+cluster://host/1",
    "redis+other://host",
    "http://host",
    "redis://host?decode_responses=yes",
    "redis://host?ssl_cert_reqs=none",
    "rediss://host?ssl_no_such_thing=1",
    "redis://host?sentinel_password=secret",
    "redis://[::1",
    "redis://1?hunter2@host",
]


@pytest.mark.parametrize("url", WRONG)
def test_what_is_no_address_is_refused_when_it_is_given(url: str) -> None:
    """House: a wrong setting is refused where it is made, and no message repeats a password."""
    secret = url.replace("://", "://user:hunter2@", 1)
    with pytest.raises(ConfigurationError) as told:
        RedisStore(secret)
    assert "hunter2" not in str(told.value)


def test_addresses_are_taken_apart() -> None:
    """Every part of an address has its place; passwords stay out of what is shown."""
    address = address_of(
        "rediss+sentinel://app:p%40ss@one,[::1]:9/records/3?sentinel_password=other&ssl_cert_reqs=none"
    )
    assert address.kind is Kind.SENTINEL
    assert address.nodes == (Node("one", 26379), Node("::1", 9))
    assert address.service == "records"
    assert address.tls
    assert address.options["username"] == "app" and address.options["password"] == "p@ss"
    assert address.options["db"] == 3
    assert address.sentinel_options["password"] == "other" and "db" not in address.sentinel_options
    assert address.shown == "rediss+sentinel://app:***@one,[::1]:9/records/3"
    assert "p@ss" not in repr(address) and "other" not in repr(address)
    assert address_of("redis://host").nodes == (Node("host", 6379),)
    assert address_of("redis+cluster://a:1,b:2/0").nodes == (Node("a", 1), Node("b", 2))


@pytest.mark.parametrize("way", ["", "+sentinel", "+cluster"])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_stores_are_found_by_their_addresses(scheme: str, way: str) -> None:
    """House: every form opens both kinds of store, which connect when they are first used."""
    url = f"{scheme}{way}://localhost:1{'/service' if way == '+sentinel' else ''}"
    blocking = open_store(url)
    assert isinstance(blocking, RedisStore)
    blocking.close()

    async def trial() -> None:
        store = open_async_store(url)
        assert isinstance(store, AsyncRedisStore)
        await store.aclose()

    asyncio.run(trial())


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": timedelta(0)},
        {"timeout": 3},
        {"replicas": -1},
        {"replicas": True},
        {"prefix": "{one}"},
    ],
)
@pytest.mark.parametrize("kind", [RedisStore, AsyncRedisStore])
def test_what_cannot_be_meant_is_refused(kind: Any, options: dict[str, Any]) -> None:
    """House: a wrong setting is refused where it is made."""
    with pytest.raises(ConfigurationError):
        kind("redis://localhost", **options)


@pytest.mark.parametrize("kind", [RedisStore, AsyncRedisStore])
def test_there_is_no_transaction_to_share(kind: Any) -> None:
    """R23: Redis does not pretend: the effects are elsewhere, and the error says what to do."""
    assert not kind.transactional
    with pytest.raises(ConfigurationError, match="declare the operation keyed"):
        kind("redis://localhost").transaction()
