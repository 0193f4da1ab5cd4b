"""The assertion that matters: each intent had its effect once, whatever was answered."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from twicesafe.testing.counting import Count, EffectCounter
from twicesafe.testing.intents import EffectsError, IntentBrokenError, Journal


class OneEffect:
    """A context, blocking or asynchronous, in which each intent is to have exactly one effect. EffectsError otherwise.

    How many intents there were, clients write into `journal`; where none did, there was one, or as many as `intents`
    says. `count` and `connection` are told by EffectCounter.
    """

    def __init__(
        self, count: Count, connection: Any = None, *, journal: Journal | None = None, intents: int | None = None
    ) -> None:
        self._counter = EffectCounter(count, connection)
        self._journal: Journal = [] if journal is None else journal
        self._intents = intents
        self._before = self._begun = 0

    def __enter__(self) -> OneEffect:
        self._begun, self._before = len(self._journal), self._counter.count()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if _may_be_explained(error):
            self._judge(self._counter.count(), error)

    async def __aenter__(self) -> OneEffect:
        self._begun, self._before = len(self._journal), await self._counter.acount()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if _may_be_explained(error):
            self._judge(await self._counter.acount(), error)

    def _judge(self, after: int, error: BaseException | None) -> None:
        tried = self._journal[self._begun :]
        wanted = self._intents if self._intents is not None else len(tried) or 1
        had = after - self._before
        if had == wanted:
            return
        plural = "" if wanted == 1 else "s"
        lines = [f"{wanted} intent{plural} had {had} effect{'' if had == 1 else 's'}: {_meaning(had - wanted)}", ""]
        lines += [str(intent) for intent in tried]
        lines.append(f"effects: {self._before} before, {after} after, by {self._counter.shown}")
        raise EffectsError("\n".join(lines)) from error


def _may_be_explained(error: BaseException | None) -> bool:
    """Where the answers were wrong too, the effects are the graver news. Any other error is the test's own."""
    return error is None or isinstance(error, IntentBrokenError)


def _meaning(surplus: int) -> str:
    if surplus > 0:
        return "an attempt that should have been recognised as a duplicate did it again"
    return "what was asked for was not done, or it was taken back"
