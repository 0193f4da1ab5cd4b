"""A call to another system as its operation declares it, and what each thing that comes of it is taken for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from twicesafe.bound import unknown
from twicesafe.core.functions import result_values
from twicesafe.core.journal import DONE, OPEN, REJECTED
from twicesafe.core.outgoing import Outgoing
from twicesafe.core.phases import CallContract, Sent
from twicesafe.core.provider import Fate, Provider
from twicesafe.core.values import Values
from twicesafe.errors import ConfigurationError, ValueNotKeptError

Errors = tuple[type[BaseException], ...]

LONGEST_REASON: Final = 1000
"""Characters of what a rejection says of itself that are kept. Providers answer with pages."""


class Done(NamedTuple):
    """What a look-up or a reconciler says: it was carried out, with this result."""

    result: Any = None


class NotDone(NamedTuple):
    """What a look-up or a reconciler says: it was not carried out, and will not be."""


class Unclear(NamedTuple):
    """What a look-up or a reconciler says: nobody can tell yet."""


Answered = Done | NotDone | Unclear


class Calling(NamedTuple):
    """One call as its operation declares it."""

    send: Callable[..., Any]
    look_up: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    rejected: Errors
    unsent: Errors
    values: Values
    to: Provider | None = None

    def contract(self, remembers: timedelta | None) -> CallContract:
        if remembers is None and self.to is not None:
            remembers = self.to.remembers
        return CallContract(remembers, self.look_up is not None)

    def carried_out(self, result: object) -> Sent:
        try:
            kept = self.values.encode(result).decode("ascii")
        except ValueNotKeptError:
            kept = None
        return Sent(DONE, kept, result)

    def given(self, outgoing: Outgoing, result: object) -> Sent:
        """`send` gave this. It is the call's result unless the provider is known to have said something else."""
        match outgoing.fate:
            case None | Fate.DONE:
                return self.carried_out(result)
            case Fate.REFUSED:
                return Sent(REJECTED, f"the provider answered {outgoing.reason}")
            case fate:
                return Sent(OPEN, error=unknown(outgoing), unsent=fate is not Fate.UNKNOWN)

    def failed(self, outgoing: Outgoing, error: BaseException) -> Sent:
        """`send` raised this. An answer that leaves things open counts for more than the kind of the error."""
        fate = outgoing.fate
        if fate is Fate.REFUSED or (outgoing.last is not Fate.UNKNOWN and isinstance(error, self.rejected)):
            return Sent(REJECTED, _said(error), None, error)
        unsent = isinstance(error, self.unsent) if fate is None else fate in (Fate.UNSENT, Fate.TURNED_AWAY)
        return Sent(OPEN, None, None, error, unsent=unsent)

    def found(self, outgoing: Outgoing, answer: object) -> Sent:
        match answer:
            case Done(result):
                return self.carried_out(result)
            case NotDone():
                outgoing.again = False
                return Sent(OPEN, unsent=True)
            case Unclear():
                return Sent(OPEN)
        raise ConfigurationError(f"a look-up gives Done, NotDone or Unclear, not {type(answer).__name__}")


def _said(error: BaseException) -> str:
    """What a rejection is remembered by. An error may have no words, or a whole page of them."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - it is a rejection, whatever its text is
        words = "no words"
    return f"{type(error).__name__}: {words[:LONGEST_REASON]}".encode("utf-8", "backslashreplace").decode("utf-8")


def calling(
    name: str,
    send: Callable[..., Any],
    arguments: tuple[Any, ...],
    look_up: Callable[..., Any] | None,
    rejected: Errors,
    unsent: Errors,
    to: Provider | None = None,
) -> Calling:
    """A call, refused before it is made where its result could not be kept."""
    given: object = to
    if given is not None and not isinstance(given, Provider):
        raise ConfigurationError(f"to is a Provider, as Provider.of('stripe-v1') is, not {type(given).__name__}")
    return Calling(send, look_up, arguments, rejected, unsent, result_values(send, name), to)
