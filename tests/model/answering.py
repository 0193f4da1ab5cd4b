"""What an attempt may be told, and what its client may."""

from __future__ import annotations

from typing import Final

from twicesafe.errors import AmbiguousWriteError, CallRefusedError, StoreUnavailableError
from twicesafe.testing.exploring import Thrown

LOST = Thrown(AmbiguousWriteError("the connection broke"))
REFUSED = Thrown(StoreUnavailableError("no connection"))
UNDONE = Thrown(StoreUnavailableError("the transaction was rolled back"))
NO_ANSWER = Thrown(ConnectionError("no answer"))
NOT_SENT = Thrown(ConnectionRefusedError("refused"))
TOO_LATE = Thrown(CallRefusedError("too late"))

ANSWERS: Final = ("forward", "replayed")
NEVER: Final = 2**63 - 1
TOLD: Final = {"recording.failed", "lease.lost", "commit.unknown", "outcome.unknown"}
"""What excuses an answer that is not recorded: somebody was told, loudly."""
