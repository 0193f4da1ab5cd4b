"""What a failure of Redis means for whoever asked."""

from __future__ import annotations

from typing import Final

from twicesafe.errors import AmbiguousWriteError, StoreError, StoreUnavailableError

_MEANINGS: Final = {
    "READONLY": "this server is a replica now: a failover is under way, or the address names a replica",
    "LOADING": "the server has just started and is reading its data",
    "CLUSTERDOWN": "part of the cluster is down",
    "MASTERDOWN": "the replica that was asked has lost its primary",
    "OOM": "the server's memory is full: give it more, or keep records for a shorter time",
    "MISCONF": "the server cannot write to its disk and takes no writes until it can",
    "NOREPLICAS": "too few replicas are connected for the server's min-replicas-to-write",
    "TRYAGAIN": "the record's slot is moving between two servers",
    "BUSY": "the server is busy with somebody else's script",
    "NOAUTH": "the server wants a password",
    "WRONGPASS": "the server does not know this user and password",
    "NOPERM": "this user may not do what the store needs",
}

MOVES: Final = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING"})
"""Whoever says so is not, or not yet, the server to ask: look for it anew."""


DEMOTED: Final = frozenset({"READONLY", "MASTERDOWN"})
"""Whoever says so may be another than the server that its name leads to now."""

RIDE_OUT: Final = 1.0
"""Seconds for which a server that is away, or is not the one to ask, is looked for anew before a caller is told: a
restart takes less, and a recording that fails for want of it is worth a second of its caller's time."""
PAUSE: Final = 0.05
"""Seconds from one look to the next."""


class PassingError(StoreUnavailableError):
    """Nothing was done, and it may be over in a moment."""


def refused(word: str, message: str) -> StoreUnavailableError:
    """The server answered that it would not, which it does before it changes anything."""
    meaning = _MEANINGS.get(word)
    kind = PassingError if word in MOVES else StoreUnavailableError
    return kind(f"Redis refused, and changed nothing: {message}" + ("" if meaning is None else f" ({meaning})"))


def unreachable(shown: str, error: object) -> PassingError:
    """Nothing was sent."""
    return PassingError(f"no connection to {shown}: {str(error).strip() or type(error).__name__}")


def lost(error: object, *, writes: bool) -> StoreError:
    """Something was sent, and no answer came."""
    text = str(error).strip() or type(error).__name__
    if writes:
        return AmbiguousWriteError(f"the connection to Redis failed, and the write may stand: {text}")
    return PassingError(f"the connection to Redis failed before anything was changed: {text}")


def unconfirmed(confirmed: int, replicas: int) -> AmbiguousWriteError:
    """The write stands here, and a failover may forget it."""
    return AmbiguousWriteError(
        f"{confirmed} of {replicas} replicas confirmed the write in time: a failover may forget it"
    )
