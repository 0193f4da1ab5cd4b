"""What the suite does to ast.parse."""

from __future__ import annotations

import ast
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = "\n".join(f"value_{n} = [({n}, {{'a': {n}}}), f(x)(y)[{n}]]" for n in range(30))


class Garbage:
    """Lets other threads go on when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Path(os.devnull).stat()  # waits for the system


def test_threads_that_parse_do_not_disturb_each_other() -> None:
    """House: two tracebacks are formatted at the same time, while garbage is collected; neither ends with an error."""

    def parse(depth: int) -> None:
        if depth:
            parse(depth - 1)
            return
        for _ in range(100):
            Garbage()
            ast.parse(SOURCE)

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(parse, range(4))) == [None] * 4
    finally:
        gc.set_threshold(*thresholds)
