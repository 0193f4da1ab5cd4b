"""A process of the storm's own: how it begins, what it says, and that it ends with who started it.

The starter is storm/fleet.py; the lines that it gets are described there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

from twicesafe.storm.errors import StormError


def live(module: str, told: dict[str, Any], log: str, line: socket.socket) -> None:
    """Its life: `work(told)` of `module`, until SIGTERM. What it complains of goes to `log`."""
    os.setsid()
    os.dup2(line.fileno(), 1)
    with open(log, "ab") as complaints:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(complaints.fileno(), 2)
    threading.Thread(target=_end_with_starter, args=(line,), daemon=True).start()
    if "world" in told:
        enter(told["world"])
    import_module(module).work(told)


def enter(world: str) -> None:
    """From now on this process's clock and disk are those of `world`, a file of chaos/world.py."""
    if ctypes.CDLL(None).twicesafe_chaos_enter(os.fsencode(world)):
        raise StormError(f"there is no world in {world}")


def _end_with_starter(line: socket.socket) -> None:
    # Who ends with something unread on the line resets it.
    with suppress(OSError):
        while line.recv(1024):
            pass
    os._exit(1)


def say_ready(port: int = 0) -> None:
    """It serves on this port, or works."""
    _say(f"ready {port}")


def say_noted(what: str) -> None:
    """Something happened that is to be counted."""
    _say(f"noted {what}")


def die_at(point: str, key: str) -> None:
    """Announce it and be gone, as by a power cut: nothing is closed or rolled back."""
    _say(f"dying {point} {key}")
    os.kill(os.getpid(), signal.SIGKILL)


def _say(line: str) -> None:
    # One short write: the socket takes it whole or not at all, and has it even if the process dies the next moment.
    os.write(1, line.encode() + b"\n")
