"""What an attempt of the model wants done, besides statements, and what it tells."""

from __future__ import annotations

from typing import NamedTuple

from twicesafe.core.record import Instant, Ownership
from twicesafe.stores.steps import Batch, Statement


class Undisturbed(NamedTuple):
    """A look while nobody's transaction is open: what was about to commit has done so, or has not."""

    step: Statement | Batch


class Charge(NamedTuple):
    """An effect in another system. With a key that system knows it again. Sent back: the charge's number."""

    key: str | None
    what: str = "charge"
    until: Instant | None = None
    """From then on its first byte does not leave any more. None: it does whenever it comes to that."""


class Elapsed(NamedTuple):
    """A look at the process's own clock, which takes no time. Sent back: what it shows once that is past, or None."""

    past: Instant


class LookUp(NamedTuple):
    """The other system is asked for what was done under a key. Sent back: its number, None for nothing."""

    key: str


class Choose(NamedTuple):
    """What the surroundings do. Sent back: one of these letters."""

    letters: str


class Reply(NamedTuple):
    """The first byte of an answer leaves."""

    kind: str
    status: int
    body: bytes | None


class Won(NamedTuple):
    """Told: this attempt takes itself for the owner."""

    own: Ownership
    until: Instant | None
    """When the lease ends that it was given, as far as it knows. None: it lasts as long as the transaction."""


class Noticed(NamedTuple):
    """Told: what the exchange had the observers told."""

    name: str


class Inquire(NamedTuple):
    """The other system is asked what it did for an intent. Sent back: its number, 0 for provably nothing, or None."""

    digest: bytes
