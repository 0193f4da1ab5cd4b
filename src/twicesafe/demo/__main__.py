"""`python -m twicesafe.demo [PORT [FILE [--lets-expire]]]`."""

from __future__ import annotations

import sys
from pathlib import Path

from twicesafe.demo import serve

if __name__ == "__main__":
    serve(
        int(sys.argv[1]) if len(sys.argv) > 1 else 8000,
        Path(sys.argv[2]) if len(sys.argv) > 2 else None,
        lets_expire="--lets-expire" in sys.argv,
    )
