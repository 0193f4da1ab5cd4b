"""Where applications stop until the suite lets them go on: no case waits for time to pass."""

from __future__ import annotations

import socket
from collections import defaultdict, deque
from contextlib import suppress
from threading import Condition, Thread
from typing import Final

PATIENCE: Final = 15.0
"""Seconds in which an application comes to its gate, or never."""


class Gates:
    """Listens for applications that stand at a gate: they send its name and wait for a byte."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._waiting: dict[str, deque[socket.socket]] = defaultdict(deque)
        self._gone: set[str] = set()
        self._changed = Condition()
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                arrived, _ = self._listening.accept()
                arrived.settimeout(PATIENCE)
                name = arrived.makefile("rb").readline().decode().strip()
                with self._changed:
                    if name.partition(" ")[0] in self._gone:
                        arrived.close()
                    self._waiting[name].append(arrived)
                    self._changed.notify_all()

    def _await(self, name: str) -> None:
        reached = self._changed.wait_for(lambda: self._waiting[name], PATIENCE)
        assert reached, f"nobody came to the gate {name!r}"

    def reached(self, name: str) -> None:
        """Wait until somebody stands at the gate."""
        with self._changed:
            self._await(name)

    def open(self, name: str) -> None:
        """Wait until somebody stands at the gate, and let them pass. The next one has to wait again."""
        with self._changed:
            self._await(name)
            arrived = self._waiting[name].popleft()
        with arrived, suppress(OSError):
            arrived.sendall(b"\n")

    def give_up(self, tag: str) -> None:
        """Fail whoever stands at a gate of this tag's, or comes there later."""
        with self._changed:
            self._gone.add(tag)
            for name in [name for name in self._waiting if name.partition(" ")[0] == tag]:
                for arrived in self._waiting.pop(name):
                    arrived.close()

    def close(self) -> None:
        # shutdown() ends the accept() of the other thread, close() alone would not.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
