"""The demo as a process: where it listens, how it ends, and what it leaves behind."""

from __future__ import annotations

import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from tests.demo.service import PATIENCE, alive, demo, free_port

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
