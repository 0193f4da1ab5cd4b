"""A request that is caught at work: the slow one of the description, or the plain one where it takes long enough."""

from __future__ import annotations

from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer, Request
from twicesafe.conformance.trials.trial import Outcome, inconclusive
from twicesafe.conformance.wire import NoAnswerError

LONG_ENOUGH: Final = 0.12
"""Seconds that the plain request has to take to be caught at work."""


class Running:
    """A context in which the request of a new intent is at work, and after which it has ended."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._template = bench.target.slow
        self.intent = bench.intent()
        self.request = bench.request(self.intent, self._template)
        self._answer: Future[Answer] | None = None
        self._let_go = False

    def __enter__(self) -> Running:
        self._bench.prepare(self._template, self.intent)
        return self

    def caught(self) -> bool:
        """Send it, and wait until it should be in the middle of its work. False where it would be over by then."""
        if self._template is None and self._bench.known.seconds < LONG_ENOUGH:
            return False
        self._answer = self._bench.begin(self.request)
        if self._template is not None and self._template.reached is not None:
            self._bench.reach(self._template, self.intent, self._answer.done)
        else:
            self._bench.wait(self.head_start)
        return not self._answer.done()

    def abandoned(self) -> bool:
        """Send it, and hang up in the middle of its work. False where it would be over by then."""
        bench, template = self._bench, self._template
        if template is None and bench.known.seconds < LONG_ENOUGH:
            return False
        told = None if template is None or template.reached is None else partial(bench.reach, template, self.intent)
        return bench.abandon(self.request, self.head_start, told)

    @property
    def head_start(self) -> float:
        """Seconds after which it is at work, where nobody tells."""
        return LONG_ENOUGH if self._template is not None else min(1.0, self._bench.known.seconds / 3)

    @property
    def waits(self) -> bool:
        """Whether it is at work until it is let go of."""
        return self._template is not None and self._template.after is not None

    def beside(self, request: Request) -> Answer | None:
        """Send another request while it is at work, and let go of it if that one waits for it. None: no answer."""
        try:
            return self.again(request)
        except NoAnswerError:
            return None

    def again(self, request: Request) -> Answer:
        """As `beside`, with NoAnswerError where there is none."""
        other = self._bench.begin(request)
        wait([other], self._bench.limits.beside)
        if not other.done():
            self.release()
        return other.result()

    @property
    def ended(self) -> bool:
        """Whether its answer is there already."""
        return self._answer is not None and self._answer.done()

    def release(self) -> None:
        """Let go of it, where the description says how."""
        if not self._let_go:
            self._bench.let_go(self._template, self.intent)
            self._let_go = True

    def answer(self) -> Answer | None:
        """What it is answered with; None where no answer comes."""
        self.release()
        if self._answer is None:
            return None
        try:
            return self._answer.result()
        except NoAnswerError:
            return None

    def __exit__(self, *_: object) -> None:
        if self._answer is not None:
            self.answer()


def too_quick() -> Outcome:
    """What to say where it cannot be caught."""
    return inconclusive("The request is too quick to be caught at work: describe one that takes long as `slow`.")
