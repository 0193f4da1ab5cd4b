"""Runs one command and ends it when this process's standard input ends, so that no server outlives who started it.

    python -m twicesafe.storm.guardian SIGNAL USER DIRECTORY COMMAND...

The starter holds the other end of the pipe: whatever becomes of the starter, SIGKILL included, the pipe ends, SIGNAL
goes to the command, and DIRECTORY is removed. When the command ends by itself, its exit status is passed on and the
directory stays. USER is a numeric user id to run the command as, or empty.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading

GRACE = 10.0
"""Seconds between the signal and SIGKILL."""


def guard(number: int, user: int | None, directory: str, command: list[str]) -> int:
    """Run `command` until it ends or standard input does; returns its exit status."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _not_me)
    child = subprocess.Popen(  # noqa: S603 - the command is the starter's own
        command,
        stdin=subprocess.DEVNULL,
        user=user,
        group=None if user is None else pwd.getpwuid(user).pw_gid,
        extra_groups=None if user is None else [],
    )
    abandoned = threading.Event()

    def watch() -> None:
        while os.read(0, 1024):
            pass
        abandoned.set()
        child.send_signal(number)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    if abandoned.is_set():
        shutil.rmtree(directory, ignore_errors=True)
    return status


def _not_me(_number: int, _frame: object) -> None:
    """The pipe alone decides. A handler, because an ignored signal would stay ignored in the command."""


if __name__ == "__main__":
    _, _number, _user, _directory, *_command = sys.argv
    sys.exit(guard(int(_number), int(_user) if _user else None, _directory, _command))
