"""A payments service to break: one click, two endpoints, and switches for everything that goes wrong between them.

`serve` runs it; `twicesafe demo` does so from the command line.
"""

from __future__ import annotations

from pathlib import Path


def serve(port: int = 8000, file: Path | None = None, *, lets_expire: bool = False) -> None:
    """Serve the demo on 127.0.0.1, on `port` or another one if that is taken, until SIGINT or SIGTERM.

    The ledger is kept in `file`; without one it lives in a temporary folder and goes with the demo. `lets_expire`:
    `POST /demo/expire` lets as much time pass for keys as they are kept.
    """
    from twicesafe.demo.supervisor import run  # `import twicesafe.demo` needs nothing installed

    run(port, file, lets_expire=lets_expire)
