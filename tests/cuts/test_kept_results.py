"""What steps and functions gave is given again after they broke off, by value and by type, on real databases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from tests.cuts.conftest import World
from tests.cuts.market import FIRMS, Firm
from twicesafe.once import current


@dataclass(frozen=True)
class Receipt:
    id: UUID
    amount: Decimal


class Order(BaseModel):
    at: datetime
    lines: list[Receipt]


VALUES: list[Any] = [
    None, 0, False, "", {}, [], (), 0.0, b"", "None", "null", Decimal("1.10"), datetime(2026, 1, 1, tzinfo=UTC),
    date(2026, 1, 1), UUID(int=1), {1, 2}, set(), timedelta(0), b"\x00\xff", "\0",
    Receipt(UUID(int=2), Decimal("-0.0")),
    Order(at=datetime(2026, 1, 1, tzinfo=UTC), lines=[Receipt(UUID(int=3), Decimal(10))]),
]  # fmt: skip


class Giving:
    """A function, and an operation whose steps give a value and which breaks off once behind them."""

    def __init__(self, firm: Firm, key: str, value: Any, *, asynchronous: bool) -> None:
        self.runs: list[str] = []
        fails = [True]

        def work() -> Any:
            self.runs.append("work")
            return value

        def write(connection: Any) -> Any:
            self.runs.append("phase")
            return value

        def send(key: str) -> Any:
            self.runs.append("call")
            return value

        def broken_off() -> None:
            if fails:
                fails.clear()
                raise RuntimeError("stop here")

        def both() -> Any:
            at: Any = current()
            phase, call = at.phase("phase", write), at.call("call", send)
            broken_off()
            return phase, call

        async def awork() -> Any:
            return work()

        async def aboth() -> Any:
            at: Any = current()
            phase, call = await at.phase("phase", write), await at.call("call", send)
            broken_off()
            return phase, call

        for function in (work, write, send, awork):
            function.__annotations__["return"] = type(value)
        for operation in (both, aboth):
            operation.__annotations__["return"] = tuple[type(value), type(value)]
        names: Any = {"key": lambda: key, "name": key}
        self.once = firm.once
        self.work = firm.once.operation(**names)(awork if asynchronous else work)
        names = {"key": lambda: f"{key} op", "name": f"{key} op", "effects": "resumable"}
        self.both = firm.once.operation(**names)(aboth if asynchronous else both)


@pytest.mark.parametrize("way", FIRMS)
def test_every_value_is_a_result(world: World, way: str) -> None:
    """A6, D6, R24: falsy ones, dates, decimals, objects: of a function, of a phase, of a call and of an operation, each
    run once and given again as it was."""
    with world.firm(way) as firm:
        for number, value in enumerate(VALUES):
            giving = Giving(firm, f"{way}-value-{number}", value, asynchronous=way == "asyncio")
            with pytest.raises(RuntimeError, match="stop here"):
                firm.end(giving.both())
            world.later(timedelta(seconds=35))
            given = [firm.end(giving.work()) for _ in range(2)]
            given += [one for _ in range(2) for one in firm.end(giving.both())]
            assert giving.runs == ["phase", "call", "work"], value
            assert given == [value] * 6
            assert {type(one) for one in given} == {type(value)}
            assert {repr(one) for one in given} == {repr(value)}
