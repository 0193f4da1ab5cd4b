"""What `python -m benchmarks` offers is there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from benchmarks.__main__ import NAMES


def test_every_benchmark_that_is_named_exists() -> None:
    """House: a name in the list of benchmarks is a module; each module is in the list, or a part of one that is."""
    assert [name for name in NAMES if find_spec(f"benchmarks.{name}") is None] == []
    there = {path.stem.partition("_")[0] for path in Path("benchmarks").glob("[!_]*.py")} - {"measure"}
    assert there == set(NAMES)
