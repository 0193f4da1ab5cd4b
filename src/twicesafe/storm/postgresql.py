"""A private PostgreSQL server: its own directory, port and password, on 127.0.0.1 only, and gone afterwards."""

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

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 15.0
_RUN_TIMEOUT: Final = 120.0
_POLL: Final = 0.02
_PORTS_TRIED: Final = 5

How: TypeAlias = Literal["smart", "fast", "immediate"]
"""pg_ctl's words for how a server stops. `immediate` is a crash: connections die, and recovery runs at the start."""

_FOLDERS: Final = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Fedora, Red Hat
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


class PrivatePostgreSQL:
    """Start, stop, restart, from any thread. The server ends with this process, however this process ends.

    `settings` are server settings such as {"max_connections": "50"}. The data is written with fsync as the settings
    say; PostgreSQL's default is on. `trusting` lets in whoever can reach it, without a password.
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
        """`postgresql://` with user, password, address and database."""
        return self.dsn()

    def dsn(self, database: str = "postgres", *, port: int | None = None) -> str:
        """The URL of another database, or by way of a proxy's port."""
        password = f":{self._password}" if self._password else ""
        return f"postgresql://twicesafe{password}@{self._place.host}:{port or self.port}/{database}"

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
    def data(self) -> Path:
        """The cluster."""
        return self.directory / "data"

    def start(self) -> None:
        """Wait until it takes connections, on a new cluster the first time. StormError where it cannot."""
        with self._lock:
            if self._directory is not None:
                self._launch()
                return
            user = _server_user()
            self._directory = Path(tempfile.mkdtemp(prefix="twicesafe-postgresql-", dir=self._place.folder))
            try:
                if user is not None:
                    os.chown(self._directory, user, pwd.getpwuid(user).pw_gid)
                self.initialize()
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
                raise StormError("the private PostgreSQL server is not running")
            self._end(how)
            self._launch()

    def close(self) -> None:
        """Stop it and remove its directory. Safe to call twice."""
        with self._lock:
            self.stop("immediate")
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

    def run(self, program: str, *options: str | Path) -> None:
        """Run one of PostgreSQL's own programs, as the server's user. StormError with its last words if it fails."""
        user = _server_user()
        done = subprocess.run(  # noqa: S603
            [_programs() / program, *options],
            cwd=self.directory,
            env=_environment(),
            user=user,
            group=None if user is None else pwd.getpwuid(user).pw_gid,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RUN_TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise StormError(f"{program} failed: {done.stderr.strip()[-600:]}")

    def initialize(self) -> None:
        """Make the cluster in `data`."""
        how: tuple[str | Path, ...] = ("--auth=trust",)
        secret = self.directory / "password"
        if self._password:
            secret.write_text(self._password)
            secret.chmod(0o600)
            user = _server_user()
            if user is not None:
                os.chown(secret, user, -1)
            how = ("--auth=scram-sha-256", "--pwfile", secret)
        try:
            self.run(
                "initdb", "-D", self.data, "-U", "twicesafe", *how, "--encoding=UTF8", "--locale=C", "--no-sync"
            )  # fmt: skip
        finally:
            secret.unlink(missing_ok=True)
        if self._place.client != HERE.client:
            with (self.data / "pg_hba.conf").open("a") as doors:
                doors.write(f"host all all {self._place.client}/32 {'scram-sha-256' if self._password else 'trust'}\n")

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
        raise StormError(f"PostgreSQL did not start: {self.log().strip()[-600:] or 'it left no log'}")

    def _launched(self) -> bool:
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # of a server that this process has seen end
        settings = {
            "listen_addresses": self._place.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "logging_collector": "off",
            **self._settings,
        }
        command = [str(_programs() / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        guardian = [*self._place.through, sys.executable, "-m", "twicesafe.storm.guardian", str(int(signal.SIGQUIT))]
        user = _server_user()
        with self._place.log(self.directory).open("ab") as log:
            self._guardian = subprocess.Popen(  # noqa: S603
                [*guardian, "" if user is None else str(user), str(self.directory), *self._place.command(command)],
                cwd=self.directory,
                env=_environment(),
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
            if self._state() in ("ready", "standby"):
                return True
            time.sleep(_POLL)
        self._end("immediate")
        return False

    def _state(self) -> str:
        """The server's own word for its state, as pg_ctl reads it; empty before there is any."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        return lines[7].strip() if len(lines) > 7 else ""

    def _end(self, how: How) -> None:
        guardian = self._guardian
        assert guardian is not None
        try:
            # A process that has ended leaves its number to somebody else.
            with contextlib.suppress(StormError, subprocess.TimeoutExpired):
                if guardian.poll() is None:
                    self.run("pg_ctl", "stop", "-D", self.data, "-m", how, "-t", str(int(STOP_TIMEOUT)), "-s")
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


def _programs() -> Path:
    """The folder of the newest `initdb` and `postgres` on this machine."""
    for name in ("postgres", "initdb"):
        found = shutil.which(name)
        if found is not None:
            folder = Path(found).resolve().parent
            if (folder / "initdb").exists() and (folder / "postgres").exists():
                return folder
    folders = [folder for pattern in _FOLDERS for folder in Path("/").glob(pattern[1:]) if (folder / "initdb").exists()]
    if not folders:
        raise StormError(
            "no PostgreSQL server programs (initdb, postgres) were found: install PostgreSQL, "
            "or name a running server with --store postgresql://user@host/database"
        )
    return max(folders, key=_version)


def _version(folder: Path) -> float:
    digits = "".join(c if c.isdigit() or c == "." else " " for c in str(folder.parent)).split()
    try:
        return float(digits[-1])
    except (IndexError, ValueError):
        return 0.0


def _server_user() -> int | None:
    """PostgreSQL refuses to run as root: as root, somebody else's id, else None for one's own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise StormError("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody here")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
