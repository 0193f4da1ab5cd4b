"""Servers that tests start end with them."""

from __future__ import annotations

import subprocess
import sys

from twicesafe.storm.tied import tied

SERVER = ["sh", "-c", "echo up; exec sleep 100"]
STARTER = f"import subprocess; from twicesafe.storm.tied import tied; subprocess.run(tied({SERVER}))"


def test_a_server_ends_with_a_test_run_that_is_killed() -> None:
    """R42: its output, which nobody else holds, ends long before it would end by itself."""
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        starter.kill()
        assert starter.communicate(timeout=30) == (b"", None)


def test_a_tied_command_ends_as_it_would() -> None:
    """R42: a tie changes neither what a command says nor its exit status."""
    ran = subprocess.run(tied(["sh", "-c", "echo said; exit 3"]), capture_output=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"said\n", b"", 3)
