"""`twicesafe dashboard`: a process of its own, as its users start it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import closing
from io import StringIO
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.cli.running import command, twicesafe_within
from tests.dashboard.place import PASSWORD, PATIENCE, PEOPLE, place
from tests.dashboard.visitor import Caller
from twicesafe.stores.urls import open_store

FINDERS = """
from twicesafe.reconcile import NotDone

finders = {"create_charge": lambda unknown: NotDone()}
"""


def test_a_process_of_its_own_settles_what_another_left(tmp_path: Path) -> None:
    """R26: served beside the application, it asks the application's reconcilers, and says what it cannot know."""
    with place(tmp_path) as shop:
        shop.unknown()
        (tmp_path / "people").write_text(f"\ufeff# who may look\nann:{PEOPLE['ann']}\n", encoding="utf-8")
        (tmp_path / "work.py").write_text(FINDERS)
        options = ("--store", "sqlite:///shop.db", "--people", "people", "--listen", "127.0.0.1:0")
        process = subprocess.Popen(
            command("dashboard", *options, "--app", "work:finders"), stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        try:
            assert process.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
            assert found is not None
            caller = Caller(found[0])
            assert caller.sign_in() == 303
            overview = caller.get("/")[2]
            record = shop.store.outstanding().records[0]
            address = f"/records/{record.digest.hex()}"
            caller.get(address)
            assert caller.post(f"{address}/ask", seen=caller.seen(), why="w") == (303, f"{address}?done=asked-not-done")
            assert shop.charge()[0] == 201
            assert "This dashboard is a process of its own" in overview and "Not counted here" in overview
            # A page that is open ends with it, without a word.
            events = Request(f"{caller.url}/events", headers={"cookie": caller.cookie})
            with urlopen(events, timeout=PATIENCE) as stream:
                assert stream.readline() == b"retry: 500\n"
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
            process.communicate()


def test_a_line_for_somebody_is_made_of_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """R22: --hash reads a password, and prints who may look with what is kept of it; a short one is refused."""
    monkeypatch.setattr("twicesafe.dashboard.people.COST", (2, 1, 1))
    monkeypatch.setattr(sys, "stdin", StringIO(f"{PASSWORD}\n"))
    ran = twicesafe_within("dashboard", "--hash", "ann")
    assert ran.status == 0 and re.fullmatch(r"ann:scrypt\$\S+\n", ran.out)
    assert PASSWORD not in ran.out
    monkeypatch.setattr(sys, "stdin", StringIO("short\n"))
    assert twicesafe_within("dashboard", "--hash", "ann").status == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--store"),
        (("--store", "sqlite:///none.db"), "there is no file"),
        (("--store", "sqlite:///shop.db", "--listen", "8090"), "HOST:PORT"),
        (("--store", "sqlite:///shop.db", "--people", "nobody"), "--people"),
        (("--store", "sqlite:///shop.db", "--people", "people"), "line 1"),
        (("--store", "sqlite:///shop.db", "--secret", "short"), "32 bytes"),
        (("--store", "sqlite:///shop.db", "--app", "json:loads"), "mapping"),
        (("--store", "redis://127.0.0.1:1"), "cannot list records"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    """House: a wrong option, file or store ends it with 2 and one line that names it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people").write_text("ann")
    with closing(open_store("sqlite:///shop.db")) as store:
        store.apply_schema()
    ran = twicesafe_within("dashboard", *options)
    assert ran.status == 2
    assert says in ran.err and ran.err.count("\n") == 1
