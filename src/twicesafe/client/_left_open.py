"""The operations of this process whose outcome is open, and the loops that give themselves away by asking again (R40).

A retry loop around the client is no part of it and cannot be seen. What it does can: it asks for the same thing, byte
for byte, soon after an outcome that says neither done nor refused. With the same key that is what an intent is for, and
multiplies attempts at worst. With another key it may do a second time what was done.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from threading import Lock
from typing import Any, Final, NamedTuple

from twicesafe.client.watching import Operation
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Outcome, Sent, Unknown

REMEMBERED: Final = 300.0
"""Seconds. Loops come back within them; whoever comes later has decided to."""

_MANY: Final = 256
"""Open outcomes that are remembered at once; the oldest go first."""


class _Open(NamedTuple):
    key: str | None
    since: float


class LeftOpen:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self.known: dict[bytes, _Open] = {}
        """By what was asked for. Nearly always empty, which is quickly seen."""
        self._guard = Lock()

    def compare(self, operation: Operation) -> None:
        """Tell, where the operation asks for what may have been done."""
        asked = _asked(operation)
        if asked is None:
            return
        left = self.known.get(asked)
        if left is None or not 0 <= operation.ambient.clock() - left.since <= REMEMBERED:
            return
        anew = operation.key != left.key or operation.key is None
        if anew:
            # Said once: this operation takes the other's place, if it ends open too.
            with self._guard:
                self.known.pop(asked, None)
        operation.tell(operation.event("key.made_anew" if anew else "retry.around", loud=anew))

    def note(self, operation: Operation, outcome: Outcome[Any] | None) -> None:
        """Remember an operation that ended open, and forget one that is settled."""
        is_open = _is_open(outcome)
        asked = _asked(operation)
        if asked is None:
            return
        with self._guard:
            if is_open:
                self.known.pop(asked, None)
                while len(self.known) >= _MANY:
                    del self.known[next(iter(self.known))]
                self.known[asked] = _Open(operation.key, operation.ambient.clock())
            elif asked in self.known and self.known[asked].key == operation.key:
                del self.known[asked]


LEFT_OPEN: Final = LeftOpen()
"""What all clients of a process share."""


def _asked(operation: Operation) -> bytes | None:
    """What is asked for, as a digest; None where doing it twice is no harm, or where the bytes were not kept."""
    if operation.contract not in (Contract.KEYED, Contract.NEVER):
        return None
    body = operation.body()
    if body is None:
        return None
    asked = f"{operation.method} {operation.address} {operation.path}\n"
    return sha256(asked.encode() + body).digest()


def _is_open(outcome: Outcome[Any] | None) -> bool:
    if outcome is None:
        # Given up: cancelled, or interrupted. Other exceptions say that it could not be sent.
        return not isinstance(sys.exception(), Exception)
    return type(outcome) is Unknown and outcome.sent is not Sent.NO
