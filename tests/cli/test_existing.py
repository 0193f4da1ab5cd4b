"""Commands that look into a database leave none behind where there was none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import twicesafe_within
from twicesafe.once import Once
from twicesafe.stores.memory import MemoryStore


async def application(scope: object, receive: object, send: object) -> None:
    """Of ASGI, for a doctor to look at."""


ONCE = Once(MemoryStore(), scope="shop")
LOOKING = {
    "keys list": ("keys", "list", "--store"),
    "keys show": ("keys", "show", "5f3c5f3c", "--store"),
    "keys release": ("keys", "release", "5f3c5f3c", "--why", "typed in haste", "--store"),
    "outbox list": ("outbox", "list", "--store"),
    "outbox retry": ("outbox", "retry", "--parked", "--why", "typed in haste", "--store"),
    "reap": ("reap", "--once", "--store"),
    "worker": ("worker", "--app", "tests.cli.test_existing:ONCE", "--store"),
    "doctor": ("doctor", "tests.cli.test_existing:application", "--store"),
    "gateway": ("gateway", "--upstream", "http://127.0.0.1:1", "--scope-public", "--store"),
}


@pytest.mark.parametrize("command", LOOKING)
def test_a_mistyped_path_makes_no_file(command: str, tmp_path: Path) -> None:
    """House: a file that is not there is said to be missing, in one line and with status 2, and none is made."""
    ran = twicesafe_within(*LOOKING[command], f"sqlite:///{tmp_path}/shpo.db")
    assert list(tmp_path.iterdir()) == []
    assert (ran.status, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert "shpo.db" in ran.err


def test_schema_apply_makes_the_file(tmp_path: Path) -> None:
    """House: only who asks for the tables gets a file with them, and then the others find it."""
    store = f"sqlite:///{tmp_path}/shop.db"
    assert twicesafe_within("schema", "apply", "--store", store).status == 0
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".db"] == ["shop.db"]
    assert twicesafe_within("keys", "list", "--store", store).out == "Nothing is outstanding.\n"
