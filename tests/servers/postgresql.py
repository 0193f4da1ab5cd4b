"""A private PostgreSQL server in a temporary folder: made, crashed, restarted and thrown away at will.

    with PostgresqlServer() as server:
        dsn = server.create_database()

It listens on 127.0.0.1 and on a socket in its own folder, trusts whoever can reach it, and is gone with the `with`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

INSTALL = (
    "PostgreSQL's server programs (initdb, pg_ctl) were not found on PATH nor in /usr/lib/postgresql/*/bin. "
    "Install them: `apt-get install postgresql` on Debian and Ubuntu, `dnf install postgresql-server` on Fedora, "
    "`brew install postgresql` on macOS."
)
OWNERS = ("postgres", "nobody")
"""Who runs the server where the tests run as root, which PostgreSQL refuses."""

PORT_ATTEMPTS = 5


class PostgresqlServer:
    """One server. `durable` leaves fsync on; `settings` go to its command line as they are."""

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self._durable = durable
        self._settings = settings or {}
        self._databases = count(1)
        self.port = 0
        self.running = False

    # --- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> PostgresqlServer:
        self.folder = Path(tempfile.mkdtemp(prefix="twicesafe-postgresql-"))
        try:
            if self._owner is not None:
                os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
            self._run(
                "initdb", "--pgdata", str(self._data), "--auth=trust", "--username=twicesafe", "--encoding=UTF8",
                "--locale=C", "--no-sync", "--no-instructions",
            )  # fmt: skip
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start and wait until it answers. The port stays the same over restarts."""
        for attempt in range(PORT_ATTEMPTS):
            if not self.port:
                self.port = _free_port()
            try:
                self._pg_ctl("start", "--log", str(self.folder / "log"), "-o", self._options)
            except subprocess.CalledProcessError:
                if attempt + 1 == PORT_ATTEMPTS or "Address already in use" not in self.log():
                    raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}") from None
                self.port = 0
            else:
                self.running = True
                return

    def stop(self, mode: str = "fast") -> None:
        """`smart`, `fast`, or `immediate`, which is a crash: what was not committed is gone."""
        if self.running:
            self.running = False
            self._pg_ctl("stop", "--mode", mode)

    def restart(self, mode: str = "fast") -> None:
        """Stop and start on the same port with the same data."""
        self.stop(mode)
        self.start()

    def log(self) -> str:
        """What the server wrote so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- use --------------------------------------------------------------------------------------------------------

    def dsn(self, database: str = "postgres", *, port: int | None = None) -> str:
        """`port`: of a proxy in front of the server."""
        return f"postgresql://twicesafe@127.0.0.1:{port or self.port}/{database}"

    def create_database(self) -> str:
        """A new empty database; its DSN."""
        name = f"db{next(self._databases)}"
        self._run("createdb", "--host=127.0.0.1", f"--port={self.port}", "--username=twicesafe", name)
        return self.dsn(name)

    # --- how --------------------------------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _options(self) -> str:
        durability = {} if self._durable else {"fsync": "off", "full_page_writes": "off"}
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
            **durability,
            **self._settings,
        }
        return " ".join(f"-c {name}={value}" for name, value in settings.items())

    @cached_property
    def _programs(self) -> Path:
        found = shutil.which("initdb")
        if found is not None:
            return Path(found).resolve().parent
        versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
        if not versions:
            raise RuntimeError(INSTALL)
        return max(versions, key=lambda path: float(path.parent.name))

    @cached_property
    def _owner(self) -> pwd.struct_passwd | None:
        """The account to run as; None where the tests' own will do."""
        if os.geteuid() != 0:
            return None
        for name in OWNERS:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise RuntimeError(f"PostgreSQL does not run as root, and none of the accounts {', '.join(OWNERS)} exists.")

    def _pg_ctl(self, action: str, *options: str) -> None:
        self._run("pg_ctl", action, "--pgdata", str(self._data), "--wait", "--timeout=60", "--silent", *options)

    def _run(self, program: str, *options: str) -> None:
        account: dict[str, Any] = {}
        if self._owner is not None:
            account = {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        subprocess.run(
            [self._programs / program, *options],
            cwd=self.folder,
            check=True,
            # The server inherits these; a pipe would keep its reader waiting for as long as the server lives.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **account,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """One server for the whole session (one for each xdist worker): create a database of your own in it."""
    with PostgresqlServer() as server:
        yield server
