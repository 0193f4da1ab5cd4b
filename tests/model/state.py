"""Where all of a model is at one moment: a value, equal to any in which the same can happen from here on."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.database import Number
from twicesafe.core.record import Instant
from twicesafe.stores.steps import Statement
from twicesafe.testing.exploring import Place


class Bounds(NamedTuple):
    """How much may go wrong on one schedule."""

    faults: int = 1
    """Answers lost, statements that never arrive or arrive late."""
    crashes: int = 1
    jumps: int = 2
    """Of the clock."""
    switches: int | None = None
    """How often an attempt is left for another one though it could go on. None: as often as can be."""


class Actor(NamedTuple):
    """One attempt, as far as it has come."""

    token: bytes
    request: str
    digest: bytes
    """Of its scoped key."""
    place: Place | None
    """None: it has died."""
    written: tuple[tuple[Instant, Statement], ...] | None = None
    """What its open transaction has written. None: none is open."""
    until: Instant | None = None
    """When the lease ends that it was given. None: it takes itself for nobody's owner."""
    noticed: frozenset[str] = frozenset()
    intent: int = 0
    """The number of the intent that it has claimed, or seen: once the key is forgotten, another one may have it."""

    @property
    def at_work(self) -> bool:
        return self.place is not None and not self.place.ended


class Charged(NamedTuple):
    """What was done in another system."""

    key: str
    what: str
    digest: bytes
    intent: int
    at: Instant


class State(NamedTuple):
    """All of it."""

    now: Instant
    base: Number
    actors: tuple[Actor, ...]
    bounds: Bounds
    writer: int | None = None
    """Who has the write lock."""
    under_way: tuple[int, Statement] | None = None
    charges: tuple[Charged, ...] = ()
    intent: int = 0
    rows_since: int = 0
    """Rows before this belong to an intent that is forgotten by now."""
    answers: frozenset[tuple[bytes, int, bytes | None]] = frozenset()
    """What was answered for the intent, by the key's digest."""
    last: int | None = None


def with_actor(state: State, number: int, actor: Actor) -> State:
    """The state in which this is how far the attempt has come."""
    actors = state.actors
    return state._replace(actors=(*actors[:number], actor, *actors[number + 1 :]))
