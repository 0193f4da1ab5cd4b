"""Probe applications under their servers."""

from __future__ import annotations

import ast
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tests.behaviour.knobs import TABLES
from tests.behaviour.wire import PATIENCE, Exchange, head
from tests.parsing import parse
from twicesafe.storm.tied import tied

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Probe(NamedTuple):
    """One module of apps/: what is known of it without importing it."""

    name: str
    commands: dict[str, str]
    not_offered: dict[str, str]


def probes() -> list[Probe]:
    """Every probe application there is."""
    return [_probe(path) for path in sorted((HERE / "apps").glob("*.py")) if path.stem != "__init__"]


def _probe(path: Path) -> Probe:
    found = {}
    for node in parse(path.read_text(encoding="utf-8"), str(path)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in ("COMMANDS", "NOT_OFFERED"):
                found[target.id] = ast.literal_eval(node.value)
    return Probe(path.stem, found["COMMANDS"], found.get("NOT_OFFERED", {}))


class Server:
    """One probe application under one server, as a process group of its own. `folder` has its file and its output."""

    def __init__(self, probe: Probe, server: str, folder: Path, gates: int) -> None:
        self.probe = probe
        self.file = folder / "probe.db"
        self.output = folder / "output"
        with closing(sqlite3.connect(self.file)) as connection:
            connection.executescript(TABLES)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = [sys.executable, "-m", *shlex.split(probe.commands[server].format(port=self.port))]
        self._command = tied(command)
        self._environment = {
            **os.environ,
            "PROBE_DATABASE": str(self.file),
            "PROBE_GATES": str(gates),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).strip(":"),
            "PYTHONUNBUFFERED": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `await_ready` says when it serves."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + PATIENCE
        while not self._is_ready():
            assert self._process is not None and self._process.poll() is None, f"it ended:\n{self.said()[-4000:]}"
            assert time.monotonic() < end, f"it does not answer:\n{self.said()[-4000:]}"
            Event().wait(0.02)

    def _is_ready(self) -> bool:
        try:
            exchange = Exchange(self.port, "GET")
            exchange.send(head("GET", b"/ready", [(b"Host", b"probe"), (b"Connection", b"close")]))
            return exchange.reply().status == 200
        except (OSError, AssertionError):
            return False

    def said(self) -> str:
        """All that it wrote."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as its operator would."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, how)
        try:
            process.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
