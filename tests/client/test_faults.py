"""Every fault, on a real connection, by every way to send: first what the server fully read, then the outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from tests.client.bindings import QUICK, Binding, Hours
from tests.client.scripted import (
    Act,
    answer,
    broken_gzip,
    close_after_commit,
    garbage,
    half_body,
    half_error,
    half_head,
    problem,
    redirect,
    reset_after_commit,
    reset_before_reading,
    serving,
    silence,
)
from twicesafe.client import Contract, Intent, Rejected, Sent, Stop, Succeeded, Unknown

IMPATIENT = QUICK.but(attempt_timeout=timedelta(milliseconds=500))
"""For servers that stay silent."""

OK = answer(201, json_={"charge": 1})
REPLAY = answer(201, "Idempotent-Replayed: true", json_={"charge": 1})
IN_PROGRESS = problem(409, "in-progress", "Retry-After: 1", retryable=True)


class Case(NamedTuple):
    """`hits`: requests that the server read whole. `status` None: a transport raises."""

    name: str
    contract: Contract
    acts: tuple[Act, ...]
    hits: int
    kind: type
    status: int | None
    stop: Stop = Stop.ANSWERED
    sent: Sent = Sent.YES
    method: str = "POST"


K, N, I, S, C = Contract.KEYED, Contract.NEVER, Contract.IDEMPOTENT, Contract.SAFE, Contract.CONDITIONAL  # noqa: E741
A, NR = Stop.ATTEMPTS, Stop.NOT_REPEATABLE
DOWN = answer(503)
BUSY = answer(503, "Retry-After: 2")

CASES = [
    Case("at once", K, (OK,), 1, Succeeded, 201),
    Case("reset before reading", K, (reset_before_reading, OK), 1, Succeeded, 201),
    Case("reset after commit", K, (reset_after_commit, REPLAY), 2, Succeeded, 201),
    Case("closed after commit", K, (close_after_commit, REPLAY), 2, Succeeded, 201),
    Case("half a head", K, (half_head, REPLAY), 2, Succeeded, 201),
    Case("no HTTP", K, (garbage, REPLAY), 2, Succeeded, 201),
    Case("silence", K, (silence, REPLAY), 2, Succeeded, 201),
    Case("an error that breaks off", K, (half_error, OK), 2, Succeeded, 201),
    Case("down for a moment", K, (DOWN, OK), 2, Succeeded, 201),
    Case("every passing status", K, (answer(500), answer(502), answer(504), OK), 4, Succeeded, 201),
    Case("asked to wait", K, (BUSY, OK), 2, Succeeded, 201),
    Case("too many requests", K, (answer(429, "Retry-After: 2"), OK), 2, Succeeded, 201),
    Case("too early, too slow", K, (answer(425), answer(408), OK), 3, Succeeded, 201),
    Case("in progress, done", K, (silence, IN_PROGRESS, IN_PROGRESS, REPLAY), 4, Succeeded, 201),
    Case("in progress by Retry-After", K, (answer(409, "Retry-After: 1"), REPLAY), 2, Succeeded, 201),
    Case("in progress by its type", K, (problem(409, "in-progress"), OK), 2, Succeeded, 201),
    Case("retryable by its problem", K, (problem(400, "body-incomplete", retryable=True), OK), 2, Succeeded, 201),
    Case("down for good", K, (DOWN,) * 4, 4, Unknown, 503, A),
    Case("busy for good", K, (BUSY,) * 4, 4, Rejected, 503, A),
    Case("limited for good", K, (answer(429),) * 4, 4, Rejected, 429, A),
    Case("dropped for good", K, (reset_after_commit,) * 4, 4, Unknown, None, A),
    Case("unretryable by its problem", K, (problem(503, "closed", retryable=False),), 1, Unknown, 503),
    Case("a recorded failure", K, (answer(500, "Idempotent-Replayed: true"),), 1, Rejected, 500),
    Case("a recorded 503", K, (reset_after_commit, answer(503, "Idempotent-Replayed: TRUE")), 2, Rejected, 503),
    Case("a failure that will be replayed", K, (problem(500, "handler-failed", retryable=False),), 1, Rejected, 500),
    Case("declined", K, (answer(402),), 1, Rejected, 402),
    Case("malformed", K, (answer(400),), 1, Rejected, 400),
    Case("unauthenticated", K, (answer(401),), 1, Rejected, 401),
    Case("forbidden", K, (answer(403),), 1, Rejected, 403),
    Case("not found", K, (answer(404),), 1, Rejected, 404),
    Case("mismatch", K, (problem(422, "key-reused", retryable=False),), 1, Unknown, 422),
    Case("no new key, says the server", K, (problem(422, "odd", safe_new_key=False),), 1, Unknown, 422),
    Case("invalid", K, (problem(422, "invalid", retryable=False),), 1, Rejected, 422),
    Case("invalid, however it is marked", K, (problem(422, "odd", retryable=True),), 1, Rejected, 422),
    Case("a conflict of state", K, (answer(409),), 1, Rejected, 409),
    Case("mismatch after an unknown", K, (reset_after_commit, answer(422)), 2, Unknown, 422),
    Case("logged out after an unknown", K, (reset_after_commit, answer(401)), 2, Unknown, 401),
    Case("reset, busy, then refused", K, (reset_before_reading, BUSY, answer(402)), 2, Unknown, 402),
    Case("limited, then refused", K, (answer(429), answer(402)), 2, Rejected, 402),
    Case("unknown, says the server", K, (problem(409, "outcome-unknown", retryable=True),), 1, Unknown, 409),
    Case("keyless, at once", N, (OK,), 1, Succeeded, 201),
    Case("keyless, dropped after sending", N, (reset_after_commit,), 1, Unknown, None, NR),
    Case("keyless, silence", N, (silence,), 1, Unknown, None, NR),
    Case("keyless, 500", N, (answer(500),), 1, Unknown, 500, NR),
    Case("keyless, 429", N, (answer(429),), 1, Rejected, 429, NR),
    Case("keyless, 409 and Retry-After", N, (answer(409, "Retry-After: 1"),), 1, Rejected, 409, NR),
    Case("keyless, no HTTP", N, (garbage,), 1, Unknown, None, NR),
    Case("PUT, dropped", I, (reset_after_commit, answer(200)), 2, Succeeded, 200, method="PUT"),
    Case("DELETE, dropped", I, (close_after_commit, answer(204)), 2, Succeeded, 204, method="DELETE"),
    Case("DELETE, dropped, then gone", I, (reset_after_commit, answer(404)), 2, Unknown, 404, method="DELETE"),
    Case("PATCH if, dropped, then changed", C, (reset_after_commit, answer(412)), 2, Unknown, 412, method="PATCH"),
    Case("PATCH if, changed", C, (answer(412),), 1, Rejected, 412, method="PATCH"),
    Case("GET, down", S, (DOWN, reset_after_commit, answer(200)), 3, Succeeded, 200, method="GET"),
    Case("GET, down for good", S, (DOWN,) * 4, 4, Rejected, 503, A, method="GET"),
    Case("GET, missing after a drop", S, (reset_after_commit, answer(404)), 2, Rejected, 404, method="GET"),
    Case("a redirect nobody follows", K, (redirect(307, "/elsewhere"),), 1, Rejected, 307),
    Case("to the log-in page", K, (redirect(302, "/login"),), 1, Unknown, 302),
    Case("moved", K, (redirect(301, "/v2"),), 1, Unknown, 301),
    Case("not modified by a POST", K, (answer(304),), 1, Unknown, 304),
    Case("keyless, to the log-in page", N, (redirect(302, "/login"),), 1, Unknown, 302),
    Case("a recorded redirect", K, (answer(302, "Location: /c/1", "Idempotent-Replayed: true"),), 1, Succeeded, 302),
    Case("GET, to the log-in page", S, (redirect(302, "/login"),), 1, Rejected, 302, method="GET"),
    Case("GET, not modified", S, (answer(304),), 1, Succeeded, 304, method="GET"),
    Case("see other", K, (redirect(303, "/charges/1"),), 1, Succeeded, 303),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_met_by_the_rules(case: Case, binding: Binding) -> None:
    """R35-R37, I8, K: hits first; one key and the same bytes on each of them; then the outcome, never another one."""
    hours = Hours()
    policy = IMPATIENT if silence in case.acts else QUICK
    intent = Intent.new(case.method, "/charge", json={"amount": 100, "to": "Zoë"}, contract=case.contract)
    with serving(*case.acts) as server:
        result = binding.perform(lambda client: intent, hours, policy, base_url=server.origin)
        assert len(server.hits) == case.hits
    keyed = case.contract is not Contract.SAFE and (binding.typed or case.contract is not Contract.NEVER)
    assert {hit.key for hit in server.hits} == {intent.key if keyed else None}
    assert {(hit.method, hit.target, hit.body) for hit in server.hits} == {(case.method, "/charge", intent.body)}
    numbers = [int(hit.attempt or 0) for hit in server.hits]
    assert numbers == sorted(set(numbers)) and numbers[-1] == len(case.acts)
    assert result.report is not None
    assert result.report.key == (intent.key if keyed else None)
    assert len(result.report.attempts) == len(case.acts) == len(hours.waits) + 1
    assert result.report.attempts[-1].stop is case.stop
    assert (None if result.response is None else result.response.status_code) == case.status
    assert isinstance(result.error, binding.library.TransportError) == (case.status is None)
    if binding.typed:
        assert type(result.outcome) is case.kind, result.report.attempts
        assert getattr(result.outcome, "sent", Sent.YES) is case.sent
        if result.response is not None:
            assert result.response.is_closed and isinstance(result.response.content, bytes)
    elif result.response is not None and case.status == 201:
        assert result.response.json() == {"charge": 1}


def test_a_refused_connection_is_proof_that_nothing_was_sent(binding: Binding) -> None:
    """R35, K: even an operation that is never repeated is tried again where not one byte of it was sent."""
    with serving(OK, listening=False) as server:
        hours = Hours(asleep=lambda: server.listen() if len(hours.waits) == 2 else None)
        intent = Intent.new("POST", server.origin, json=1, contract=Contract.NEVER)
        result = binding.perform(lambda client: intent, hours, QUICK)
        assert len(server.hits) == 1
    assert result.response.status_code == 201
    assert [attempt.sent for attempt in result.report.attempts] == [Sent.NO, Sent.NO, Sent.YES]


def test_a_server_that_is_not_there_leaves_no_doubt(typed: Binding) -> None:
    """R35: where no attempt was sent the outcome says so, whatever the contract; the charge was not made."""
    with serving(listening=False) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = typed.perform(lambda client: intent, Hours(), QUICK)
    assert isinstance(result.outcome, Unknown)
    assert (result.outcome.sent, result.outcome.stop, result.outcome.key) == (Sent.NO, Stop.ATTEMPTS, intent.key)
    assert isinstance(result.outcome.error, typed.library.ConnectError)


@pytest.mark.parametrize("broken", [half_body, broken_gzip], ids=["half", "gzip"])
def test_a_body_that_breaks_is_recovered_by_replay(broken: Act, typed: Binding) -> None:
    """K: the 201 came and its body broke; the key makes asking again harmless, and the answer whole."""
    with serving(broken, REPLAY) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = typed.perform(lambda client: intent, Hours(), QUICK)
        assert len(server.hits) == 2
    assert isinstance(result.outcome, Succeeded) and result.outcome.replayed
    assert result.response.json() == {"charge": 1}
    assert result.report.attempts[0].status == 201 and result.report.attempts[0].failure


def test_a_body_that_breaks_without_a_key_is_unknown(typed: Binding) -> None:
    """K: nothing is sent again, and the status that had arrived is kept."""
    with serving(half_body) as server:
        intent = Intent.new("POST", server.origin, json=1, contract=Contract.NEVER)
        result = typed.perform(lambda client: intent, Hours(), QUICK)
        assert len(server.hits) == 1
    assert isinstance(result.outcome, Unknown)
    assert result.outcome.response.status_code == 201
    assert isinstance(result.outcome.error, typed.library.RemoteProtocolError)


def test_the_key_is_looked_for_in_the_method_and_the_headers(binding: Binding) -> None:
    """R36: a plain POST is never repeated, and the same POST with a key of its caller's is."""
    with serving(reset_after_commit, reset_after_commit, REPLAY) as server:
        plain = binding.perform(lambda client: client.build_request("POST", server.origin), Hours(), QUICK)
        assert len(server.hits) == 1
        keyed = binding.perform(
            lambda client: client.build_request("POST", server.origin, headers={"idempotency-key": '"k-1"'}),
            Hours(),
            QUICK,
        )
        assert len(server.hits) == 3
    assert plain.error is not None and plain.report.key is None
    assert keyed.response.status_code == 201 and keyed.report.key == "k-1"
    assert [hit.key for hit in server.hits] == [None, '"k-1"', '"k-1"']
