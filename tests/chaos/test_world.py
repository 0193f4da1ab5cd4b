"""The clock and the disk that processes live with in the lab: what a process of Python sees of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from twicesafe.storm.chaos.world import NAMED_BY, World, build
from twicesafe.storm.errors import StormError

PROBE = """
import datetime, os, sys, threading, time
began = time.monotonic()
condition = threading.Condition()
with condition:
    condition.wait(0.2)
waited = time.monotonic() - began
with open(sys.argv[1], "wb") as file:
    os.fsync(file.fileno())
    os.fdatasync(file.fileno())
print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), waited)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once."""
    return build(tmp_path_factory.mktemp("library"))


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
with open(sys.argv[1], "wb") as file:
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    os.fsync(file.fileno())
    signal.setitimer(signal.ITIMER_REAL, 0)
"""


def seen(library: Path, world: World, folder: Path, probe: str = PROBE) -> tuple[float, ...]:
    ran = subprocess.run(
        [sys.executable, "-c", probe, folder / "file"],
        env={**os.environ, "LD_PRELOAD": str(library), NAMED_BY: str(world.file)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return tuple(map(float, ran.stdout.split()))


@pytest.mark.parametrize("offset", [-400 * 86400.0, 7200.0])
def test_the_wall_clock_alone_is_off(library: Path, tmp_path: Path, offset: float) -> None:
    """I12: by as much as was said, by whatever it is asked; the monotonic clock is not, and waits take their time."""
    world = World(tmp_path / "world")
    world.set_clock(offset)
    before = time.time(), time.monotonic()
    by_time, by_datetime, monotonic, waited = seen(library, world, tmp_path)
    after = time.time(), time.monotonic()
    for told in (by_time, by_datetime):
        assert before[0] + offset - 0.001 <= told <= after[0] + offset + 0.001
    assert before[1] <= monotonic <= after[1]
    assert 0.2 <= waited < after[1] - before[1]
    assert world.flushes() == (0, 0.0)


def test_flushes_take_as_long_as_was_said(library: Path, tmp_path: Path) -> None:
    """I11: fsync and fdatasync come back late, which is counted; the clock is true."""
    world = World(tmp_path / "world")
    world.set_delay(0.05)
    before = time.time()
    by_time, *_ = seen(library, world, tmp_path)
    assert before - 0.001 <= by_time <= time.time() + 0.001
    number, seconds = world.flushes()
    assert number == 2
    assert seconds >= 0.1


def test_a_signal_ends_no_flush_before_its_time(library: Path, tmp_path: Path) -> None:
    """R42, I11: databases wake each other by signals; a flush takes as long as was said all the same."""
    world = World(tmp_path / "world")
    world.set_delay(0.2)
    seen(library, world, tmp_path, INTERRUPTED)
    number, seconds = world.flushes()
    assert number == 1
    assert seconds >= 0.2


def test_a_machine_without_a_compiler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """House: what is missing is named with what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StormError, match="apt-get install gcc"):
        build(tmp_path)
