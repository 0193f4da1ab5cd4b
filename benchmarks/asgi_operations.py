"""How many operations of the interpreter a request takes: a count, which no other process of the machine can change.

It says nothing about what an operation takes, hashing 100 KB is one, but where a figure in microseconds comes from.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from benchmarks.asgi import application, discard, fresh_key, request, subjects
from benchmarks.measure import Row, row
from benchmarks.statements import ANSWER, BODY

WARMING = 3


def operations(make: Callable[[], Any], *, again: bool) -> int:
    """Of one first request once everything is warm, or of one request again."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    async def one() -> None:
        app, key = make(), fresh_key()
        for _ in range(WARMING):
            await app(*request(key if again else fresh_key(), BODY), discard)
        asked = request(key if again else fresh_key(), BODY)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            await app(*asked, discard)
        finally:
            sys.settrace(before)

    asyncio.run(one())
    return count


def run() -> list[Row]:
    """Part of benchmarks.asgi: what is added to a first request, and a whole replay."""
    bare = application(ANSWER)
    alone = operations(lambda: bare, again=False)
    found: list[Row] = []
    for case, again, less in (("first request: added", False, alone), ("replay", True, 0)):
        counts = {
            name: operations(lambda make=make: make(bare), again=again) - less  # type: ignore[misc]
            for name, make in subjects().items()
            if name != "bare"
        }
        found += [
            row(f"{case}, interpreted operations", name, "operations", [count], count / counts["floor"])
            for name, count in counts.items()
        ]
    return found
