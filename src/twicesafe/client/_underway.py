"""One operation under way, whatever sends it: what the rules need to hear, in the rules' own words."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from twicesafe.client._asked import WhenAsked
from twicesafe.client._layers import one_layer
from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.client.budgets import Budgets
from twicesafe.client.intents import Intent
from twicesafe.client.watching import Operation
from twicesafe.core.attempts import Answered, Attempts, Call, Failed, attempts
from twicesafe.core.carriers import with_member
from twicesafe.core.contract import Contract, contract_of
from twicesafe.core.keys import check_key, parse_key
from twicesafe.core.outcome import FailureKind, Report, Sent
from twicesafe.core.record import HeaderLines
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.routes import Terms
from twicesafe.errors import ConfigurationError, InvalidKeyError

R = TypeVar("R")


class Carried(NamedTuple):
    """What the request of an intent is made of: `lines` on top of the intent's own, and the bytes."""

    lines: tuple[tuple[str, str], ...]
    body: bytes
    said: Contract | None
    """The contract, as far as the caller said it."""


def carried(intent: Intent, policy: RetryPolicy, netloc: str, path: str) -> Carried:
    """Put an intent's key where its server takes it: into a header, or into a member of the body.

    ConfigurationError where the intent's own headers name another; InvalidKeyError where the body has no place for it.
    """
    terms = policy.terms_of(intent.method, netloc, path)
    by_method = contract_of(intent.method, (), keyed=True)
    said = intent.contract if intent.chosen or intent.contract is not by_method else None
    if any(name.lower() == terms.header.lower() for name, _ in intent.headers):
        raise ConfigurationError(f"the intent's key goes into {terms.header}: give it as key=, not among the headers")
    if (said or terms.contract or intent.contract) is Contract.SAFE:
        return Carried((), intent.body, said)
    if terms.member:
        return Carried((), with_member(intent.body, terms.member, intent.key), said)
    return Carried(((terms.header, intent.key),), intent.body, said)


class Underway(Operation, Generic[R]):
    """One operation, from its request on. `R` is the HTTP library's response.

    `netloc` is the server's host, and its port where that is not the scheme's own; `path` is as it goes onto the wire,
    and what follows a question mark does not count. `lines` are the request's, names in any case. `said` is the
    contract, where the caller knows better than the method and the policy's routes say; `key` the key, where it is
    known already; `until` is a deadline that the operation already has.

    `until` is on the ambient's clock. `trail` grows as attempts end. `carrier` is the header that the key goes into.
    """

    lines: HeaderLines
    policy: RetryPolicy
    budgets: Budgets
    start: float
    said: Contract | str | None
    _key: str | None = None
    _until: float | None = None

    def __init__(
        self,
        method: str,
        netloc: str,
        path: str,
        lines: HeaderLines,
        policy: RetryPolicy,
        budgets: Budgets,
        ambient: Ambient | AsyncAmbient,
        *,
        said: Contract | str | None = None,
        key: str | None = None,
        until: float | None = None,
    ) -> None:
        self.method, self.netloc, self.path, self.lines = method, netloc, path, lines
        self.policy, self.budgets, self.ambient = policy, budgets, ambient
        self.said, self._key, self._until = said, key, until
        self.start, self.trail = ambient.clock(), []
        # What is wrong with it is told before anything is sent.
        assert self.decisions is not None

    # Most operations end with their first attempt, and nobody asks for what follows.

    @WhenAsked
    def until(self) -> float:
        """The deadline."""
        own = self.start + self.policy.deadline_s
        return own if self._until is None else min(own, self._until)

    @WhenAsked
    def _terms(self) -> Terms:
        return self.policy.terms_of(self.method, self.netloc, self.path)

    @property
    def carrier(self) -> str:
        """The header that the key goes into."""
        return self._terms.header

    @property
    def key_in_body(self) -> bool:
        """Whether the server takes the key in the body, where nothing here can leave it out."""
        return bool(self._terms.member)

    @WhenAsked
    def key(self) -> str | None:
        """The key, as it is compared. InvalidKeyError, unless the method is safe, and so needs none."""
        terms = self._terms
        if self._key is not None:
            return check_key(self._key, terms.key)
        try:
            return parse_key([line for name, line in self.lines if name.lower() == terms.header_name], terms.key)
        except InvalidKeyError:
            if contract_of(self.method, (), keyed=False) is not Contract.SAFE:
                raise
            return None

    @WhenAsked
    def _carried(self) -> frozenset[bytes]:
        """The key as its header holds it; empty where none does."""
        name = self._terms.header_name
        return frozenset(line for found, line in self.lines if found.lower() == name)

    def check_leaving(self, lines: Iterable[tuple[bytes, bytes]]) -> None:
        """ConfigurationError where a request whose first byte is about to leave names another key than was given.

        Whatever the client adds to each attempt may have made it, and the next attempt would be another charge (I8).
        """
        carried, name = self._carried, self._terms.header_name
        if carried and any(found.lower() == name and line not in carried for found, line in lines):
            raise ConfigurationError(
                f"something in the client puts another key into {self.carrier}: hooks, authentication or middlewares "
                "that make one for each attempt charge for each. Leave it to whoever asks"
            )

    @WhenAsked
    def contract(self) -> Contract:
        """What is said, what the table says, or what follows from method and key."""
        said = self._terms.contract if self.said is None else self.said
        if said is None or (said == Contract.KEYED and self.key is None):
            # Keyed no longer: a redirect led away from the origin.
            return contract_of(self.method, self.lines, keyed=self._terms.honoured and self.key is not None)
        return Contract(said)

    @WhenAsked
    def decisions(self) -> Attempts[R]:
        """What is to be done, from the first attempt on."""
        budget = self.budgets.of(self.netloc, self.policy.work)
        circuit = self.budgets.circuit_of(self.netloc)
        return attempts(self._call(one_layer(self, self.policy)), budget, self.start, self.trail, circuit)

    def _call(self, policy: RetryPolicy) -> Call:
        terms = self._terms
        return Call(self.contract, self.key, policy, self.until, terms.wording, terms.window)

    def record(self, answer: Answered[R]) -> None:
        """Record a plain operation that succeeded at once, as attempts() does."""
        budget = self.budgets.unspent(self.policy.work, self.start)
        decisions: Attempts[R] = attempts(self._call(self.policy), budget, self.start, self.trail)
        for event in (None, answer):
            with suppress(StopIteration):
                decisions.send(event)

    def answered(self, response: R, status: int, lines: HeaderLines, body: bytes | None) -> Answered[R]:
        """A head came, and with an error perhaps its decoded body."""
        ambient = self.ambient
        return Answered(
            response,
            status,
            lines,
            body,
            ambient.clock(),
            ambient.fraction(),
            ambient.wall() if status >= 400 else 0.0,
        )

    def failed(
        self, error: BaseException, kind: FailureKind, sent: Sent, response: R | None = None, status: int | None = None
    ) -> Failed[R]:
        """The library raised; with `response` and its `status`, while its body was read."""
        return Failed(error, kind, sent, self.ambient.clock(), self.ambient.fraction(), response, status)

    def report(self) -> Report:
        """What is known by now."""
        return Report(self.key, tuple(self.trail))
