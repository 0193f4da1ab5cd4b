"""What the command line is told to look at. `FOLDER` is where its records are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.doctor import shops

FOLDER = Path(os.environ.get("FOLDER", "/nowhere"))
NOTHING = None


def honest() -> Any:
    return shops.starlette_shop(FOLDER)


def planted() -> Any:
    return shops.starlette_shop(FOLDER, around=())


class Factory:
    """Applications as attributes."""

    make = staticmethod(honest)


def broken() -> Any:
    raise ValueError("no such setting")


def leaves() -> Any:
    sys.exit(0)
