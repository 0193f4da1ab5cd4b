"""A process of the storm's own ends with who started it."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path
from types import ModuleType

import pytest

from twicesafe.storm import started

MODULE = "tests.storm.lasting"


@pytest.mark.parametrize("unread", [b"", b"ready 0\n"], ids=["nothing unread", "something unread"])
def test_it_ends_with_its_starter(unread: bytes, tmp_path: Path) -> None:
    """R42: also with a starter that was killed before it had read what the process said, which resets the line."""
    lasting: ModuleType = __import__(MODULE, fromlist=["work"])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        told = {"says": unread.decode()}
        process = multiprocessing.get_context("spawn").Process(
            target=started.live, args=(lasting.__name__, told, str(tmp_path / "log"), theirs), daemon=True
        )
        process.start()
        theirs.close()
        if unread:
            assert ours.recv(1, socket.MSG_PEEK)
        ours.close()
        process.join(60)
        assert process.exitcode == 1
