"""A private Redis server: its own directory, port and password, on 127.0.0.1 only, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from twicesafe.storm.errors import StormError
from twicesafe.storm.place import HERE, Place

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 15.0
_POLL: Final = 0.02
_PORTS_TRIED: Final = 5
_PROGRAMS: Final = ("redis-server", "valkey-server")

DURABLE: Final[Mapping[str, str]] = {"appendonly": "yes", "appendfsync": "always"}
"""With these a write is on the disk before its answer leaves, whatever crashes."""


class PrivateRedis:
    """Start, stop, restart, from any thread. The server ends with this process, however this process ends.

    `settings` are directives of redis.conf. Without DURABLE nothing survives a restart. `trusting` lets in whoever can
    reach it, without a password. `program`: another than the one on PATH.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        trusting: bool = False,
        program: str | None = None,
        place: Place = HERE,
    ) -> None:
        self.port = 0
        """Where it listens, the same over restarts."""
        self._settings = dict(settings or {})
        self._place = place
        self._lock = threading.RLock()
        self._directory: Path | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._program = program
        self._password = "" if trusting else secrets.token_urlsafe(18)

    @property
    def url(self) -> str:
        """`redis://` with password and address."""
        return self.at()

    def at(self, *, port: int | None = None) -> str:
        """The URL by way of a proxy's port."""
        password = f":{self._password}@" if self._password else ""
        return f"redis://{password}{self._place.host}:{port or self.port}/0"

    @property
    def ended(self) -> bool:
        """Whether it was started, and has ended though nobody stopped it."""
        return self._guardian is not None and self._guardian.poll() is not None

    @property
    def directory(self) -> Path:
        """Where everything of it lies, from the first start on."""
        assert self._directory is not None
        return self._directory

    def start(self) -> None:
        """Wait until it answers. StormError where it cannot."""
        with self._lock:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="twicesafe-redis-", dir=self._place.folder))
            try:
                self._launch()
            except BaseException:
                self.close()
                raise

    def stop(self) -> None:
        """Stop it in good order and keep its data. Nothing where it does not run."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Kill it (SIGKILL), as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        """Stop or kill it, and start it again on the same port and data."""
        with self._lock:
            if self._guardian is None:
                raise StormError("the private Redis server is not running")
            self._end(signal.SIGKILL if crash else signal.SIGTERM)
            self._launch()

    def close(self) -> None:
        """Stop it and remove its directory. Safe to call twice."""
        with self._lock:
            self._end(signal.SIGKILL)
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def log(self) -> str:
        """What the server has written so far."""
        with contextlib.suppress(OSError):
            return self._place.log(self.directory).read_text(errors="replace")
        return ""

    # --- how ---------------------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        for _ in range(_PORTS_TRIED):
            fresh = self.port == 0
            if fresh:
                self.port = _free_port()
            if self._launched():
                return
            if fresh:
                self.port = 0
        raise StormError(f"Redis did not start: {self.log().strip()[-600:] or 'it left no log'}")

    def _launched(self) -> bool:
        with contextlib.suppress(OSError):
            self._process_file.unlink()
        (self.directory / "redis.conf").write_text(self._configuration())
        command = [self._program or _program(), str(self.directory / "redis.conf"), *self.options()]
        guardian = [sys.executable, "-m", "twicesafe.storm.guardian", str(int(signal.SIGTERM)), ""]
        with self._place.log(self.directory).open("ab") as log:
            self._guardian = subprocess.Popen(  # noqa: S603
                [*self._place.through, *guardian, str(self.directory), *self._place.command(command)],
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._guardian.poll() is not None:
                self._forget_guardian()
                return False
            if self._answers():
                return True
            time.sleep(_POLL)
        self._end(signal.SIGKILL)
        return False

    def options(self) -> tuple[str, ...]:
        """More of the command line."""
        return ()

    def _configuration(self) -> str:
        """In a file, because a password does not belong on a command line."""
        settings = {
            "port": str(self.port),
            "bind": self._place.host,
            "dir": str(self.directory),
            "pidfile": str(self._process_file),
            "save": '""',
            **({"requirepass": self._password, "masterauth": self._password} if self._password else {}),
            **self._settings,
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())

    @property
    def _process_file(self) -> Path:
        return self.directory / "server.pid"

    def _answers(self) -> bool:
        """Whether it serves: a server that is still loading its data says so instead."""
        login = f"AUTH {self._password}\r\n" if self._password else ""
        try:
            with socket.create_connection((self._place.host, self.port), 1.0) as connection:
                connection.sendall(f"{login}PING\r\n".encode())
                heard = b""
                while b"+PONG" not in heard:
                    if b"-" in heard or not (data := connection.recv(1024)):
                        return False
                    heard += data
        except OSError:
            return False
        return self._process_file.exists()

    def _end(self, number: signal.Signals) -> None:
        with self._lock:
            guardian = self._guardian
            if guardian is None:
                return
            with contextlib.suppress(OSError, ValueError):
                # The file's server is the guardian's child; when it has ended, its number is free.
                if guardian.poll() is None:
                    os.kill(int(self._process_file.read_text()), number)
            try:
                guardian.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                # Closing the pipe makes the guardian end its child, with SIGKILL at last, and remove the directory.
                assert guardian.stdin is not None
                guardian.stdin.close()
                guardian.wait(STOP_TIMEOUT)
            self._forget_guardian()

    def _forget_guardian(self) -> None:
        assert self._guardian is not None and self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian = None


def _program() -> str:
    for name in _PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise StormError(
        "no Redis server program (redis-server, valkey-server) was found: install Redis 7 or Valkey, for instance by "
        "`apt-get install redis-server`"
    )


def _free_port() -> int:
    # A cluster's servers talk to each other on the port 10,000 above.
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port
        port = 20_000 + port % 20_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
