"""The table of routes: which line a request is of, and what holds for it then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.core.test_attempts import START, answered, failed
from twicesafe.core.answers import PLAIN, Again, Says, judge
from twicesafe.core.attempts import Call, Send, Wait, attempts
from twicesafe.core.contract import Contract
from twicesafe.core.keys import KeyRule
from twicesafe.core.outcome import Attempt, Outcome, Rejected, Sent, Stop, Succeeded, Unknown
from twicesafe.core.provider import Provider
from twicesafe.core.remembered import LONGEST_MARGIN, sending_window
from twicesafe.core.retry_budget import BudgetSize, RetryBudget
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.routes import Route, Routes
from twicesafe.errors import ConfigurationError

DAY = timedelta(days=1)

# --- which line ------------------------------------------------------------------------------------------------------

TABLE = Routes(
    Route("POST", "/v1/charges/{id}/capture", Contract.IDEMPOTENT),
    Route("GET", "/v1/charges/{id}", Contract.SAFE),
    Route("*", "https://other.example:8443/v1/{rest:path}", Contract.NEVER),
    Route("post", "/v1/{rest:path}", Contract.KEYED),
)

FOUND = [
    ("POST", "pay.example", "/v1/charges/ch_1/capture", 0),
    ("POST", "pay.example", "/v1/charges/ch_1/capture?expand=1", 0),
    ("POST", "pay.example", "/v1/charges/a/b/capture", 3),
    ("POST", "pay.example", "/v1/charges//capture", 3),
    ("GET", "pay.example", "/v1/charges/ch_1", 1),
    ("GET", "pay.example", "/v1/charges/ch_1/", None),
    ("GET", "pay.example", "/v1/charges", None),
    ("DELETE", "other.example:8443", "/v1/charges", 2),
    ("DELETE", "user:word@OTHER.example:8443", "/v1/charges", 2),
    ("DELETE", "other.example", "/v1/charges", None),
    ("POST", "other.example:8443", "/v1/refunds", 2),
    ("POST", "pay.example", "/v1/", 3),
    ("POST", "pay.example", "/v2/charges", None),
    ("POST", "pay.example", "/V1/charges", None),
]


@pytest.mark.parametrize(("method", "netloc", "path", "line"), FOUND)
def test_the_first_line_that_fits_counts(method: str, netloc: str, path: str, line: int | None) -> None:
    """R36: by method, by path segment for segment, and by server where the line names one; the query does not count."""
    assert TABLE.find(method, netloc, path) is (None if line is None else list(TABLE)[line])


def test_a_path_is_no_pattern_but_for_its_places() -> None:
    """R36: what a path holds stands for itself."""
    table = Routes(Route("GET", "/a.b/(c)+", Contract.NEVER))
    assert table.find("GET", "x", "/a.b/(c)+") is not None
    assert table.find("GET", "x", "/aXb/(c)+") is table.find("GET", "x", "/a.b/cc") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "v1"},
        {"path": ""},
        {"path": "/v1?x=1"},
        {"path": "ftp://x.example/v1"},
        {"path": "https://x.example"},
        {"path": "/{}"},
        {"path": "/{a:int}"},
        {"path": "/{a"},
        {"method": ""},
        {"method": "GET POST"},
        {"method": "M-SEARCH /"},
        {"contract": "sometimes"},
        {"profile": "stripe"},
        {"profile": "azure"},
        {"retention": timedelta(0)},
        {"retention": 3600},
        {"header": "Not a header"},
    ],
    ids=str,
)
def test_a_wrong_line_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    """R36: a line that would never fit, or would fit what nobody meant, is told before anything is sent."""
    with pytest.raises(ConfigurationError):
        Route(**{"method": "POST", "path": "/v1", **wrong})


def test_a_table_is_made_of_lines() -> None:
    """R36: and a policy takes a table."""
    with pytest.raises(ConfigurationError):
        Routes(("POST", "/v1"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        RetryPolicy(routes=[Route("POST", "/v1")])  # type: ignore[arg-type]
    assert "POST" in repr(RetryPolicy(routes=Routes(Route("POST", "/v1"))).but(attempts=2).routes)


# --- what holds then -------------------------------------------------------------------------------------------------


def terms(*routes: Route, method: str = "POST") -> Any:
    return RetryPolicy(header="X-Key", routes=Routes(*routes)).terms_of(method, "pay.example", "/v1/charges?x=1")


def test_without_a_line_the_policy_holds() -> None:
    """R36: by method and key, in the policy's header."""
    plain = terms(Route("PUT", "/v1/charges", Contract.NEVER))
    assert (plain.contract, plain.header, plain.header_name) == (None, "X-Key", b"x-key")
    assert (plain.wording, plain.key, plain.window, plain.honoured) == (PLAIN, KeyRule(), None, True)
    assert plain == RetryPolicy(header="X-Key").terms_of("POST", "pay.example", "/v1/charges")


