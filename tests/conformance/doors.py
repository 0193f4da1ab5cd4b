"""Doors at which applications stop until whoever checks them lets them go on."""

from __future__ import annotations

import socket
from collections import defaultdict
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

PATIENCE: Final = 60.0
"""Seconds that somebody waits for somebody else."""
DONE: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Door:
    """One of them: once it is open it stays open."""

    def __init__(self) -> None:
        self.reached = Event()
        self.opened = Event()


class Doors:
    """Listens for applications, which send a door's name and wait for a byte, and for HTTP.

    `GET /reached/NAME` is answered when somebody stands at the door, `GET /open/NAME` opens it.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._doors: defaultdict[str, Door] = defaultdict(Door)
        self._adding = Lock()
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                arrived, _ = self._listening.accept()
                Thread(target=self._serve, args=[arrived], daemon=True).start()

    def _serve(self, arrived: socket.socket) -> None:
        arrived.settimeout(PATIENCE)
        with arrived, suppress(OSError):
            line = arrived.makefile("rb").readline().decode().strip()
            if line.startswith("GET /"):
                wish, _, name = line.split()[1].removeprefix("/").partition("/")
                door = self._door(name)
                if wish == "open":
                    door.opened.set()
                elif not door.reached.wait(PATIENCE):
                    return
                arrived.sendall(DONE)
            else:
                door = self._door(line)
                door.reached.set()
                if door.opened.wait(PATIENCE):
                    arrived.sendall(b"\n")

    def _door(self, name: str) -> Door:
        with self._adding:
            return self._doors[name]

    def close(self) -> None:
        """Let nobody come any more."""
        # shutdown() ends the accept() of the other thread, close() alone would not.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
