"""The program `twicesafe`, run as its users run it, as a process; or within this one, for what needs no other."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import pytest

from twicesafe.cli import main

TIMEOUT = 100.0


class Ran(NamedTuple):
    """What a run left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


def command(*arguments: str) -> list[str]:
    """The command line of the program, run by the Python that runs the tests."""
    return [sys.executable, "-m", "twicesafe", *arguments]


def twicesafe(*arguments: str) -> Ran:
    """Run it to its end. Whatever happens, no user ever sees a traceback."""
    ran = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert "Traceback" not in ran.stdout + ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def twicesafe_within(*arguments: str) -> Ran:
    """Run it in this process, which takes a hundredth of the time. An error that it does not catch is the test's."""
    out, err, status = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["twicesafe", *arguments])
        try:
            main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Ran(status, out.getvalue(), err.getvalue())
