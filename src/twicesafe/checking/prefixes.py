"""Throw-away places in Redis: keys under a prefix of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from twicesafe.checking.places import Opened, Place, interpose, new_name
from twicesafe.stores.redis_blocking import Servers
from twicesafe.stores.redis_driver import address_of
from twicesafe.testing import MakeStore, ManualClock, StoreUnderTest

TIMEOUT: Final = 10.0


@contextmanager
def under_a_prefix(url: str, opened: Opened, remarks: list[str]) -> Iterator[Place]:
    """See throw_away.throw_away."""
    prefix = f"{new_name()}:"
    servers = Servers(address_of(url), TIMEOUT, 0)
    try:
        # Whether anybody answers is better known before than after.
        for node in servers.primaries():
            servers.open(node).disconnect()
        numbers = count()
        makers = {way: _maker(url, prefix, numbers, open_one) for way, open_one in opened.items()}
        try:
            yield Place(f"keys that begin with {prefix}", makers, remarks)
        finally:
            _remove(servers, prefix)
    finally:
        servers.close()


def _maker(url: str, prefix: str, numbers: Iterator[int], open_one: Callable[..., Any]) -> MakeStore:
    def fresh(clock: ManualClock) -> StoreUnderTest:
        own = f"{prefix}{next(numbers)}:"
        store = open_one(url, prefix=own, clock=clock)
        return StoreUnderTest(
            store=store,
            elsewhere=lambda: open_one(url, prefix=own, clock=clock),
            before_statement=lambda call: interpose(store, call),
        )

    return fresh


def _remove(servers: Servers, prefix: str) -> None:
    for node in servers.primaries():
        connection = servers.open(node)
        try:
            cursor = b"0"
            while True:
                cursor, keys = _asked(connection, "SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", 1000)
                for key in keys:
                    # One by one: in a cluster several keys at once would have to be of one slot.
                    _asked(connection, "UNLINK", key)
                if cursor == b"0":
                    break
        finally:
            connection.disconnect()


def _asked(connection: Any, *words: Any) -> Any:
    connection.send_command(*words)
    return connection.read_response(disable_decoding=True)
