"""What an exchange wants done, step by step, and what it comes to. See core.exchange, which decides.

A shell performs each step and sends back what happened; most come to nothing but None.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, TypeAlias

from twicesafe.core.claims import Claim
from twicesafe.core.record import HeaderLines, Micros, Ownership, Record, StoredResponse


class Begin(NamedTuple):
    """Open a transaction that belongs to no key."""


class Run(NamedTuple):
    """Run the handler. Sent back: Responded or Raised. `previous` is what a lost run left, for resuming."""

    ownership: Ownership | None
    """None where the request sent no key."""
    previous: Record | None


class Commit(NamedTuple):
    """Commit the transaction that belongs to no key."""


class Complete(NamedTuple):
    """Record the answer for good. In a transaction: `keep_effects` False rolls the effects back first, then records."""

    ownership: Ownership
    response: StoredResponse
    key_us: Micros
    body_us: Micros
    keep_effects: bool = True


class StartAnswer(NamedTuple):
    """Record the answer's head; its body is about to flow live. In a transaction this is a Complete."""

    ownership: Ownership
    response: StoredResponse


class Flow(NamedTuple):
    """Let the held-back head and body through, and all that follows. Sent back: Responded or Raised, at its end."""


class Release(NamedTuple):
    """Forget the claim: provably nothing happened. In a transaction: roll back."""

    ownership: Ownership


class Renew(NamedTuple):
    """Let the lease end `lease_us` after the store's now."""

    ownership: Ownership
    lease_us: Micros


class Hold(NamedTuple):
    """Record the outcome as unknown."""

    ownership: Ownership


class Read(NamedTuple):
    """Read the row as it stands, in a transaction of its own. Sent back: Found."""

    digest: bytes


class Look(NamedTuple):
    """Look at the row as it stands, without waiting for a transaction in flight. Sent back: Found."""

    digest: bytes


class Wait(NamedTuple):
    """Let time pass, holding nothing of the store's. Sent back: how much passed, in microseconds; None is all of it."""

    microseconds: Micros
    digest: bytes | None = None
    """Whose record is waited for, by somebody else's doing."""
    at_most: Micros = 0
    """For how long to wait instead where the store can tell when that record may have changed."""


class Notice(NamedTuple):
    """Something for the observers. `loud` things need a human; `error` is what the store met, where that is why."""

    name: str
    loud: bool = False
    error: BaseException | None = None


Step: TypeAlias = (
    Claim | Begin | Run | Commit | Complete | StartAnswer | Flow | Release | Renew | Hold | Read | Look | Wait | Notice
)

# --- results ---------------------------------------------------------------------------------------------------------


class Forward(NamedTuple):
    """Send what the handler answered, as it stands (after Flow: it has been sent)."""


class Answer(NamedTuple):
    """Send this instead of running, or instead of what the handler answered. `error` is raised on after sending."""

    status: int
    headers: HeaderLines
    body: bytes
    kind: str
    error: BaseException | None = None
    stored: StoredResponse | None = None
    """What is remembered of the first answer, where this is an answer to a duplicate of it: see core.rebuilding."""


class Propagate(NamedTuple):
    """Let the handler's own exception through: no answer is recorded, or it broke off after its head was."""

    error: BaseException


Result: TypeAlias = Forward | Answer | Propagate

FORWARD: Final = Forward()
FLOW: Final = Flow()

Exchange: TypeAlias = Generator[Step, object, Result]
