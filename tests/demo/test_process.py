"""The demo as a process: where it listens, how it ends, and what it leaves behind."""

from __future__ import annotations

import signal
import socket
import sqlite3
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.demo.service import PATIENCE, alive, demo, free_port
from tests.demo.visitor import Visitor
from twicesafe.demo import serve
from twicesafe.errors import ConfigurationError, TwicesafeError

pytestmark = pytest.mark.xdist_group("demo")


def get(url: str) -> int:
    """The status of a page."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return int(answer.status)


def eventually(gone: set[int]) -> bool:
    """Whether these processes end within a bounded time."""
    end = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in gone):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_the_wished_port_is_taken_when_it_is_free(tmp_path: Path) -> None:
    """Demo: it listens where it was told to, on 127.0.0.1 only, and says where its ledger is."""
    port = free_port()
    with demo(tmp_path, port) as running:
        assert running.url == f"http://127.0.0.1:{port}"
        assert str(running.file) in running.said
        assert get(running.url) == 200
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", port), timeout=5).close()


def test_another_port_is_taken_when_the_wished_one_is_not_free(tmp_path: Path) -> None:
    """Demo: a port that is taken is said to be, and the page is served from another one."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with demo(tmp_path, port) as running:
            assert f"Port {port} is taken" in running.said
            assert running.url != f"http://127.0.0.1:{port}"
            assert get(running.url) == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Demo: Ctrl-C and SIGTERM end it with status 0, and neither a process nor a port is left."""
    with demo(tmp_path) as running:
        get(running.url)
        children = running.children()
        assert len(children) == 2
        assert running.stop(number) == 0
        assert not any(alive(pid) for pid in children)
        with pytest.raises(OSError, match="refused"):
            get(running.url)


def test_no_server_outlives_a_demo_that_was_killed(tmp_path: Path) -> None:
    """Demo: even after SIGKILL nothing goes on."""
    with demo(tmp_path) as running:
        children = running.children()
        assert len(children) == 2
        assert running.stop(signal.SIGKILL) == -signal.SIGKILL
        assert eventually(children)


@pytest.mark.parametrize("name", ["missing/payments.db", "payments.txt"])
def test_a_file_that_can_be_no_ledger_is_refused(tmp_path: Path, name: str) -> None:
    """Demo: a folder that is not there, or a file of another kind, is named in one error before anything starts."""
    (tmp_path / "payments.txt").write_text("not a database, but a text of some length\n" * 50)
    with pytest.raises(ConfigurationError, match="the ledger cannot be kept in"):
        serve(0, tmp_path / name)


def test_a_server_that_cannot_start_ends_the_demo(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Demo: it does not try for ever; it says which server failed, after what that one said itself."""
    file = tmp_path / "payments.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE VIEW twicesafe_records AS SELECT 1")
    with pytest.raises(TwicesafeError, match="the safe server could not start"):
        serve(0, file)
    assert "twicesafe" in capfd.readouterr().err


def test_a_ledger_is_kept_in_the_file_it_was_given(tmp_path: Path) -> None:
    """Demo, I5: what one run has charged is remembered by the next, and so is the key it was charged under."""
    with demo(tmp_path) as running:
        visitor = Visitor(running)
        request = visitor.request("safe", "key-1")
        assert visitor.send(request).startswith(b"HTTP/1.1 201")
        assert running.stop() == 0
    with demo(tmp_path) as running:
        again = Visitor(running)
        again.shopper = visitor.shopper
        answer = again.send(request)
        assert again.charges("safe") == [84_00]
        assert b"idempotent-replayed: true" in answer
    assert {path.name for path in tmp_path.iterdir()} == {"payments.db", "payments-naive.db"}