def test_a_line_says_what_differs() -> None:
    """R36: contract, header and retention; what it does not say is the policy's."""
    said = terms(Route("POST", "/v1/charges", Contract.KEYED, header="Request-Key", retention=DAY))
    assert (said.contract, said.header, said.header_name) == (Contract.KEYED, "Request-Key", b"request-key")
    assert said.window == (DAY - LONGEST_MARGIN).total_seconds()
    assert terms(Route("POST", "/v1/charges", Contract.NEVER)).header == "X-Key"


def test_a_profile_says_how_a_vendor_takes_keys() -> None:
    """R36: header, spelling, methods, memory and wording, from the facts that the server's profiles are made from."""
    paypal = terms(Route("*", "/v1/{rest:path}", profile="paypal"))
    assert (paypal.header, paypal.member, paypal.contract, paypal.window) == ("PayPal-Request-Id", "", None, None)
    stripe = terms(Route("*", "/v1/{rest:path}", profile="stripe-v1"))
    assert stripe.window == (DAY - LONGEST_MARGIN).total_seconds() and stripe.honoured
    assert stripe.wording.directive == b"stripe-should-retry" and stripe.wording.in_progress == 409
    assert not terms(Route("*", "/v1/{rest:path}", profile="stripe-v1"), method="DELETE").honoured
    assert terms(Route("*", "/v1/{rest:path}", profile="stripe-v2"), method="DELETE").honoured
    square = terms(Route("POST", "/v1/charges", profile="square"))
    assert (square.header, square.member, square.key.max_length) == ("X-Key", "idempotency_key", 45)
    assert terms(Route("POST", "/v1/charges", profile="worldline")).key.max_length == 40


def test_what_a_line_says_goes_over_its_profile() -> None:
    """R36: a contract with the vendor may differ from the published one; and a profile may be the caller's own."""
    longer = terms(Route("POST", "/v1/charges", profile="stripe-v1", retention=timedelta(days=3), header="My-Key"))
    assert longer.header == "My-Key" and longer.window == (3 * DAY - LONGEST_MARGIN).total_seconds()
    assert terms(Route("POST", "/v1/charges", profile="square", header="My-Key")).member == ""
    bank = Provider(name="bank", header="Bank-Key", remembers=DAY, directive="Bank-Retry")
    mine = terms(Route("POST", "/v1/charges", profile=bank))
    assert (mine.header, mine.wording.directive) == ("Bank-Key", b"bank-retry")


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_a_vendor_that_takes_no_keys_still_says_whether_to_retry(vendor: str) -> None:
    """R36: its directive is known by name; no POST becomes repeatable by a key that it ignores."""
    known = terms(Route("POST", "/v1/charges", profile=vendor))
    assert known.wording.directive == b"x-should-retry"
    assert (known.honoured, known.contract, known.window) == (False, None, None)


