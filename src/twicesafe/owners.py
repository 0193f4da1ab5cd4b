"""Owner tokens: 16 random bytes, new for every claim (R12)."""

from __future__ import annotations

import os
from typing import Final

_AT_ONCE: Final = 256
"""One call of the system makes this many."""
_ready: Final[list[bytes]] = []
if hasattr(os, "register_at_fork"):
    # A forked process must not own what its parent owns.
    os.register_at_fork(after_in_child=_ready.clear)


def new_owner() -> bytes:
    """A token that nobody has had before."""
    try:
        return _ready.pop()
    except IndexError:
        fresh = os.urandom(16 * _AT_ONCE)
        _ready.extend([fresh[at : at + 16] for at in range(16, len(fresh), 16)])
        return fresh[:16]
