"""The storm itself, small: real servers, real faults, and what is counted afterwards."""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from tests.cli.running import Ran, command, twicesafe

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


def storm(*arguments: str) -> Ran:
    return twicesafe("storm", "--intents", str(INTENTS), "--clients", "30", "--json", *arguments)


def test_one_effect_for_each_intent_on_sqlite() -> None:
    """R42, A7: servers are killed, answers lost, requests sent twice; each payment is in the ledger once."""
    ran = storm("--store", "sqlite", "--seed", "7")
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"]) == (0, 0)
    assert ran.status == 0
    assert list(report) == KEYS
    assert (report["intents"], report["store"], report["seed"]) == (INTENTS, "sqlite", 7)
    assert report["attempts"] > 2 * INTENTS
    assert report["faults"]["sigkill"] >= 8
    assert report["faults"]["database_restart"] == 1
    assert report["faults"]["answer_dropped"] >= 1
    for point in ("claim", "effect", "commit"):
        assert report["faults"][f"sigkill_after_{point}"] >= 1


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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_an_interrupted_storm_leaves_nobody_behind(store: str, number: signal.Signals, status: int) -> None:
    """R42: interrupted by SIGINT or SIGTERM, the storm ends every process it started, the database server included."""
    with subprocess.Popen(
        command("storm", "--store", store, "--intents", "2000", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            started = _descendants_once_there_are(3 if store == "sqlite" else 10, process)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert _alive(started) == set()
    assert (process.returncode, out) == (status, "")
    assert "Traceback" not in err


def test_a_storm_that_is_killed_leaves_nobody_behind() -> None:
    """R42: even SIGKILL, which it cannot act on, ends the servers and the database with it."""
    with subprocess.Popen(
        command("storm", "--store", "postgresql", "--intents", "2000", "--json"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            started = _descendants_once_there_are(10, process)
        finally:
            process.kill()
    for _ in range(300):
        left = _alive(started)
        if not left:
            break
        _moment()
    assert left == set()


def _descendants_once_there_are(enough: int, process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> set[int]:
    """The processes below `process`, as soon as there are that many."""
    for _ in range(600):
        found = _descendants(process.pid)
        if len(found) >= enough:
            return found
        assert process.poll() is None, "the storm ended before it was interrupted"
        _moment()
    raise AssertionError(f"the storm has started only {found}")


def _moment() -> None:
    """A tenth of a second, for processes to start or end in: nothing else tells of it."""
    threading.Event().wait(0.1)


def _descendants(root: int) -> set[int]:
    parents = {pid: parent for pid, parent, _ in _processes()}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found - {root}


def _alive(pids: set[int]) -> set[int]:
    """Which of `pids` still run. One that ended and that nobody has asked about yet does not."""
    return {pid for pid, _, state in _processes() if pid in pids and not state.startswith("Z")}


def _processes() -> list[tuple[int, int, str]]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    return [(int(pid), int(parent), state) for pid, parent, state in map(str.split, listed.splitlines())]