# --- the server's own directives -------------------------------------------------------------------------------------

STRIPE = Provider.of("stripe-v1").wording()


def run(*happenings: Any, contract: Contract = Contract.KEYED, wording: Any = STRIPE, **call: Any) -> Outcome[str]:
    """Drive one operation at Stripe."""
    policy, now, trail, played = RetryPolicy(**call.pop("policy", {})), START, list[Attempt](), iter(happenings)
    until, oversleep = START + policy.deadline_s, call.pop("oversleep", 0.0)
    made = Call(contract, "k-1", policy, until, wording, **call)
    decisions = attempts(made, RetryBudget(BudgetSize(100.0, 0.0, 0.0), START), START, trail)
    step = next(decisions)
    while True:
        if isinstance(step, Wait):
            now += step.seconds + oversleep
            event: Any = now
        else:
            assert isinstance(step, Send)
            event = next(played)(step, now)
            now = event.now
        try:
            step = decisions.send(event)
        except StopIteration as end:
            assert not list(played), "a further attempt was expected"
            outcome: Outcome[str] = end.value
            return outcome


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_what_the_server_calls_hopeless_is_not_tried_again(status: int) -> None:
    """R36: `false` stops at once, whatever the status; and what the answer tells of the effect stays what it was."""
    outcome = run(answered(status, "Stripe-Should-Retry: false", "Retry-After: 1"))
    assert len(outcome.attempts) == 1 and outcome.attempts[0].stop is Stop.ANSWERED
    assert outcome.attempts[0].reason.endswith("not to be retried")
    assert isinstance(outcome, Rejected if status in (408, 429, 503) else Unknown)


@pytest.mark.parametrize("status", [400, 402, 403, 404, 422, 501])
def test_what_the_server_calls_passing_is_tried_again_where_it_may_be(status: int) -> None:
    """R36: `true` repeats what would be final, and only what may be repeated."""
    again = answered(status, "stripe-should-retry: TRUE")
    assert isinstance(run(again, answered(201)), Succeeded)
    once = run(again, contract=Contract.NEVER)
    assert len(once.attempts) == 1 and once.attempts[0].stop is Stop.NOT_REPEATABLE
    assert isinstance(once, Rejected)


def test_a_replay_is_final_whatever_the_directive_says() -> None:
    """R37: the recorded answer comes back as it is, its directive with it."""
    outcome = run(answered(500, "Stripe-Should-Retry: true", "Idempotent-Replayed: true"))
    assert isinstance(outcome, Rejected) and outcome.replayed


@pytest.mark.parametrize("line", ["", "maybe", "1", "tru\u00e9"])
def test_a_directive_that_makes_no_sense_is_none(line: str) -> None:
    """R36: then the status counts."""
    assert isinstance(run(answered(402, f"Stripe-Should-Retry: {line}")), Rejected)
    assert isinstance(run(answered(500, f"Stripe-Should-Retry: {line}"), answered(200)), Succeeded)


def test_directives_of_servers_that_nobody_named_mean_nothing() -> None:
    """R36: a header of that name may come from anywhere; it counts where the caller named the vendor."""
    assert isinstance(run(answered(402, "Stripe-Should-Retry: true"), wording=PLAIN), Rejected)
    assert isinstance(run(answered(402, "x-should-retry: true")), Rejected)
    assert isinstance(run(answered(503, "Stripe-Should-Retry: false"), answered(200), wording=PLAIN), Succeeded)


def test_a_success_is_not_asked_about() -> None:
    """R36: done is done."""
    assert isinstance(run(answered(200, "Stripe-Should-Retry: true")), Succeeded)


def test_a_vendors_words_for_a_key_in_use_are_understood() -> None:
    """R36, K: Stripe says 409 without Retry-After while the first attempt is at work: it is waited out."""
    assert isinstance(run(answered(409), answered(409), answered(200)), Succeeded)
    assert isinstance(run(answered(409), wording=PLAIN), Rejected)
    assert judge(409, (), None, contract=Contract.IDEMPOTENT, wording=STRIPE).says is Says.NOT_DONE


