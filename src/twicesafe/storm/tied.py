"""Becomes a command that ends with whoever started it: no server outlives a program that was killed.

Where the kernel has no such tie, the command just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tied(command: list[str]) -> list[str]:
    """The command line. The process keeps its id when it becomes `command`; it is told SIGTERM when the thread ends
    that started it, so start it in one that lasts."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _become(starter: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != starter:
            # It ended before there was a tie.
            return
    os.execvp(command[0], command)  # noqa: S606 - a shell has no part in it


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
