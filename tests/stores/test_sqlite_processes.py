"""Many processes on one SQLite file: rivals, kills, forks, and stores that nobody closed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.sqlite_file import BOUND, File, effect
from twicesafe.core.claims import Claimed, Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects
from twicesafe.stores.sqlite import SqliteStore

PROCESSES = 16

RIVAL = """
import os, sqlite3, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.core.lifecycle import Verdict
from twicesafe.stores.sqlite import SqliteStore

path, way = sys.argv[1:]
store = SqliteStore(path)
print("ready", flush=True)
sys.stdin.read()
won = 0
for key in range(8):
    if way == "leased":
        found = store.claim(wish(f"key-{key}"))
        if isinstance(found, Claimed):
            with sqlite3.connect(path, timeout=30) as ledger:
                ledger.execute("INSERT INTO ledger (name) VALUES (?)", (f"key-{key}",))
            ledger.close()
            store.complete(found.ownership, ANSWER, KEY, BODY)
            won += 1
        else:
            assert found.verdict in (Verdict.IN_PROGRESS, Verdict.REPLAY), found
    else:
        with store.transaction() as transaction:
            found = transaction.claim(wish(f"key-{key}"))
            if isinstance(found, Claimed):
                transaction.connection.execute("INSERT INTO ledger (name) VALUES (?)", (f"key-{key}",))
                transaction.complete(found.ownership, ANSWER, KEY, BODY)
                won += 1
            else:
                assert found.verdict is Verdict.REPLAY, found
store.close()
print(won)
"""

VICTIM = """
import sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.stores.sqlite import SqliteStore

path, where = sys.argv[1:]
store = SqliteStore(path)

def reached(place):
    if place == where:
        print(place, flush=True)
        sys.stdin.read()

if where.startswith("leased"):
    own = store.claim(wish()).ownership
    reached("leased, claimed")
    store.complete(own, ANSWER, KEY, BODY)
    reached("leased, completed")
else:
    with store.transaction() as transaction:
        own = transaction.claim(wish()).ownership
        reached("claimed")
        transaction.connection.execute("INSERT INTO ledger (name) VALUES ('key')")
        reached("effect done")
        transaction.complete(own, ANSWER, KEY, BODY)
        reached("completed")
"""


def outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What they printed; each must have ended well."""
    found = []
    for process in processes:
        out, complaint = process.communicate(timeout=BOUND)
        assert process.returncode == 0, complaint
        found.append(out)
    return found


@pytest.mark.parametrize("way", ["leased", "transactional"])
def test_one_of_many_processes_wins_each_key(file: File, way: str) -> None:
    """I1, C1, R10: of 16 processes that claim the same keys at once, one runs each; nobody meets an error."""
    started = [file.run(RIVAL, way) for _ in range(PROCESSES)]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        # End of input is the starting signal.
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    won = [int(out) for out in outputs(started)]
    assert [file.effects(f"key-{key}") for key in range(8)] == [1] * 8
    assert sum(won) == 8


@pytest.mark.parametrize(
    ("where", "effects", "verdict"),
    [
        ("claimed", 0, None),
        ("effect done", 0, None),
        ("completed", 1, Verdict.REPLAY),
        ("leased, claimed", 0, Verdict.IN_PROGRESS),
        ("leased, completed", 0, Verdict.REPLAY),
    ],
)
def test_a_killed_process_leaves_all_or_nothing(file: File, where: str, effects: int, verdict: Verdict | None) -> None:
    """A7, R23, I11, B5: SIGKILL leaves effect and answer or neither, and what was told to be durable is there."""
    process = file.run(VICTIM, where)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == where
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=BOUND)
    assert file.effects() == effects
    store = SqliteStore(file.path)
    with store.transaction() as transaction:
        found = transaction.claim(wish(effects=Effects.TRANSACTIONAL))
        if verdict is None:
            assert isinstance(found, Claimed)
            effect(transaction)
            transaction.complete(found.ownership, ANSWER, KEY, BODY)
            assert file.effects() == 1
        else:
            assert isinstance(found, Existing) and found.verdict is verdict
    store.close()


def test_a_store_works_on_in_a_forked_process(tmp_path: Path) -> None:
    """R10: a store that was used before a fork, as under a pre-forking server, works in parent and child."""
    program = """
import os, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.core.claims import Claimed
from twicesafe.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
store.apply_schema()
def use(key):
    own = store.claim(wish(key)).ownership
    store.complete(own, ANSWER, KEY, BODY)
    with store.transaction() as transaction:
        own = transaction.claim(wish(key + " in a transaction")).ownership
        transaction.complete(own, ANSWER, KEY, BODY)
use("before")
child = os.fork()
if child == 0:
    use("child")
    store.close()
    os._exit(0)
use("parent")
assert os.waitpid(child, 0)[1] == 0
use("after")
store.close()
"""
    path = tmp_path / "records.db"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(path)], capture_output=True, text=True, timeout=BOUND
    )
    assert ended.returncode == 0, ended.stderr
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("SELECT count(*) FROM twicesafe_records WHERE state = 'completed'").fetchone()[0] == 8
        assert plain.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_forgotten_store_does_not_keep_a_process_from_ending(tmp_path: Path) -> None:
    """R42: a process whose stores nobody closed ends by itself, and with what it was told to be durable."""
    program = """
import asyncio, sys
from tests.stores.claims import ANSWER, BODY, KEY, wish
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore

blocking = SqliteStore(sys.argv[1])
blocking.apply_schema()
blocking.complete(blocking.claim(wish("blocking")).ownership, ANSWER, KEY, BODY)
store = AsyncSqliteStore(sys.argv[1])
async def main():
    async with store.transaction() as transaction:
        own = (await transaction.claim(wish())).ownership
        await transaction.complete(own, ANSWER, KEY, BODY)
asyncio.run(main())
"""
    path = tmp_path / "records.db"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=BOUND)
    assert ended.returncode == 0, ended.stderr
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("SELECT count(*) FROM twicesafe_records WHERE state = 'completed'").fetchone()[0] == 2
