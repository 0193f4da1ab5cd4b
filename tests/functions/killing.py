"""Attempts at an operation that are killed at one of its steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.functions.shop import K, Shop
from twicesafe.core.phases import Keep
from twicesafe.resuming import Steps


class Killed(BaseException):
    """The process dies here: nothing of ours runs after it."""


def lease_over(shop: Shop) -> None:
    shop.clock.advance(timedelta(seconds=30))


class CutAfter:
    """Dies after (or in place of) the step of this number, and leaves its claim as a process that died would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, *, performed: bool) -> None:
        self.left = number
        self.steps: list[str] = []
        perform = Steps._perform

        def cut(steps: Any, step: Any, *others: Any) -> Any:
            if type(step) is Keep:
                # Whose lease is young does nothing here.
                return perform(steps, step, *others)
            self.steps.append(type(step).__name__)
            self.left -= 1
            if self.left == 0 and not performed:
                raise Killed
            answer = perform(steps, step, *others)
            if self.left == 0:
                raise Killed
            return answer

        self._patch = monkeypatch
        monkeypatch.setattr(Steps, "_perform", cut)


def died(*what: Any) -> None:
    """Nothing is recorded any more."""
    raise Killed


def killed(shop: Shop, monkeypatch: pytest.MonkeyPatch, number: int, *, performed: bool, **call: Any) -> CutAfter:
    """An attempt whose process was killed at that step."""
    with monkeypatch.context() as patched:
        cut = CutAfter(patched, number, performed=performed)
        patched.setattr("twicesafe.called.Call.advance", died)
        once = shop.another()
        with pytest.raises(Killed):
            shop.operation(once, **call)(K, 100)
        once._shared.renewals._live.clear()
    lease_over(shop)
    return cut
