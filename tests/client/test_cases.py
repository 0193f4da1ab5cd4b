"""Every case by every way to send in Python. tests/client/cases tells them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from ssl import SSLError
from typing import Any, NamedTuple

import pytest

from tests.client.bindings import BINDINGS, TRIO, Binding, Hours
from tests.client.cases import CASES, GROUPS
from tests.client.cases.case import Case, Limits, Trait
from tests.client.cases.playing import Seen, check, fraction_of, given, staged
from tests.client.cases_table import noted
from twicesafe.client import Budgets, BudgetSize, Intent, RetryPolicy, Route, Routes, Unknown, Work


class Run(NamedTuple):
    """One case by one binding."""

    group: str
    case: Case
    binding: Binding
    traits: frozenset[Trait]

    @property
    def name(self) -> str:
        operation = self.case.operation
        return f"{operation.method} {operation.contract}, {self.case.name}, {self.binding.name}"


def traits_of(binding: Binding) -> frozenset[Trait]:
    """Every library here proves, streams, and names its errors; a transport lacks the rest."""
    return frozenset(Trait) if binding.typed else frozenset(Trait) - {Trait.OUTCOME, Trait.REDIRECTS}


RUNS = [
    Run(group, case, binding, traits)
    for group, cases in GROUPS.items()
    for told in cases
    for binding in (*BINDINGS, *TRIO)
    for traits in [traits_of(binding)]
    for case in [told.by(traits)]
    if case is not None
]


def policy_of(limits: Limits) -> RetryPolicy:
    """The limits as Python says them."""
    memory = limits.remembers and timedelta(seconds=limits.remembers)
    return RetryPolicy(
        routes=Routes(Route("*", "/{all:path}", retention=memory)) if memory else None,
        attempts=limits.attempts,
        in_progress=limits.in_progress,
        deadline=timedelta(seconds=limits.deadline),
        attempt_timeout=timedelta(seconds=limits.attempt_timeout),
        first_delay=timedelta(seconds=limits.first_delay),
        longest_delay=timedelta(seconds=limits.longest_delay),
    )


def play(run: Run) -> None:
    """Play the case, and check what came of it."""
    case, limits = run.case, run.case.limits
    with staged(case) as stage:
        hours = Hours(fraction_of(case), asleep=lambda: stage.after_wait(len(hours.waits)), overslept=limits.overslept)
        intent = Intent.new(
            case.operation.method,
            stage.url,
            headers=case.operation.headers,
            contract=case.operation.contract,
            **given(case),
        )
        result = run.binding.perform(
            lambda client: intent,
            hours,
            policy_of(limits),
            budgets=Budgets({Work.INTERACTIVE: BudgetSize(limits.budget, 0.0, 0.0)}),
            follow_redirects=case.elsewhere is not None,
        )
        check(stage, seen_by(result, hours), intent.key, run.traits)
        check_exception(run, result)


def seen_by(result: Any, hours: Hours) -> Seen:
    """The result in the words of all clients."""
    outcome, response = result.outcome, result.response
    assert result.report is not None, result.error
    last = result.report.attempts[-1]
    return Seen(
        outcome=None if outcome is None else type(outcome).__name__.lower(),
        status=None if response is None else response.status_code,
        stop=getattr(outcome, "stop", last.stop),
        sent=getattr(outcome, "sent", None),
        replayed=getattr(outcome, "replayed", False),
        key=result.report.key,
        attempts=len(result.report.attempts),
        waits=hours.waits,
        content=None if response is None or isinstance(outcome, Unknown) else response.content,
    )


def check_exception(run: Run, result: Any) -> None:
    """Where there is no answer there is the library's own exception, or TLS's; where there is one, it has been read."""
    if run.case.expected.status is None:
        assert isinstance(result.error, (run.binding.library.TransportError, SSLError))
    elif run.binding.typed and result.error is None:
        assert result.response.is_closed


@pytest.fixture(scope="module")
def under_way(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[None]]]:
    """The runs in which time really passes, side by side."""
    items = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    runs = [callspec.params["run"] for callspec in items if callspec is not None and "run" in callspec.params]
    with ThreadPoolExecutor(8) as pool:
        yield {run.name: pool.submit(play, run) for run in runs if run.case.takes_time}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_case_by_every_way_to_send(
    run: Run, under_way: dict[str, Future[None]], request: pytest.FixtureRequest
) -> None:
    """R35-R39, I8, K: requests that the server read first, one key and the same bytes on each; then the outcome."""
    request.node.user_properties.append(noted(run.binding.name, run.group))
    if run.name in under_way:
        under_way[run.name].result()
    else:
        play(run)


def test_no_case_is_told_twice() -> None:
    """House: each case is another one, and says why it is there."""
    names = [(case.operation, case.name) for case in CASES]
    assert len(names) == len(set(names)) >= 90
    assert all(case.why and case.acts for case in CASES)
