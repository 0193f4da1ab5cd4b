"""A policy's table of routes, by every way to send, on a real server."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.client.bindings import QUICK, Binding, Hours
from tests.client.scripted import answer, redirect, reset_after_commit, serving
from twicesafe.client import Contract, Intent, Rejected, Route, Routes, Stop, Succeeded
from twicesafe.errors import InvalidKeyError, RedirectedElsewhereError

TABLE = QUICK.but(
    routes=Routes(
        Route("POST", "/search", Contract.SAFE),
        Route("POST", "/legacy/{rest:path}", Contract.NEVER),
        Route("PUT", "/append", Contract.NEVER),
        Route("POST", "/v2/checkout/orders", profile="paypal"),
        Route("POST", "/v1/charges", profile="stripe-v1"),
        Route("POST", "/v2/payments", profile="square"),
    )
)


def test_a_route_says_what_a_method_cannot(binding: Binding) -> None:
    """R36: a POST that only searches is repeated without a key; a PUT that appends is not repeated at all."""
    with serving(reset_after_commit, answer(200), reset_after_commit) as server:
        found = binding.perform(
            lambda client: client.build_request("POST", f"{server.origin}/search?q=1"), Hours(), TABLE
        )
        assert len(server.hits) == 2 and {hit.key for hit in server.hits} == {None}
        put = binding.perform(lambda client: client.build_request("PUT", f"{server.origin}/append"), Hours(), TABLE)
        assert len(server.hits) == 3
    assert found.response.status_code == 200
    assert put.report.attempts[-1].stop is Stop.NOT_REPEATABLE


def test_what_is_said_with_a_call_goes_over_the_table(binding: Binding) -> None:
    """R36: the table knows the operation, the caller knows this one."""
    said = {"twicesafe.contract": Contract.IDEMPOTENT}
    with serving(reset_after_commit, answer(200)) as server:
        result = binding.perform(
            lambda client: client.build_request("PUT", f"{server.origin}/append", extensions=said), Hours(), TABLE
        )
        assert len(server.hits) == 2
    assert result.response.status_code == 200


def test_an_intents_own_contract_goes_over_the_table_where_it_was_said(typed: Binding) -> None:
    """R36: that a POST has a key is no word on its server: the table's is; one that the caller gave the intent is."""
    url = "/legacy/charges"
    with serving(reset_after_commit) as server:
        plain = typed.perform(lambda client: Intent.new("POST", url), Hours(), TABLE, base_url=server.origin)
        assert len(server.hits) == 1
    assert plain.report.attempts[-1].stop is Stop.NOT_REPEATABLE
    with serving(reset_after_commit, answer(201)) as server:
        keyed = typed.perform(
            lambda client: Intent.new("POST", url, contract=Contract.KEYED), Hours(), TABLE, base_url=server.origin
        )
        assert len(server.hits) == 2
    assert isinstance(keyed.outcome, Succeeded)


def test_an_intents_key_goes_where_its_server_takes_it(typed: Binding) -> None:
    """R33, R36: into the vendor's header, on each attempt, and into no other."""
    with serving(reset_after_commit, answer(201)) as server:
        intent = Intent.new("POST", "/v2/checkout/orders", json={"amount": 1})
        result = typed.perform(lambda client: intent, Hours(), TABLE, base_url=server.origin)
        assert [hit.header("paypal-request-id") for hit in server.hits] == [intent.key] * 2
        assert {hit.key for hit in server.hits} == {None}
    assert isinstance(result.outcome, Succeeded) and result.outcome.key == intent.key


def test_an_intents_key_goes_into_the_body_where_its_server_takes_it_there(typed: Binding) -> None:
    """I8, R36: Square reads it from the body, whose bytes are then the same on each attempt."""
    with serving(reset_after_commit, answer(200)) as server:
        intent = Intent.new("POST", "/v2/payments", json={"amount": 1})
        result = typed.perform(lambda client: intent, Hours(), TABLE, base_url=server.origin)
        first, second = server.hits
        assert first.body == second.body and first.key is second.key is None
        assert json.loads(first.body) == {"idempotency_key": intent.key, "amount": 1}
    assert isinstance(result.outcome, Succeeded) and result.outcome.key == intent.key


