"""The scripts fail where they have to, and say what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.sources import ROOT


@pytest.fixture
def poor(tmp_path: Path) -> Path:
    """A PATH with the shell's tools on it and nothing to install with, of a user who is not root."""
    for tool in ("sh", "ls", "grep", "rm", "mkdir"):
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / tool).symlink_to(found)
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    return tmp_path


def run(script: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts with nothing but `path` to find programs on."""
    return subprocess.run(
        [ROOT / "scripts" / script, *arguments],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_missing_server_is_named(poor: Path) -> None:
    """House: where nothing may be installed, the missing server is named with the command that installs it."""
    ran = run("servers", poor, "postgresql", "chromium")
    assert ran.returncode == 1
    assert "apt-get install" in ran.stderr
    assert "chromium" in ran.stderr


def test_an_unknown_server_is_refused(poor: Path) -> None:
    """House: a misspelt name is an error and not a server that is there."""
    assert run("servers", poor, "postgres").returncode == 2


def test_a_missing_python_is_named(poor: Path) -> None:
    """House: without a Python that is new enough no environment is made, and the message says so."""
    ran = run("environment", poor, str(poor / "env"))
    assert ran.returncode == 1
    assert "Python 3.11 or later is needed" in ran.stderr
    assert not (poor / "env").exists()


def test_an_environment_that_failed_is_not_taken_for_made(poor: Path) -> None:
    """House: a broken installation leaves no mark, so that the next make starts anew."""
    (poor / "python3").write_text('#!/bin/sh\n[ "$1" = -m ] && exit 3\nexit 0\n')
    (poor / "python3").chmod(0o755)
    ran = run("environment", poor, str(poor / "env"))
    assert ran.returncode == 3
    assert not (poor / "env" / "made").exists()
