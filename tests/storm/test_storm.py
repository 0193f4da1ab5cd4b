"""The storm itself, small: real servers, real faults, and what is counted afterwards."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.running import Ran, command, twicesafe
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresqlServer

KEYS = [
    "intents",
    "attempts",
    "effects",
    "duplicates",
    "lost",
    "unknown",
    "stuck",
    "faults",
    "store",
    "seed",
    "seconds",
]
INTENTS = 40
PROCESSES = {"sqlite": 3, "postgresql": 10, "mysql": 5}
"""How many a storm starts at least."""


def storm(*arguments: str) -> Ran:
    return twicesafe("storm", "--intents", str(INTENTS), "--clients", "30", "--json", *arguments)


def test_one_effect_for_each_intent_on_sqlite(tmp_path: Path) -> None:
    """R42, A7: servers are killed, answers lost, requests sent twice; each payment is in the ledger once."""
    file = tmp_path / "storm.db"
    ran = storm("--store", f"sqlite:///{file}", "--seed", "7")
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT intent, count(*) FROM storm_payments GROUP BY intent").fetchall()
    assert sorted(rows) == [(intent, 1) for intent in range(INTENTS)]
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"]) == (0, 0)
    assert ran.status == 0
    assert list(report) == KEYS
    assert (report["intents"], report["store"], report["seed"]) == (INTENTS, f"sqlite:///{file}", 7)
    assert report["attempts"] > 2 * INTENTS
    assert report["faults"]["sigkill"] >= 8
    assert (report["faults"]["database_restart"], report["faults"]["database_crash"]) == (1, 0)
    for kind in ("sigkill_after_claim", "sigkill_after_effect", "sigkill_after_commit", "answer_dropped"):
        assert report["faults"][kind] >= 1, kind


def test_one_effect_for_each_intent_on_a_postgresql_of_its_own() -> None:
    """R42, A7: on PostgreSQL the same, and the database itself is restarted and crashed under way."""
    ran = storm("--store", "postgresql", "--seed", "7")
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"]) == (0, 0)
    assert (ran.status, report["store"]) == (0, "postgresql")
    assert report["faults"]["sigkill"] >= 8
    assert (report["faults"]["database_restart"], report["faults"]["database_crash"]) == (1, 1)


def test_one_effect_for_each_intent_on_a_mariadb_of_its_own() -> None:
    """R42, A7: on MariaDB the same, which is restarted and killed under way; the report says what it was."""
    ran = storm("--store", "mysql", "--seed", "7")
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"]) == (0, 0)
    assert (ran.status, report["store"]) == (0, "mysql")
    assert report["faults"]["sigkill"] >= 8
    assert (report["faults"]["database_restart"], report["faults"]["database_crash"]) == (1, 1)
    assert "MariaDB" in ran.err


def test_a_mysql_of_somebody_elses_is_left_running(mariadb_server: MariadbServer) -> None:
    """R22, R42: a given MySQL is used and not restarted; one that lets nobody in is named without its password."""
    url = mariadb_server.dsn(mariadb_server.create_database())
    ran = twicesafe("storm", "--store", url, "--intents", "10", "--clients", "5", "--json")
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"], report["stuck"]) == (10, 0, 0, 0)
    assert report["faults"]["database_restart"] == 0
    assert "was not restarted" in ran.err
    refused = twicesafe("storm", "--store", url.replace("twicesafe@", "twicesafe:hunter2@"), "--json")
    assert refused.status == 2
    assert "hunter2" not in refused.err


def test_a_database_of_somebody_elses_is_left_running(postgresql_server: PostgresqlServer) -> None:
    """R22, R42: a given server is used and not restarted, which is said; its password is not."""
    url = postgresql_server.create_database().replace("twicesafe@", "twicesafe:hunter2@")
    ran = twicesafe("storm", "--store", url, "--intents", "10", "--clients", "5", "--json")
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"], report["stuck"]) == (10, 0, 0, 0)
    assert (report["faults"]["database_restart"], report["faults"]["database_crash"]) == (0, 0)
    assert "was not restarted" in ran.err
    assert report["store"] == url.replace("hunter2", "***")
    assert "hunter2" not in ran.err


def test_without_twicesafe_payments_happen_twice() -> None:
    """R42: the same plan without twicesafe does damage, which the exit status says; the storm can fail."""
    ran = storm("--store", "sqlite", "--seed", "7", "--naive")
    assert ran.json["duplicates"] > 0
    assert ran.json["effects"] == INTENTS + ran.json["duplicates"] - ran.json["lost"]
    assert ran.status == 1


def test_a_table_for_people() -> None:
    """R42: without --json the seed is said first, so that the storm can be repeated, and a table says the numbers."""
    ran = twicesafe("storm", "--intents", "6", "--clients", "3")
    assert ran.status == 0
    seed = ran.err.splitlines()[0].partition(":")[0].removeprefix("Seed ")
    assert f"seed {seed}" in ran.out
    for word in ("effects", "duplicates", "lost", "unknown", "stuck", "SIGKILL"):
        assert word in ran.out
    assert "One effect per intent." in ran.out


def test_the_same_damage_on_postgresql(postgresql_server: PostgresqlServer) -> None:
    """R42: a better database does not help: without twicesafe payments happen twice on PostgreSQL as well."""
    ran = storm("--store", postgresql_server.create_database(), "--seed", "7", "--naive")
    assert ran.json["duplicates"] > 0
    assert ran.status == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("store", PROCESSES)
def test_an_interrupted_storm_leaves_nobody_behind(store: str, number: signal.Signals, status: int) -> None:
    """R42: interrupted by SIGINT or SIGTERM, the storm ends every process it started, the database server included."""
    with subprocess.Popen(
        command("storm", "--store", store, "--intents", "2000", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            started = descendants_once_there_are(PROCESSES[store], process)
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert left_of(started) == []
    assert (process.returncode, out) == (status, "")
    assert "Traceback" not in err


def test_a_storm_that_is_killed_leaves_nobody_behind() -> None:
    """R42: even SIGKILL, which it cannot act on, ends the servers and the database with it, and their data."""
    with TemporaryDirectory(prefix="twicesafe-test-") as folder:
        Path(folder).chmod(0o755)  # as root, the database server is another user
        with subprocess.Popen(
            command("storm", "--store", "postgresql", "--intents", "2000", "--json"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": folder},
        ) as process:
            try:
                started = descendants_once_there_are(10, process)
            finally:
                process.kill()
        assert left_of(started) == []
        assert list(Path(folder).glob("twicesafe-postgresql-*")) == []


def descendants_once_there_are(enough: int, process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> set[int]:
    """The processes below `process`, as soon as there are that many."""
    for _ in range(600):
        found = _descendants(process.pid)
        if len(found) >= enough:
            return found
        assert process.poll() is None, "the storm ended before it was interrupted"
        moment()
    raise AssertionError(f"the storm has started only {found}")


def moment() -> None:
    """A tenth of a second, for processes to start or end in: nothing else tells of it."""
    threading.Event().wait(0.1)


def _descendants(root: int) -> set[int]:
    parents = {pid: parent for pid, parent, _ in _processes()}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found - {root}


def alive(pids: set[int]) -> set[int]:
    """Which of `pids` still run. One that ended and that nobody has asked about yet does not."""
    return {pid for pid, _, state in _processes() if pid in pids and not state.startswith("Z")}


def left_of(pids: set[int]) -> list[str]:
    """What is left of `pids` when they had time to end: what each is, and does. On a busy disk that takes long."""
    for _ in range(900):
        if not alive(pids):
            return []
        moment()
    shown = ["ps", "-o", "pid=,ppid=,stat=,wchan:30=,args=", "-p", ",".join(map(str, alive(pids)))]
    return subprocess.run(shown, capture_output=True, text=True, check=False).stdout.splitlines()


def _processes() -> list[tuple[int, int, str]]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    return [(int(pid), int(parent), state) for pid, parent, state in map(str.split, listed.splitlines())]
