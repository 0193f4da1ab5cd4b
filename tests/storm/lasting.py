"""Work that never ends by itself."""

from __future__ import annotations

import os
import threading


def work(told: dict[str, str]) -> None:
    """Say what is told, and wait."""
    os.write(1, told["says"].encode())
    threading.Event().wait()