def test_a_vendors_words_for_a_mismatch_are_understood() -> None:
    """I6, R37: a 400 about the key says that the key was used, and so proves nothing about the effect."""
    body = b'{"error": {"type": "idempotency_error"}}'
    mismatch = judge(400, (), body, contract=Contract.KEYED, wording=STRIPE)
    assert (mismatch.again, mismatch.says) == (Again.NO, Says.NOT_THIS_TIME)
    assert isinstance(run(answered(400, body=body)), Unknown)
    assert isinstance(run(answered(400, body=b'{"error": {"type": "card_error"}}')), Rejected)


def test_a_vendors_own_marker_makes_a_replay() -> None:
    """R37: PPRO, Flutterwave and Novu have words of their own for it."""
    flutterwave = Provider.of("flutterwave").wording()
    replay = judge(503, ((b"X-Idempotency-Cache-Hit", b"true"),), None, contract=Contract.KEYED, wording=flutterwave)
    assert replay.replayed and replay.again is Again.NO


# --- the server's memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention", "window"),
    [
        (timedelta(days=1), timedelta(days=1, minutes=-1)),
        (timedelta(minutes=10), timedelta(minutes=9)),
        (timedelta(minutes=5), timedelta(minutes=4.5)),
        (timedelta(seconds=30), timedelta(seconds=27)),
    ],
)
def test_a_key_is_sent_while_it_is_known_on_arrival(retention: timedelta, window: timedelta) -> None:
    """R36: the margin is a minute, and a tenth of what is shorter than ten."""
    assert sending_window(retention) == window


def test_no_retry_is_sent_past_the_servers_memory() -> None:
    """R36, I8: a key that was forgotten is a new one, and done twice. The call ends as soon as that is clear."""
    late = answered(503, "Retry-After: 9", took=0.0, fraction=0.0)
    patient = {"deadline": timedelta(minutes=5), "attempts": 9}
    outcome = run(late, late, late, window=27.0, policy=patient)
    assert isinstance(outcome, Rejected) and outcome.stop is Stop.FORGOTTEN
    assert len(run(late, late, late, late, window=27.5, policy=patient).attempts) == 4


def test_the_servers_memory_begins_with_what_it_may_have_got() -> None:
    """R36: an attempt that provably sent nothing starts no window; one that may have sent does."""
    unsent = failed(Sent.NO, took=20.0)
    lost = failed(Sent.YES, took=1.0, fraction=0.0)
    calm = {"deadline": timedelta(minutes=5), "attempt_timeout": None, "attempts": 9}
    assert isinstance(run(unsent, unsent, lost, answered(201), window=9.0, policy=calm), Succeeded)
    outcome = run(failed(Sent.MAYBE, took=10.0), window=9.0, policy=calm)
    assert isinstance(outcome, Unknown) and (outcome.stop, outcome.sent) == (Stop.FORGOTTEN, Sent.MAYBE)


def test_who_oversleeps_the_servers_memory_sends_nothing() -> None:
    """R36: a laptop that was shut between two attempts does not charge twice when it is opened."""
    outcome = run(failed(took=1.0), window=9.0, oversleep=8.5, policy={"deadline": timedelta(hours=1)})
    assert isinstance(outcome, Unknown) and outcome.stop is Stop.FORGOTTEN


@pytest.mark.parametrize("contract", [Contract.SAFE, Contract.IDEMPOTENT, Contract.CONDITIONAL])
def test_what_may_be_repeated_without_a_key_needs_no_memory(contract: Contract) -> None:
    """R36: a GET is as good after a day as after a second."""
    outcome = run(failed(took=10.0), answered(200), contract=contract, window=1.0)
    assert isinstance(outcome, Succeeded)
