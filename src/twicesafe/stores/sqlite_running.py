"""Keys whose transactions run in this process, so that a rival is told at once instead of queueing for the write lock.

A transaction on SQLite leaves no trace of its key before its commit, and holds the lock that every other writer needs.
Other processes cannot see these marks: their rivals wait for the lock, and find the record or give up.
"""

from __future__ import annotations

import os
from typing import Final

from twicesafe.core.claims import Claim
from twicesafe.core.lifecycle import Verdict


class Running:
    """The claims of one store's transactions, from any thread."""

    def __init__(self) -> None:
        self._claims: Final[dict[bytes, Claim]] = {}
        self._pid = os.getpid()

    def rival(self, claim: Claim) -> Verdict | None:
        """What `claim` is told where somebody else's is at it: IN_PROGRESS, or MISMATCH for another request (I4)."""
        if self._pid != os.getpid():
            # Forked: what ran in the parent does not run here.
            self._claims.clear()
            self._pid = os.getpid()
        return _judge(claim, self._claims.get(claim.digest, claim))

    def enter(self, claim: Claim) -> Verdict | None:
        """`rival`, and where there is none the key is marked until `leave`."""
        return self.rival(claim) or _judge(claim, self._claims.setdefault(claim.digest, claim))

    def leave(self, claim: Claim) -> None:
        """Take the mark away, if it is this claim's."""
        if self._claims.get(claim.digest) is claim:
            del self._claims[claim.digest]


def _judge(claim: Claim, other: Claim) -> Verdict | None:
    if other.owner == claim.owner:
        return None
    return Verdict.IN_PROGRESS if claim.fingerprint.matches(other.fingerprint.value) else Verdict.MISMATCH
