"""Which call to another system is being made: what its requests are bound to, wherever they are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

from twicesafe.core.outcome import Sent, Stop, Unknown
from twicesafe.core.outgoing import Outgoing
from twicesafe.core.provider import Fate, Provider
from twicesafe.errors import UnknownError

_outgoing: Final[ContextVar[Outgoing | None]] = ContextVar("twicesafe.outgoing", default=None)


class Derives(Protocol):
    """Whoever has a key of its own: a call of a function, or a request under a key."""

    def derived_key(self, call: str) -> str: ...


@contextmanager
def bound(outgoing: Outgoing) -> Iterator[Outgoing]:
    """Requests made in here, and in tasks begun in here, are this call's. Afterwards nothing is sent for it."""
    restored = _outgoing.set(outgoing)
    try:
        yield outgoing
    finally:
        outgoing.over = True
        _outgoing.reset(restored)


def outgoing_of_now() -> Outgoing | None:
    """The call that is being made; None outside of one."""
    return _outgoing.get()


@contextmanager
def calling(whose: Derives, name: str, *, to: Provider | None = None) -> Iterator[str]:
    """Make a call of an operation that takes no steps: the request of a handler, say, whose effects are "keyed".

    Its requests carry the key that `whose` derives for `name`, which is given. Nothing is recorded: whoever runs the
    operation again makes the call again, under the same key. UnknownError at the end where nobody can say what became
    of it, so that no answer hides that.
    """
    with bound(Outgoing(whose.derived_key, name, to)) as outgoing:
        yield outgoing.key
    if outgoing.fate is Fate.UNKNOWN:
        raise unknown(outgoing)


def unknown(outgoing: Outgoing) -> UnknownError:
    """What is raised where a function made nothing of an answer that leaves things open."""
    nothing_done = outgoing.fate in (Fate.UNSENT, Fate.TURNED_AWAY)
    what = "was not carried out" if nothing_done else "may have been carried out"
    outcome: Unknown[Any] = Unknown(
        key=outgoing.key, sent=Sent.NO if nothing_done else Sent.YES, attempts=(), stop=Stop.ANSWERED
    )
    return UnknownError(f"the call {outgoing.name!r} {what} ({outgoing.reason}): it is no result", outcome)
