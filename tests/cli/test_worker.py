"""What `twicesafe worker --app` takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from twicesafe.cli.worker import loaded
from twicesafe.errors import ConfigurationError
from twicesafe.once import AsyncOnce
from twicesafe.outbox.relay import Relay
from twicesafe.stores.sqlite import AsyncSqliteStore


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A module of an application."""
    store = AsyncSqliteStore(tmp_path / "shop.db")
    module = ModuleType("shop_work")
    module.once = AsyncOnce(store, scope="jobs")  # type: ignore[attr-defined]
    module.relay = Relay(store, print)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_work", module)
    return module


def test_a_relay_runs_beside_operations(work: ModuleType) -> None:
    """R27, R28: one process may go on with operations and empty the outbox, each at its own pace."""
    parts = loaded(["shop_work:once", "shop_work:relay"], "", 5.0).health()
    assert [part.part for part in parts] == ["resume", "relay"]


def test_what_is_no_part_is_refused_by_name(work: ModuleType) -> None:
    """R44: the error says which --app it was, and what would be one."""
    work.relay = print  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="--app shop_work:relay is a builtin_function_or_method: name a Once"):
        loaded(["shop_work:once", "shop_work:relay"], "", 5.0)


@pytest.mark.parametrize("configured", ["", "logging.basicConfig()"])
def test_a_failure_is_said_once(configured: str) -> None:
    """R44: whether or not the application has set up a log, whoever starts the worker reads of a failure once."""
    code = f"""
import logging
from twicesafe.cli.worker import _tell
from twicesafe.observe import Event
{configured}
_tell(Event("worker.failed", "reap", "", loud=True))
_tell(Event("conflict", "charge", "", loud=False))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr.count("twicesafe.worker.failed") == 1, ran.stderr
    assert "conflict" not in ran.stderr
