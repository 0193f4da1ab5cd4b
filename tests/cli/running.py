"""The program `twicesafe`, run as its users run it: as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

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
