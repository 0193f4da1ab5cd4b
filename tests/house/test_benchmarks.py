"""What `python -m benchmarks` offers is there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from benchmarks.__main__ import NAMES


def test_every_benchmark_that_is_named_exists() -> None:
    """House: a name in the list of benchmarks is a module, and each module of figures is in the list."""
    assert [name for name in NAMES if find_spec(f"benchmarks.{name}") is None] == []
    there = {path.stem for path in Path("benchmarks").glob("*.py")} - {"__init__", "__main__", "measure"}
    assert there == set(NAMES)