def test_a_body_without_a_place_for_the_key_is_not_sent(typed: Binding) -> None:
    """R36: what the server would take for another operation each time does not leave; the key is on the exception."""
    with serving() as server:
        intent = Intent.new("POST", "/v2/payments", content=b"amount=1")
        result = typed.perform(lambda client: intent, Hours(), TABLE, base_url=server.origin)
    assert isinstance(result.error, InvalidKeyError) and result.report.key == intent.key


def test_the_callers_own_key_is_looked_for_in_the_vendors_header(binding: Binding) -> None:
    """R36: keyed where the caller put a key; in another header it is none, and nothing is repeated."""
    with serving(reset_after_commit, answer(201), reset_after_commit) as server:
        url = f"{server.origin}/v2/checkout/orders"
        keyed = binding.perform(
            lambda client: client.build_request("POST", url, headers={"PayPal-Request-Id": "k-1"}), Hours(), TABLE
        )
        assert len(server.hits) == 2
        other = binding.perform(
            lambda client: client.build_request("POST", url, headers={"Idempotency-Key": "k-2"}), Hours(), TABLE
        )
        assert len(server.hits) == 3
    assert keyed.report.key == "k-1" and other.report.key is None


@pytest.mark.parametrize(("said", "hits"), [("false", 1), ("true", 2)])
def test_the_vendors_directive_is_obeyed(binding: Binding, said: str, hits: int) -> None:
    """R36: Stripe says of its own errors whether to try again, a 402 or a 503 alike."""
    first = answer(503 if said == "false" else 402, f"Stripe-Should-Retry: {said}")
    with serving(*[first, answer(200)][:hits]) as server:
        headers = {"Idempotency-Key": "k-1"}
        result = binding.perform(
            lambda client: client.build_request("POST", f"{server.origin}/v1/charges", headers=headers),
            Hours(),
            TABLE,
        )
        assert len(server.hits) == hits
    assert result.response.status_code == (503 if hits == 1 else 200)


def test_a_retry_past_the_servers_memory_is_not_sent(binding: Binding) -> None:
    """R36, I8: by then the key would be a new one, and the charge a second one."""
    policy = QUICK.but(
        deadline=timedelta(hours=1), routes=Routes(Route("POST", "/{any:path}", retention=timedelta(seconds=40)))
    )
    late = answer(503, "Retry-After: 30")
    with serving(late, late) as server:
        intent = Intent.new("POST", "/charges", json=1)
        hours = Hours(fraction=0.0)
        result = binding.perform(lambda client: intent, hours, policy, base_url=server.origin)
        assert len(server.hits) == 2 and hours.waits == [30.0]
    assert result.report.attempts[-1].stop is Stop.FORGOTTEN
    if binding.typed:
        assert isinstance(result.outcome, Rejected), "a 503 with Retry-After did nothing"


def test_a_vendors_header_stays_on_its_origin(transport: Binding) -> None:
    """I8, K: the key does not go to another origin, whatever header it is in."""
    with serving(answer(200)) as elsewhere, serving(redirect(307, elsewhere.origin)) as server:
        headers = {"PayPal-Request-Id": "k-1"}
        result = transport.perform(
            lambda client: client.build_request("POST", f"{server.origin}/v2/checkout/orders", headers=headers),
            Hours(),
            TABLE,
            follow_redirects=True,
        )
        assert elsewhere.hits == [], "nor does the effect without it"
        elsewhere.unplayed.clear()
        assert isinstance(result.error, RedirectedElsewhereError)
        assert [hit.header("paypal-request-id") for hit in server.hits] == ["k-1"]
