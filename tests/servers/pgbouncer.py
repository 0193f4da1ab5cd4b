"""A private PgBouncer in front of a PostgreSQL server, pooling by transaction: no session outlives a transaction.

with PgBouncer(server) as bouncer:
    dsn = bouncer.dsn("db1")
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.servers.postgresql import PostgresqlServer

ROLES = ("twicesafe", *(f"place{n}" for n in range(1000)))
"""Whom it lets in. No server settings pass through it, so a test that needs some makes a role that has them."""

LOOKS = 500
"""How often it is looked for after its start."""


class PgBouncer:
    """One, for every database of `server`. `settings` go into its section [pgbouncer]."""

    def __init__(self, server: PostgresqlServer, settings: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def dsn(self, database: str = "postgres") -> str:
        """A database of the server's, by way of this."""
        return self._server.dsn(database, port=self.port)

    def __enter__(self) -> PgBouncer:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise RuntimeError("pgbouncer was not found: `apt-get install pgbouncer` on Debian and Ubuntu")
        self._folder = Path(tempfile.mkdtemp(prefix="twicesafe-pgbouncer-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(self._folder / "users"),
            "pool_mode": "transaction",
            "default_pool_size": "3",
            "max_client_conn": "500",
            "server_idle_timeout": "5",
            "ignore_startup_parameters": "options, extra_float_digits",
            "log_connections": "0",
            "log_disconnections": "0",
            **self._settings,
        }
        (self._folder / "users").write_text("".join(f'"{name}" ""\n' for name in ROLES))
        lines = [f"* = host=127.0.0.1 port={self._server.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (self._folder / "pgbouncer.ini").write_text("\n".join(["[databases]", *lines, ""]))
        command = [program, "-q", str(self._folder / "pgbouncer.ini")]
        account: dict[str, object] = {}
        if os.geteuid() == 0:
            # Like PostgreSQL it refuses to run as root.
            nobody = pwd.getpwnam("nobody")
            account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **account
            )  # type: ignore[call-overload]
        for _ in range(LOOKS):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return self
            threading.Event().wait(0.02)
        said = (self._folder / "log").read_text(errors="replace")
        self.__exit__(None, None, None)
        raise RuntimeError(f"PgBouncer did not start:\n{said}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)
