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
from typing import Final, Literal

from twicesafe.storm.errors import StormError

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 15.0
_POLL: Final = 0.02

_SIGNALS: Final = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

_FOLDERS: Final = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Fedora, Red Hat
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


class PrivatePostgreSQL:
    """Start, restart, stop, from any thread. The server ends with this process, however this process ends.

    `settings` are server settings such as {"max_connections": "50"}. The data is written with fsync as the settings
    say; PostgreSQL's default is on.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._lock = threading.RLock()
        self._directory: Path | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._password = secrets.token_urlsafe(18)
        self._port = 0

    @property
    def url(self) -> str:
        """`postgresql://` with user, password, address and database."""
        return f"postgresql://twicesafe:{self._password}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Make the cluster and wait until it takes connections. StormError where it cannot."""
        with self._lock:
            programs = _programs()
            user = _server_user()
            self._directory = Path(tempfile.mkdtemp(prefix="twicesafe-postgresql-"))
            try:
                if user is not None:
                    os.chown(self._directory, user, pwd.getpwuid(user).pw_gid)
                self._initialize(programs, user)
                self._launch(programs, user, fresh_port=True)
            except BaseException:
                self.stop()
                raise

    def restart(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start again on the same port and data. `immediate` is a crash: connections die, recovery runs."""
        with self._lock:
            if self._guardian is None:
                raise StormError("the private PostgreSQL server is not running")
            self._end(_SIGNALS[how])
            self._launch(_programs(), _server_user(), fresh_port=False)

    def stop(self) -> None:
        """Stop it and remove its directory. Safe to call twice."""
        with self._lock:
            if self._guardian is not None:
                self._end(signal.SIGINT)
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def __enter__(self) -> PrivatePostgreSQL:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- how ---------------------------------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        assert self._directory is not None
        return self._directory / "data"

    @property
    def _log(self) -> Path:
        assert self._directory is not None
        return self._directory / "server.log"

    def _initialize(self, programs: Path, user: int | None) -> None:
        assert self._directory is not None
        secret = self._directory / "password"
        secret.write_text(self._password)
        secret.chmod(0o600)
        if user is not None:
            os.chown(secret, user, -1)
        done = subprocess.run(  # noqa: S603
            [
                programs / "initdb",
                *("-D", self._data, "-U", "twicesafe", "--pwfile", secret, "--auth=scram-sha-256"),
                *("--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self._directory,
            env=_environment(),
            user=user,
            group=None if user is None else pwd.getpwuid(user).pw_gid,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        secret.unlink()
        if done.returncode:
            raise StormError(f"initdb failed: {done.stderr.strip()[-600:]}")

    def _launch(self, programs: Path, user: int | None, *, fresh_port: bool) -> None:
        for _ in range(5):
            if fresh_port:
                self._port = _free_port()
            if self._launched(programs, user):
                return
        raise StormError(f"PostgreSQL did not start: {self._last_words()}")

    def _launched(self, programs: Path, user: int | None) -> bool:
        assert self._directory is not None
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # of a server that this process has seen end
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
            "logging_collector": "off",
            **self._settings,
        }
        command = [str(programs / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        guardian = [sys.executable, "-m", "twicesafe.storm.guardian", str(int(signal.SIGQUIT))]
        with self._log.open("ab") as log:
            self._guardian = subprocess.Popen(  # noqa: S603
                [*guardian, "" if user is None else str(user), str(self._directory), *command],
                cwd=self._directory,
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
            if self._state()[1:] == ("ready",):
                return True
            time.sleep(_POLL)
        self._end(signal.SIGQUIT)
        return False

    def _state(self) -> tuple[str, ...]:
        """The server's process id and its own word for its state, as pg_ctl reads them; empty before there are any."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ()
        return (lines[0], lines[7].strip()) if len(lines) > 7 else ()

    def _end(self, number: signal.Signals) -> None:
        assert self._guardian is not None
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The file's server is the guardian's child: the file goes when the server does.
            os.kill(int((self._data / "postmaster.pid").read_text().split("\n", 1)[0]), number)
        try:
            self._guardian.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            # Closing the pipe makes the guardian end its child, with SIGKILL at last, and remove the directory.
            assert self._guardian.stdin is not None
            self._guardian.stdin.close()
            self._guardian.wait(STOP_TIMEOUT)
        self._forget_guardian()

    def _forget_guardian(self) -> None:
        assert self._guardian is not None and self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian = None

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_text(errors="replace").strip()[-600:]
        return "it left no log"


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
