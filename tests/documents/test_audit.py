"""scripts/audit.py: what ends `make audit` and `.ci/run`, and what is only said."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.house.test_documents import script


@contextmanager
def database(status: int) -> Iterator[str]:
    """The address of one that answers everything with this status."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def tool(folder: Path, status: int) -> list[str]:
    """Stands in for pip-audit: writes down what it was asked, and ends with this status."""
    asked = str(folder / "asked")
    code = f"import pathlib, sys; pathlib.Path({asked!r}).write_text(' '.join(sys.argv)); sys.exit({status})"
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("answered", "ended", "status"),
    [(200, 0, 0), (200, 1, 1), (200, 2, 1), (200, -9, 1), (503, 1, 1), (403, 1, 1)],
    ids=["clean", "found", "misused", "killed", "database-fails", "refused"],
)
@pytest.mark.parametrize("passes", [False, True])
def test_a_database_that_is_reached_has_the_last_word(
    answered: int,
    ended: int,
    status: int,
    passes: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """House: whatever is found, and whatever fails once somebody answered, is a failure; only nothing found is none."""
    code = f"import os, signal; os.kill(os.getpid(), {-ended})" if ended < 0 else ""
    command = [sys.executable, "-c", code] if code else tool(tmp_path, ended)
    with database(answered) as address:
        monkeypatch.setenv("PIP_AUDIT_OSV_URL", address)
        arguments = [str(tmp_path), *(["--unreachable-passes"] if passes else [])]
        assert script("audit").main(arguments, tool=command) == status
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (status != 0)
    assert all(line.startswith("audit: FAILED: ") for line in said)
    if not code:
        asked = (tmp_path / "asked").read_text(encoding="utf-8")
        assert f"--osv-url {address} --path {tmp_path}" in asked


@pytest.mark.parametrize(("option", "status"), [([], 3), (["--unreachable-passes"], 0)])
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_database_that_is_not_reached_is_said_so_in_one_line(
    option: list[str],
    status: int,
    silent: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """House: nothing was audited, one line on stderr says so and why; whether it ends a run is for the run to say."""
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))  # and nobody listens, unless silently
        if silent:
            there.listen()
        address = f"http://127.0.0.1:{there.getsockname()[1]}/v1/query"
        monkeypatch.setenv("PIP_AUDIT_OSV_URL", address)
        found = script("audit").main([str(tmp_path), *option], tool=tool(tmp_path, 0), seconds=0.3)
    assert not (tmp_path / "asked").exists()
    assert found == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"audit: NOT AUDITED: {address} cannot be reached (")


def test_what_is_not_there_is_not_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """House: a directory that is missing was not audited, and whether the network is there does not matter."""
    assert script("audit").main([str(tmp_path / "gone"), "--unreachable-passes"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone is no directory" in line
