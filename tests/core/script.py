"""Drives an exchange by hand: a test writes down what each step meets, and reads what was asked for and came out."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.core.records import DIGEST, ME, MINE, NOW, SECOND
from twicesafe.core.capture import Responded
from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.exchange import exchange
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects, Ownership, Record
from twicesafe.core.steps import Exchange, Notice, Wait

OWN = Ownership(DIGEST, ME, 4)
CHARGED = Responded(
    201,
    ((b"location", b"/charges/1"), (b"content-type", b"text/plain"), (b"date", b"now"), (b"set-cookie", b"a=1")),
    b"charged",
)
LOCATION = ((b"location", b"/charges/1"), (b"content-type", b"text/plain"))


class Played(NamedTuple):
    """What an exchange asked for, and how it ended."""

    steps: list[Any]
    """Everything but notices."""
    notices: list[Notice]
    result: Any

    @property
    def names(self) -> str:
        """The kinds of the steps, in their order."""
        return " ".join(type(step).__name__ for step in self.steps)

    @property
    def told(self) -> str:
        """The notices, loud ones with an exclamation mark."""
        return " ".join(notice.name + "!" * notice.loud for notice in self.notices)

    def all(self, kind: type) -> list[Any]:
        """The steps of one kind."""
        return [step for step in self.steps if type(step) is kind]

    def only(self, kind: type) -> Any:
        """The one step of its kind."""
        (step,) = self.all(kind)
        return step


def play(generator: Exchange, *script: object) -> Played:
    """Answer each step that needs an answer with the next of `script`; an exception in it is what the step met.

    Notices and waits need none. A script that is too short or too long is an error of the test.
    """
    answers = iter(script)
    steps: list[Any] = []
    notices: list[Notice] = []
    answer: Any = None
    while True:
        try:
            step = generator.throw(answer) if isinstance(answer, BaseException) else generator.send(answer)
        except StopIteration as stop:
            assert next(answers, "used up") == "used up"
            return Played(steps, notices, stop.value)
        answer = None
        if isinstance(step, Notice):
            notices.append(step)
            continue
        steps.append(step)
        if not isinstance(step, Wait):
            answer = next(answers)


def claim_of(effects: Effects) -> Claim:
    """The claim of an attempt of ME."""
    return Claim(DIGEST, "user", "charge", "…9324", MINE, effects, ME, 30 * SECOND, 3600 * SECOND)


def started(policy: Policy, usual_us: int = 0) -> Exchange:
    """An exchange at its very beginning."""
    return exchange(claim_of(policy.effects), policy, usual_us)


def won(previous: Record | None = None) -> Claimed:
    """The claim is mine."""
    return Claimed(OWN, NOW, previous)


OPAQUE = Policy()
KEYED = Policy(effects=Effects.KEYED)
RESUMABLE = Policy(effects=Effects.RESUMABLE)
TRANSACTIONAL = Policy(effects=Effects.TRANSACTIONAL)
LEASED = (OPAQUE, KEYED, RESUMABLE)
ALL = (*LEASED, TRANSACTIONAL)


def name_of(policy: object) -> str | None:
    """For the names of parametrised tests."""
    return str(policy.effects) if isinstance(policy, Policy) else None
