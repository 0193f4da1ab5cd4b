"""Beyond the bound: long schedules on which much goes wrong, drawn by hypothesis and made short where one breaks."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.model.scenarios import SCENARIOS
from tests.model.state import Bounds
from twicesafe.testing.exploring import BrokenError

MUCH = Bounds(faults=4, crashes=2, jumps=6)
DRAWN = settings(max_examples=10, stateful_step_count=8, derandomize=True, deadline=None, database=None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_longer_schedules_on_which_more_goes_wrong_break_nothing_either(name: str) -> None:
    """I1 to I12: what holds on every schedule up to the bound holds on what is drawn beyond it."""
    longest: list[int] = []
    with SCENARIOS[name].around():
        world = SCENARIOS[name].make(MUCH)

        class Going(RuleBasedStateMachine):
            """Goes one schedule, word by word."""

            def __init__(self) -> None:
                super().__init__()
                self.state = world.start
                self.words: list[str] = []

            @rule(draws=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 3)), min_size=4, max_size=12))
            def go_on(self, draws: list[tuple[int, int]]) -> None:
                for which, goes_wrong in draws:
                    self.go(which, goes_wrong=not goes_wrong)

            def go(self, which: int, *, goes_wrong: bool) -> None:
                choices = world.choices(self.state)
                if not goes_wrong:
                    choices = [choice for choice in choices if choice.isalnum() and choice[0] != "x"] or choices
                try:
                    if choices:
                        self.words.append(choices[which % len(choices)])
                        self.state = world.after(self.state, self.words[-1])
                    else:
                        world.check_end(self.state)
                except BrokenError as error:
                    raise AssertionError(f"{name}: {' '.join(self.words)}  ({error})") from error
                longest.append(len(self.words))

        run_state_machine_as_test(Going, settings=DRAWN)
    assert max(longest) > 10
