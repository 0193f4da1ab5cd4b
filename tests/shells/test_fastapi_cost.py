"""What a contract on a route costs, in operations of the interpreter: a busy machine does not change their number."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from benchmarks.asgi import discard, fresh_key, request
from benchmarks.fastapi import BODY, around_bare, around_the_same, bare, routed


def operations(make: Callable[[], Any]) -> int:
    """How many one first request takes, once everything is warm."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    async def one() -> None:
        app = make()
        for _ in range(3):
            await app(*request(fresh_key(), BODY), discard)
        asked = request(fresh_key(), BODY)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            await app(*asked, discard)
        finally:
            sys.settrace(before)

    asyncio.run(one())
    return count


def test_a_contract_on_a_route_costs_what_the_shell_does() -> None:
    """House: at most 1.2 times of what the ASGI shell adds, be it around this application or around a bare callable."""
    alone = operations(routed(safe=False))
    contract = operations(routed(safe=True)) - alone
    shell = operations(around_the_same) - alone
    around_a_callable = operations(around_bare) - operations(lambda: bare)
    assert 0 < contract <= 1.2 * min(shell, around_a_callable), (contract, shell, around_a_callable)
