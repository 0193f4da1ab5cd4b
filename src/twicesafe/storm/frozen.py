"""Stops a process as if it hung: its sockets stay open, and nothing is answered."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def freeze(pid: int) -> None:
    """SIGSTOP. Returns when none of its threads runs: the signal is on its way for a moment, in which one could
    still answer. SIGCONT or SIGKILL ends it."""
    os.kill(pid, signal.SIGSTOP)
    while any(state not in "tTZX" for state in _states(pid)):
        time.sleep(0.005)


def _states(pid: int) -> list[str]:
    """What each thread of a process does, in the kernel's letters. None where the kernel does not tell."""
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has ended
            # After the name, which may have anything in it.
            found.append(thread.read_text().rpartition(")")[2].split()[0])
    return found
