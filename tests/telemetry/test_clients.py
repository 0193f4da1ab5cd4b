"""A client's attempts, retries and outcomes are counted, by host and never by path."""

from __future__ import annotations

import httpx2
import pytest

from tests.client.scripted import answer, reset_after_commit, serving
from tests.client.ways import NO_TLS, QUICK, Hours
from tests.telemetry.recorded import Recorded
from twicesafe.client import Budgets, Intent, Outcome, Watch
from twicesafe.client.httpx import send
from twicesafe.core.retry_budget import BudgetSize, Work

KEY = "cart-of-a-customer-0123456789"


def sent(recorded: Recorded, *acts: object, budgets: Budgets | None = None) -> tuple[Outcome[httpx2.Response], str]:
    """One operation, whose server does these."""
    watch, hours = Watch(observer=recorded), Hours()
    with serving(*acts) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:  # type: ignore[arg-type]
        intent = Intent.new("POST", f"{server.origin}/charges/17?code=1", json={"cents": 1}, key=KEY)
        outcome = send(client, intent, policy=QUICK, budgets=budgets or Budgets(), ambient=hours.ambient, watch=watch)
        return outcome, server.origin.removeprefix("http://").removeprefix("https://")


def test_attempts_and_retries_are_told_apart(recorded: Recorded) -> None:
    """R40, R44: one first attempt and two retries, with what each came to; the operation once, with its outcome."""
    _, host = sent(recorded, reset_after_commit, answer(503), answer(201))
    about = ("server.address", "http.request.method", "twicesafe.retry", "http.response.status_code", "error.type")
    assert recorded.numbers("twicesafe.client.attempts", *about) == {
        (host, "POST", False, None, "dropped"): 1,
        (host, "POST", True, 503, None): 1,
        (host, "POST", True, 201, None): 1,
    }
    assert recorded.numbers("twicesafe.client.operations", "server.address", "twicesafe.outcome") == {
        (host, "succeeded"): 1
    }
    assert recorded.numbers("twicesafe.client.attempt.duration", "server.address") == {host: 3}
    assert "/charges" not in recorded.text and KEY not in recorded.text


@pytest.mark.parametrize(
    ("acts", "outcome", "stop", "loud"),
    [
        ([answer(422)], "rejected", "answered", {}),
        ([reset_after_commit] * 4, "unknown", "attempts", {"operation.unknown": 1}),
    ],
    ids=["rejected", "unknown"],
)
def test_outcomes_are_counted_with_why_there_was_no_further_attempt(
    recorded: Recorded, acts: list[object], outcome: str, stop: str, loud: dict[str, int]
) -> None:
    """R35, R44: rejected and unknown are told apart; what may have been done and is unknown is loud."""
    sent(recorded, *acts)
    found = recorded.numbers("twicesafe.client.operations", "twicesafe.outcome", "twicesafe.stop")
    assert found == {(outcome, stop): 1}
    assert recorded.numbers("twicesafe.events", "twicesafe.event") == loud


def test_a_spent_retry_budget_can_be_alarmed_on(recorded: Recorded) -> None:
    """R39, R44: attempts that nothing follows, because the host's budget is spent, are counted as such."""
    empty = Budgets({work: BudgetSize(0.0, 0.0, 0.0) for work in Work})
    outcome, _ = sent(recorded, answer(503), budgets=empty)
    assert len(outcome.attempts) == 1
    assert recorded.numbers("twicesafe.client.attempts", "twicesafe.stop") == {"budget": 1}
