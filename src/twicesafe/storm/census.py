"""What became of the intents: the ledger against what the clients were told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

Ledger: TypeAlias = Mapping[int, Sequence[str]]
"""Numbers by intent."""


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


def take(books: Sequence[Sequence[Ledger]], told: Sequence[Told]) -> Findings:
    """Compare what is written with what the clients of intents 0, 1, 2 ... were told.

    Each of `books` is one ledger, or several that have to hold the same numbers. The first is about the payments that
    clients are told of, and its first ledger counts the effects.

    A duplicate is every row beyond an intent's first in a ledger. Lost: a client was told of a payment that is not
    everywhere in the first book, or there is no row although it kept asking, or two ledgers of a book disagree.
    Unknown: it did not learn the outcome, or was told a wrong one.
    """
    ledgers = [ledger for book in books for ledger in book]
    payments = [set(books[0][0].get(number, ())) for number in range(len(told))]
    return Findings(
        effects=_rows(books[0][0]),
        duplicates=sum(_rows(ledger) - sum(1 for numbers in ledger.values() if numbers) for ledger in ledgers),
        lost=sum(1 for number, one in enumerate(told) if _is_lost(books, number, one)),
        unknown=sum(1 for row, one in zip(payments, told, strict=True) if _did_not_learn(row, one)),
        stuck=sum(1 for one in told if one.ending is Ending.STUCK),
    )


def _rows(ledger: Ledger) -> int:
    return sum(len(numbers) for numbers in ledger.values())


def _is_lost(books: Sequence[Sequence[Ledger]], intent: int, told: Told) -> bool:
    written = [[set(ledger.get(intent, ())) for ledger in book] for book in books]
    return (
        not all(numbers for book in written for numbers in book)
        or not all(told.payments <= numbers for numbers in written[0])
        or any(numbers != book[0] for book in written for numbers in book)
    )


def _did_not_learn(row: set[str], one: Told) -> bool:
    if one.ending is Ending.REJECTED:
        return bool(row)
    return one.ending is not Ending.SUCCESS
