"""What the steps of an operation give, for mypy --strict."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from twicesafe.called import AsyncCall, Call


def reserve(connection: Any, order: str) -> int:
    return len(order)


async def areserve(connection: Any, order: str) -> int:
    return len(order)


def charge(key: str, cents: int) -> str:
    return f"{key} {cents}"


async def acharge(key: str, cents: int) -> str:
    return f"{key} {cents}"


def blocking(at: Call) -> None:
    """A step gives what its function gives."""
    assert_type(at.phase("reserve", reserve, "order"), int)
    assert_type(at.call("charge", charge, 100, remembers=timedelta(hours=1)), str)


async def asynchronous(at: AsyncCall) -> None:
    """The same for coroutine functions, and for others among them."""
    assert_type(await at.phase("reserve", areserve, "order"), int)
    assert_type(await at.phase("reserve again", reserve, "order"), int)
    assert_type(await at.call("charge", acharge, 100), str)
    assert_type(await at.call("fee", charge, 100), str)
