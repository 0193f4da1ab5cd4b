"""`twicesafe reap`: one round for a timer, round after round until a signal, and a word where it cannot be done."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import TIMEOUT, command, twicesafe, twicesafe_within
from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, wish
from twicesafe.core.claims import Claimed
from twicesafe.core.record import Effects, Record, RecordState
from twicesafe.stores.contract import Store
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.sqlite import SqliteStore


def left_behind(store: Store) -> None:
    """Five expired records, one live one, and a stale claim."""
    store.apply_schema()
    for n in range(5):
        found = store.claim(wish(f"old-{n}"))
        assert isinstance(found, Claimed)
        store.complete(found.ownership, ANSWER, 1, 1)
    found = store.claim(wish("live"))
    assert isinstance(found, Claimed)
    store.complete(found.ownership, ANSWER, 3_600_000_000, 3_600_000_000)
    assert isinstance(store.claim(wish("stale", effects=Effects.OPAQUE, lease_us=1)), Claimed)


def row(store: Store, key: str) -> Record | None:
    """What is there under this key."""
    return store.read(wish(key).digest).record


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_one_round(request: Any, tmp_path: Path, kind: str) -> None:
    """R20, R27: what has expired is gone, the stale claim is unknown, the live answer is there."""
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
        store: Any = SqliteStore(tmp_path / "shop.db")
    else:
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        url = f"{server.create_database()}?daily_bodies=1"
        store = PsycopgStore(url)
    left_behind(store)
    ran = twicesafe("reap", "--store", url, "--once", "--batch", "2", "--pause", "0", "--json")
    assert [row(store, f"old-{n}") for n in range(5)] == [None] * 5
    stale, live = row(store, "stale"), row(store, "live")
    assert stale is not None and stale.state is RecordState.UNKNOWN
    assert live is not None and live.response == ANSWER
    assert (ran.status, ran.json) == (0, {"purged": 5, "settled": 1})
    again = twicesafe_within("reap", "--store", url, "--once", "--pause", "0")
    assert again.out == "0 expired records and bodies purged; 0 stale claims ended.\n"
    store.close()


def test_round_after_round_until_it_is_stopped(tmp_path: Path) -> None:
    """R20: without --once it goes on until SIGTERM, which ends it with that signal's status and no traceback."""
    store = SqliteStore(tmp_path / "shop.db")
    left_behind(store)
    line = command("reap", "--store", f"sqlite:///{tmp_path}/shop.db", "--every", "0", "--pause", "0")
    reaper = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert reaper.stderr is not None
        assert "Reaping sqlite:///" in reaper.stderr.readline()
        assert "settled_stale" in reaper.stderr.readline()
        reaper.send_signal(signal.SIGTERM)
        out, err = reaper.communicate(timeout=TIMEOUT)
    finally:
        reaper.kill()
    assert [row(store, f"old-{n}") for n in range(5)] == [None] * 5
    assert (reaper.returncode, out, err) == (143, "", "")
    store.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "sqlite:///{folder}/empty.db"), "schema apply"),
        (("--store", "postgresql://app:hunter2@127.0.0.1:1/shop"), "app:***@127.0.0.1"),
        (("--store", "shop.db"), "address"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, str], said: str) -> None:
    """House: status 2, and one line that says what to do, without a password."""
    ran = twicesafe_within("reap", "--once", *(one.format(folder=tmp_path) for one in arguments))
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err and "hunter2" not in ran.err
    assert ran.err.count("\n") == 1
