"""What becomes of a message that could not be delivered, and which part of the work a message belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from twicesafe.core.record import Instant, Micros
from twicesafe.errors import ConfigurationError

SHARDS: Final = 64
"""Parts of the work that relays share among them. Written with each message, so it never changes."""

DOOR: Final = SHARDS
"""A row beside those of the shards, for a relay that has none: there the others see that it waits for its share."""

SEQUENCE: Final = "sequence"
"""The extension that says where a message stands in its aggregate's order. The relay adds it."""

DEFAULT_ATTEMPTS: Final = 10
"""With the delays below, most of half an hour: a receiver that is restarted or failed over is back by then."""

DEFAULT_FIRST_DELAY: Final = timedelta(seconds=1)
DEFAULT_LONGEST_DELAY: Final = timedelta(minutes=5)

LONGEST_ASKED: Final[Micros] = 3_600_000_000
"""An hour: for so long a receiver may ask to be left alone, and is."""


EVER: Final[Micros] = 2**62
"""A hundred thousand years: what is longer, timedelta.max say, is no number of a database's."""


class MessageState(StrEnum):
    """What is stored of a message's way."""

    PENDING = "pending"
    PARKED = "parked"
    """A dead letter that holds the later messages of its aggregate, until somebody retries or discards it."""
    SKIPPED = "skipped"
    """A dead letter that nothing waits for."""
    DELIVERED = "delivered"
    DISCARDED = "discarded"


class Poison(StrEnum):
    """What to do about a message that cannot be delivered."""

    PARK = "park"
    """Set it aside, and hold its aggregate's later messages; those of others flow."""
    BLOCK = "block"
    """Go on trying for ever; its aggregate's later messages wait, and nothing is set aside."""
    SKIP = "skip"
    """Set it aside, and go on with the aggregate's next one. Its receivers have to bear a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """How often a message is tried, and what then.

    The first delay is drawn from 0 to `first_delay`, and each further one from a window twice as wide, up to
    `longest_delay`. After `attempts` failures, or at once where the publisher raised RefusedError, it is poison.
    """

    attempts: int = DEFAULT_ATTEMPTS
    first_delay: timedelta = DEFAULT_FIRST_DELAY
    longest_delay: timedelta = DEFAULT_LONGEST_DELAY
    poison: Poison = Poison.PARK

    first_us: Micros = field(init=False, repr=False, compare=False)
    longest_us: Micros = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        write = object.__setattr__
        attempts: object = self.attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise ConfigurationError(f"attempts must be a whole number of 1 or more, not {attempts!r}")
        for name, short in (("first_delay", "first_us"), ("longest_delay", "longest_us")):
            write(self, short, micros(name, getattr(self, name)))
        try:
            write(self, "poison", Poison(self.poison))
        except ValueError:
            raise ConfigurationError(f"poison must be one of {', '.join(Poison)}, not {self.poison!r}") from None


def micros(name: str, duration: object) -> Micros:
    """A duration of the caller's in microseconds. ConfigurationError, which calls it `name`, unless it is above 0."""
    if not isinstance(duration, timedelta) or duration <= timedelta(0):
        raise ConfigurationError(f"{name} must be a timedelta above 0, not {duration!r}")
    return min(duration // timedelta(microseconds=1), EVER)


def after_failure(
    policy: DeliveryPolicy, failures: int, chance: float, *, refused: bool, asked: Micros = 0
) -> Micros | MessageState:
    """When to try again, in microseconds from now, or what it has become. `failures` counts the one just met.

    `chance` is drawn evenly from 0 to 1. The window is capped before drawing, so that the jitter stays full. `asked` is
    for how long the receiver wants to be left alone.
    """
    if refused or failures >= policy.attempts:
        if policy.poison is Poison.PARK:
            return MessageState.PARKED
        if policy.poison is Poison.SKIP:
            return MessageState.SKIPPED
    if refused:
        # It is not the receiver's weather: nothing is gained by asking soon.
        return policy.longest_us
    window = min(policy.longest_us, policy.first_us * 2 ** min(failures - 1, 40))
    return max(int(window * chance), min(asked, LONGEST_ASKED))


def aggregate_digest(aggregatetype: str, aggregateid: str) -> bytes:
    """32 bytes that stand for an aggregate. Joined so that no two aggregates can share them."""
    kind = aggregatetype.encode()
    return sha256(b"outbox\0" + len(kind).to_bytes(4, "big") + kind + aggregateid.encode()).digest()


def shard_of(digest: bytes, shards: int = SHARDS) -> int:
    """Which shard an aggregate of this digest belongs to: the same one for ever, as long as `shards` is."""
    return int.from_bytes(digest[-4:], "big") % shards


class Held(NamedTuple):
    """A shard as the database has it, seen at one instant."""

    shard: int
    owner: bytes
    epoch: int
    lease_until: Instant


class Share(NamedTuple):
    """What a relay does about shards: which free ones it takes, under which epoch, and which of its own it leaves."""

    take: tuple[int, ...]
    epoch: int
    leave: tuple[int, ...]


def fair_share(rows: Iterable[Held], owner: bytes, now: Instant) -> Share:
    """As many shards for each relay that is alive, give or take one; nobody's are taken before their lease is over.

    A relay is alive as long as it holds a lease, of a shard or of the door, which may be among the rows. One that has
    no shard yet counts itself, and gets its shards as the others leave theirs, for which it has to be at the door.
    """
    rows = list(rows)
    shards = [held for held in rows if held.shard != DOOR]
    mine = [held.shard for held in shards if held.owner == owner and held.lease_until > now]
    free = [held.shard for held in shards if held.lease_until <= now]
    others = {held.owner for held in rows if held.owner != owner and held.lease_until > now}
    most = -(-len(shards) // (len(others) + 1))
    epoch = 1 + max((held.epoch for held in shards), default=0)
    return Share(tuple(free[: max(0, most - len(mine))]), epoch, tuple(mine[most:]))


def bits_of(shards: Iterable[int]) -> int:
    """A set of shards as a whole number with a sign, for databases that have no sets."""
    bits = 0
    for shard in shards:
        bits |= 1 << shard
    return bits - (1 << SHARDS) if bits >> (SHARDS - 1) else bits
