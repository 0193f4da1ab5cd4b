"""What was asked for, and what was answered: the story that a failing assertion tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

LONGEST_SHOWN: Final = 200
"""Characters of a body in a message."""


class IntentBrokenError(AssertionError):
    """An intent was not answered as one intent is. The message says which, and lists what was answered."""


class EffectsError(AssertionError):
    """Not exactly one effect for each intent. The message says how many, and which attempts were answered what."""


@dataclass(slots=True)
class TriedIntent:
    """One intent: what was asked under which key, and a line for each attempt, in the order of the answers."""

    number: int
    asked: str
    key: str
    attempts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"intent {self.number}: {self.asked}, key {self.key}"]
        lines += [f"  attempt {number}: {what}" for number, what in enumerate(self.attempts, 1)]
        return "\n".join(lines)


Journal: TypeAlias = list[TriedIntent]
"""The intents of a test, in the order in which they were begun. Clients write it; assertions show it."""


def shortened(body: bytes) -> str:
    """A body as a message shows it."""
    text = body.decode("utf-8", "replace")
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... ({len(body)} bytes)"
