"""A private MariaDB server: its own directory, port and password, on 127.0.0.1 only, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import pwd
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
from typing import Final, Literal, Self, TypeAlias

from twicesafe.storm.errors import StormError
from twicesafe.storm.place import HERE, Place

START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 15.0
_RUN_TIMEOUT: Final = 120.0
_POLL: Final = 0.02
_PORTS_TRIED: Final = 5

How: TypeAlias = Literal["fast", "crash"]
"""In good order by SIGTERM, or by SIGKILL: connections die, and recovery runs at the start."""

DATABASE: Final = "twicesafe"
_FOLDERS: Final = (
    "/usr/sbin",
    "/usr/bin",
    "/usr/libexec",
    "/opt/homebrew/opt/mariadb/bin",
    "/usr/local/opt/mariadb/bin",
)


class PrivateMariaDB:
    """Start, stop, restart, from any thread. The server ends with this process, however this process ends.

    `settings` are server settings such as {"max_connections": "50"}. The data is written as durably as the settings
    say; InnoDB's default is an fsync at each commit. `trusting` lets in whoever can reach it, without a password.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, trusting: bool = False, place: Place = HERE
    ) -> None:
        self.port = 0
        """Where it listens, the same over restarts."""
        self._settings = dict(settings or {})
        self._place = place
        self._lock = threading.RLock()
        self._directory: Path | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._password = "" if trusting else secrets.token_urlsafe(18)

    @property
    def url(self) -> str:
        """`mysql://` with user, password, address and database."""
        return self.dsn()

    def dsn(self, database: str = DATABASE, *, port: int | None = None) -> str:
        """The URL of another database, or by way of a proxy's port."""
        password = f":{self._password}" if self._password else ""
        return f"mysql://twicesafe{password}@{self._place.host}:{port or self.port}/{database}"

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._guardian is not None

    @property
    def ended(self) -> bool:
        """Whether it was started, and has ended though nobody stopped it."""
        return self._guardian is not None and self._guardian.poll() is not None

    @property
    def directory(self) -> Path:
        """Where everything of it lies, from the first start on."""
        assert self._directory is not None
        return self._directory

    @property
    def pid(self) -> int:
        """The server's process."""
        return int((self.directory / "pid").read_text())

    def start(self) -> None:
        """Wait until it takes connections, on new data the first time. StormError where it cannot."""
        with self._lock:
            if self._directory is not None:
                self._launch()
                return
            user = _server_user()
            self._directory = Path(tempfile.mkdtemp(prefix="twicesafe-mariadb-", dir=self._place.folder))
            try:
                if user is not None:
                    os.chown(self._directory, user, pwd.getpwuid(user).pw_gid)
                self._initialize(user)
                self._launch()
            except BaseException:
                self.close()
                raise

    def stop(self, how: How = "fast") -> None:
        """Stop it and keep its data. Nothing where it does not run."""
        with self._lock:
            if self._guardian is not None:
                self._end(how)

    def restart(self, how: How = "fast") -> None:
        """Stop and start again on the same port and data."""
        with self._lock:
            if self._guardian is None:
                raise StormError("the private MariaDB server is not running")
            self._end(how)
            self._launch()

    def close(self) -> None:
        """Stop it and remove its directory. Safe to call twice."""
        with self._lock:
            self.stop("crash")
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

    def _initialize(self, user: int | None) -> None:
        done = subprocess.run(  # noqa: S603
            [
                _program("mariadb-install-db"), "--no-defaults", f"--datadir={self.directory / 'data'}",
                "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
            ],
            cwd=self.directory,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(self.directory)},
            user=user,
            group=None if user is None else pwd.getpwuid(user).pw_gid,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RUN_TIMEOUT,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise StormError(f"mariadb-install-db failed: {(done.stderr + done.stdout).strip()[-600:]}")
        who = f"twicesafe@'{self._place.client}'"
        first = self.directory / "first.sql"
        first.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL ON *.* TO {who};\n"
            "DROP USER IF EXISTS root@localhost, root@'127.0.0.1', root@'::1';\n"
        )
        first.chmod(0o600)
        if user is not None:
            os.chown(first, user, -1)

    def _launch(self) -> None:
        for _ in range(_PORTS_TRIED):
            fresh = self.port == 0
            if fresh:
                self.port = _free_port()
            if self._launched():
                return
            if fresh:
                self.port = 0
        raise StormError(f"MariaDB did not start: {self.log().strip()[-600:] or 'it left no log'}")

    def _launched(self) -> bool:
        settings = {
            "datadir": str(self.directory / "data"),
            "tmpdir": str(self.directory),
            "bind-address": self._place.host,
            "port": str(self.port),
            "socket": "socket",
            "pid-file": str(self.directory / "pid"),
            "init-file": str(self.directory / "first.sql"),
            "skip-name-resolve": "ON",
            "innodb-buffer-pool-size": "64M",
            "innodb-use-native-aio": "OFF",
            **self._settings,
        }
        command = [
            str(_program("mariadbd")),
            "--no-defaults",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        guardian = [*self._place.through, sys.executable, "-m", "twicesafe.storm.guardian", str(int(signal.SIGKILL))]
        user = _server_user()
        (self.directory / "pid").unlink(missing_ok=True)  # of a server that this process has seen end
        with self._place.log(self.directory).open("ab") as log:
            self._guardian = subprocess.Popen(  # noqa: S603
                [*guardian, "" if user is None else str(user), str(self.directory), *self._place.command(command)],
                cwd=self.directory,
                env={**os.environ, "LC_ALL": "C"},
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
            if (self.directory / "pid").exists() and _greets(self._place.host, self.port):
                return True
            time.sleep(_POLL)
        self._end("crash")
        return False

    def _end(self, how: How) -> None:
        guardian = self._guardian
        assert guardian is not None
        with contextlib.suppress(OSError, ValueError):
            # The file's server is the guardian's child, and the guardian lives as long as it; then its number is free.
            if guardian.poll() is None:
                os.kill(self.pid, signal.SIGTERM if how == "fast" else signal.SIGKILL)
        try:
            guardian.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            # Closing the pipe makes the guardian end its child, and remove the directory.
            assert guardian.stdin is not None
            guardian.stdin.close()
            guardian.wait(STOP_TIMEOUT)
        self._forget_guardian()

    def _forget_guardian(self) -> None:
        assert self._guardian is not None and self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian = None


def _greets(host: str, port: int) -> bool:
    """Whether it says its version to whoever connects: the protocol's number comes fifth."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1) as line:
        line.settimeout(1)
        return line.recv(64)[4:5] == b"\x0a"
    return False


def _program(name: str) -> Path:
    """One of MariaDB's own programs on this machine."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    for folder in _FOLDERS:
        if (Path(folder) / name).exists():
            return Path(folder) / name
    raise StormError(
        f"MariaDB's server program {name} was not found: install MariaDB's server, "
        "or name a running server with --store mysql://user@host/database"
    )


def _server_user() -> int | None:
    """MariaDB refuses to run as root: as root, somebody else's id, else None for one's own."""
    if os.geteuid() != 0:
        return None
    for name in ("mysql", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise StormError("MariaDB does not run as root, and there is neither a user mysql nor a user nobody here")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
