"""Throw-away places: where a store can be put through everything without touching a record that was there before.

Each is made under a name that nobody can have used, and only what was made under it is removed. What the address itself
leads to, a database's own tables, a file, a table of DynamoDB, keys of Redis, is never read nor written.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import kind_of, open_async_store, open_store
from twicesafe.testing import MakeStore


class Place(NamedTuple):
    """Where to check, and the stores to check there: `ways` is by "blocking" or "asyncio"."""

    what: str
    """What was made, for people."""
    ways: dict[str, MakeStore]
    remarks: list[str]
    """Why a way is missing."""


BLOCKING: Final = "blocking"
ASYNCIO: Final = "asyncio"

Opened = dict[str, Callable[..., Any]]
"""By way: opens a store, given its options."""


def new_name() -> str:
    """Of which no other check, and nobody else, has names; a name for whatever has to be made."""
    return f"twicesafe_check_{secrets.token_hex(6)}"


def ways(url: str) -> tuple[Opened, list[str]]:
    """What opens stores at this address, as far as drivers are installed. ConfigurationError where none is."""
    found: Opened = {}
    refusals: list[ConfigurationError] = []
    kind = kind_of(url)
    for way, opener in ((BLOCKING, kind.blocking), (ASYNCIO, kind.asynchronous)):
        try:
            # Nothing is connected to before a store is used.
            opener(url)
        except ConfigurationError as refusal:
            refusals.append(refusal)
        else:
            found[way] = open_store if way == BLOCKING else open_async_store
    if not found:
        raise refusals[0]
    return found, [f"not every way was checked: {refusal}" for refusal in refusals]


def interpose(store: Any, call: Callable[[int], Any]) -> None:
    """Have `call(n)` called before the n-th request that `store` sends from now on."""
    numbers = count()
    perform = type(store).perform

    async def async_perform(*arguments: Any, **named: Any) -> Any:
        called = call(next(numbers))
        if called is not None:
            await called
        return await perform(store, *arguments, **named)

    def sync_perform(*arguments: Any, **named: Any) -> Any:
        call(next(numbers))
        return perform(store, *arguments, **named)

    store.perform = async_perform if asyncio.iscoroutinefunction(perform) else sync_perform
