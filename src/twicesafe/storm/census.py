"""What became of the intents: the ledger against what the clients were told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple


class Ending(StrEnum):
    """How an intent ended for its client, after the final round."""

    SUCCESS = "success"
    REJECTED = "rejected"
    """The client was told that it will not happen."""
    STUCK = "stuck"
    """The key still answers that it is in progress, or that its outcome is unknown."""
    NO_ANSWER = "no answer"
    """The client asked until its time was up and learned nothing."""


class Told(NamedTuple):
    """What a client learned of its intent. `payments` are all the numbers it was ever told: one, if all is well."""

    ending: Ending
    payments: frozenset[str] = frozenset()

    def then(self, later: Told) -> Told:
        """This, and what the same client was told afterwards. The last answer counts, and every payment told does."""
        ending = self.ending if later.ending is Ending.NO_ANSWER else later.ending
        return Told(ending, self.payments | later.payments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The numbers of one storm. Field for field what `--json` prints."""

    intents: int
    attempts: int
    effects: int
    duplicates: int
    lost: int
    unknown: int
    stuck: int
    faults: Mapping[str, int]
    store: str
    seed: int
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether nothing happened twice, nothing was lost and no key is stuck."""
        return not (self.duplicates or self.lost or self.stuck)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the keys are a promise."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "faults": dict(self.faults)}


class Findings(NamedTuple):
    """The five counts that the ledger and the clients' knowledge add up to."""

    effects: int
    duplicates: int
    lost: int
    unknown: int
    stuck: int


def take(ledger: Mapping[int, Sequence[str]], told: Sequence[Told]) -> Findings:
    """Compare `ledger`, payment numbers by intent, with what the clients of intents 0, 1, 2 ... were told.

    A duplicate is every row beyond an intent's first. Lost: a client was told of a payment that is not in the ledger,
    or there is no row although it kept asking. Unknown: it did not learn the outcome, or was told a wrong one.
    """
    rows = [set(ledger.get(number, ())) for number in range(len(told))]
    effects = sum(len(payments) for payments in ledger.values())
    return Findings(
        effects=effects,
        duplicates=effects - sum(1 for payments in ledger.values() if payments),
        lost=sum(1 for row, one in zip(rows, told, strict=True) if not row or not one.payments <= row),
        unknown=sum(1 for row, one in zip(rows, told, strict=True) if _did_not_learn(row, one)),
        stuck=sum(1 for one in told if one.ending is Ending.STUCK),
    )


def _did_not_learn(row: set[str], one: Told) -> bool:
    if one.ending is Ending.REJECTED:
        return bool(row)
    return one.ending is not Ending.SUCCESS
