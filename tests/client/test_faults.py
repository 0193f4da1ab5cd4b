"""What the cases do not say of faults: how far each attempt got, and by what name its failure goes."""

from __future__ import annotations

import math
import ssl

import pytest

from tests.client.bindings import QUICK, Binding, Hours
from tests.client.scripted import answer, reset_after_commit, serving
from twicesafe.client import Contract, FailureKind, Intent, Sent, Stop, Unknown
from twicesafe.core.retry_after import retry_after

OK = answer(201, json_={"charge": 1})
REPLAY = answer(201, "Idempotent-Replayed: true", json_={"charge": 1})


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


def test_what_the_caller_was_handling_is_not_what_failed(binding: Binding) -> None:
    """R36: sent from an except block, a connection that breaks is not a certificate that was refused."""
    with serving(reset_after_commit, REPLAY) as server:
        intent = Intent.new("POST", server.origin, json=1)
        try:
            raise ssl.SSLCertVerificationError("another server's")
        except ssl.SSLCertVerificationError:
            result = binding.perform(lambda client: intent, Hours(), QUICK)
        assert len(server.hits) == 2
    assert result.report.attempts[0].failure is FailureKind.DROPPED


@pytest.mark.parametrize("line", [b"0" * 100_000 + b"x", b"0" * 100_000, b"0." + b"9" * 100_000 + b"x", b"1" * 100_000])
def test_a_retry_after_as_long_as_a_head_holds_nobody_up(line: bytes) -> None:
    """R38: read in one go, whatever it is: to try each of its beginnings would take minutes, and stop an event loop."""
    assert retry_after([(b"retry-after", line)], 0.0) in (None, 0.0, math.inf)
