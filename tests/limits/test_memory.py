"""What a memory store does when it is full."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.shells.probe import post
from tests.shells.rig import Rig
from twicesafe.core.policy import Policy
from twicesafe.errors import ConfigurationError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore

SHORT = Policy(key_retention=timedelta(minutes=1), body_retention=timedelta(minutes=1))


def rig(**at_most: Any) -> Rig:
    made = Rig(SHORT)
    made.store = AsyncMemoryStore(clock=lambda: made.now, **at_most)
    made.safe._shared.store = made.store
    return made


def ask(here: Rig, number: int) -> Any:
    return asyncio.run(post(here.safe, key=f"k-{number:016}"))


@pytest.mark.parametrize("at_most", [{"records_at_most": 3}, {"bytes_at_most": 600}], ids=repr)
def test_a_full_store_takes_no_new_key(at_most: dict[str, int]) -> None:
    """R20: at its bound a store takes no new key and gives up no record; nothing runs that is not remembered."""
    here = rig(**at_most)
    first = [ask(here, number) for number in range(1000)]
    done = sum(reply.status == 201 for reply in first)
    assert here.effects == done == len(here.store) and 1 <= done <= 3
    refused = first[done]
    assert (refused.status, refused.kind, refused.header(b"retry-after")) == (503, "store-unavailable", b"1")
    assert all(ask(here, number).replayed for number in range(done))


def test_there_is_room_again_once_records_expire() -> None:
    """R20: what has expired makes room without anybody purging, and its bytes are no longer counted."""
    here = rig(records_at_most=3)
    for number in range(9):
        ask(here, number)
    here.pass_time(timedelta(minutes=1))
    again = [ask(here, number).status for number in range(100, 109)]
    assert again.count(201) == 3
    here.pass_time(timedelta(minutes=1))
    asyncio.run(here.store.purge())
    assert (len(here.store), here.store._store._bytes) == (0, 0)


@pytest.mark.parametrize("name", ["records_at_most", "bytes_at_most"])
@pytest.mark.parametrize("wrong", [0, -1, None, 1.5])
def test_wrong_bounds(name: str, wrong: Any) -> None:
    """House: a bound that means nothing is refused under its name."""
    with pytest.raises(ConfigurationError, match=name):
        MemoryStore(**{name: wrong})
