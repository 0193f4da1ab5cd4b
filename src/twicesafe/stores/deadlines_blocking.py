"""Bounded waits in threads, for a driver that waits for ever: one thread for all of them shuts lines that are silent.

with deadlines.wait(connection.fileno()):
    connection.execute(...)
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic, sleep
from types import TracebackType


class BlockingDeadlines:
    """Waits of at most `timeout` seconds. One that takes longer has its line shut, and ends in a TimeoutError.

    The thread begins with a wait and ends when it finds none, so it costs a store at work nothing, and an idle one a
    thread's start at most once in `timeout`. It is a daemon: nobody waits for it.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.waits: dict[_Wait, float] = {}
        """When each ends, the oldest first."""
        self.shutting = Lock()
        """Held while lines are shut: whoever comes back meanwhile waits, because its line's number may be reused."""
        self._changing = Lock()
        self._thread: Thread | None = None

    def wait(self, line: int) -> _Wait:
        """What is waited for in it comes by the socket of this number."""
        return _Wait(self, line)

    def look_after(self, wait: _Wait) -> None:
        self.waits[wait] = monotonic() + self.timeout
        thread = self._thread
        # After a fork there is none in the child, whatever stands here.
        if thread is None or not thread.is_alive():
            with self._changing:
                if self._thread is thread:
                    self._thread = Thread(target=self._run, name="twicesafe-deadlines", daemon=True)
                    with suppress(RuntimeError):
                        # No more threads, or the interpreter is ending: then this wait is as long as it is.
                        self._thread.start()

    def _run(self) -> None:
        while True:
            sleep(self.look())
            with self._changing:
                # First this, then a look: who waits does it the other way round, so one of the two sees the other.
                mine, self._thread = self._thread, None
                if not self.waits:
                    return
                self._thread = mine

    def look(self) -> float:
        """Shut the lines of those that are over. When to look again, in seconds from now."""
        now = monotonic()
        for wait, until in list(self.waits.items()):
            if until > now:
                return until - now
            with self.shutting:
                if self.waits.pop(wait, None) is not None:
                    wait.shut()
        return self.timeout


class _Wait:
    """One wait of one thread."""

    def __init__(self, deadlines: BlockingDeadlines, line: int) -> None:
        self._deadlines = deadlines
        self._line = line

    def shut(self) -> None:
        with suppress(OSError), socket.fromfd(self._line, socket.AF_INET, socket.SOCK_STREAM) as line:
            # Another handle of the same line, of whatever family: only this one is closed here.
            line.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._deadlines.look_after(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadlines = self._deadlines
        if deadlines.waits.pop(self, None) is None:
            with deadlines.shutting:
                pass
            if isinstance(error, Exception):
                raise TimeoutError(f"no answer within {deadlines.timeout:g} s") from error
