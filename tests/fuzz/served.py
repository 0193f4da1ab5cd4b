"""The demo as it is served, tried by its own OpenAPI documents: no 5xx, and no answer that they do not have."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.demo.service import demo
from twicesafe.demo.lanes import Lane
from twicesafe.demo.shopper import COOKIE, new_shopper

EXAMPLES: Final = 60
LONGEST: Final = 300
"""Seconds for one lane, on a machine that has much else to do."""
EXCLUDED: Final = "positive_data_acceptance"
"""Of a key that comes again with another order, 422 is the right answer, and keys do come again."""


def is_there() -> bool:
    """Whether what tries it is installed."""
    return find_spec("schemathesis") is not None


def try_served(seed: int) -> list[str]:
    """Try each lane. What failed."""
    with tempfile.TemporaryDirectory(prefix="twicesafe-fuzz-") as folder, demo(Path(folder)) as running:
        return [lane for lane in Lane if not _holds(running.url + lane.document, seed, folder)]


def _holds(document: str, seed: int, folder: str) -> bool:
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", document, "--header", f"Cookie: {COOKIE}={new_shopper()}",
        "--seed", str(seed), "--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing",
        "--exclude-checks", EXCLUDED, "--request-timeout", "60", "--no-color",
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False)
    print(f"{'failed' if ran.returncode else 'held':7} {document}", flush=True)
    if ran.returncode:
        print(ran.stdout[-6000:] + ran.stderr[-2000:], flush=True)
    return ran.returncode == 0
