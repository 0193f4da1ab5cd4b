"""Answers that get lost, and attempts at the same time (A, C, R10 to R14)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.behaviour.case import needs
from tests.behaviour.client import Client, Ledger

RIVALS = 12


@needs("/wait/jobs")
def a_client_that_hangs_up_changes_nothing(client: Client, ledger: Ledger) -> None:
    """A1, R14: gone while the handler works, after its effect: the work is finished, recorded and replayed."""
    gate = client.gate("after")
    gone = client.begin("/wait/jobs", after=gate)
    gate.reached()
    gone.hang_up()
    retry = client.begin("/wait/jobs", after=gate)
    gate.open()
    again = retry.reply()
    assert len(ledger) == 1
    assert again.replayed and again.status == 201
    assert again.document == {"n": 1}


@needs("/wait/jobs")
def a_client_that_hangs_up_early_changes_nothing(client: Client, ledger: Ledger) -> None:
    """A1, R14: gone before the effect, after the claim: the work is done all the same, once."""
    gate = client.gate("before")
    gone = client.begin("/wait/jobs", before=gate)
    gate.reached()
    gone.hang_up()
    retry = client.begin("/wait/jobs", before=gate)
    gate.open()
    again = retry.reply()
    assert len(ledger) == 1
    assert again.replayed and again.document == {"n": 1}


@needs("/large/jobs")
def a_client_that_hangs_up_in_the_answer_can_ask_again(client: Client, ledger: Ledger) -> None:
    """A1, R14: the record does not depend on who reads the answer."""
    cut = client.begin("/large/jobs", size=4_000_000)
    cut.until(1000)
    cut.hang_up()
    again = client.send("/large/jobs", size=4_000_000)
    assert len(ledger) == 1
    assert again.replayed and again.status == 201
    assert len(again.body) == 4_000_000


def half_an_upload_claims_nothing(client: Client, ledger: Ledger) -> None:
    """H1, R9, K: the client vanishes in its upload; the whole request runs once, afterwards."""
    client.begin(body=b"12345", length=10).hang_up()
    first, _ = client.twice(body=b"1234567890")
    assert [row.body for row in ledger.rows()] == [b"1234567890"]
    assert first.status == 201


def a_duplicate_is_told_to_wait(client: Client, ledger: Ledger) -> None:
    """A7, R11, R21: 409 with Retry-After while the first attempt runs, then its answer."""
    gate = client.gate("after")
    running = client.begin(after=gate)
    gate.reached()
    rival = client.send(after=gate)
    assert len(ledger) == 1
    assert (rival.status, rival.problem) == (409, "in-progress")
    assert 1 <= int(rival.one(b"retry-after")) <= 30
    assert rival.document["retryable"] is True and rival.document["safe_new_key"] is False
    gate.open()
    first = running.reply()
    assert first.status == 201 and first.document == {"n": 1}
    client.same(first, client.send(after=gate))


@needs("/wait/jobs")
def a_duplicate_may_wait(client: Client, ledger: Ledger) -> None:
    """R11: by choice, a duplicate stays for the first attempt's answer."""
    gate = client.gate("after")
    running = client.begin("/wait/jobs", after=gate)
    gate.reached()
    rival = client.begin("/wait/jobs", after=gate)
    gate.open()
    first, second = running.reply(), rival.reply()
    assert len(ledger) == 1
    client.same(first, second)


def _at_once(client: Client, path: str) -> list[tuple[int, bool]]:
    with ThreadPoolExecutor(RIVALS) as threads:
        replies = list(threads.map(lambda _: client.send(path), range(RIVALS)))
    return [(reply.status, reply.replayed) for reply in replies]


def of_many_at_once_one_runs(client: Client, ledger: Ledger) -> None:
    """C1, R10: one runs; everybody else gets its answer or is told to wait, and nobody an error."""
    outcomes = _at_once(client, "/jobs")
    assert len(ledger) == 1
    assert outcomes.count((201, False)) == 1
    assert set(outcomes) <= {(201, False), (201, True), (409, False)}
    assert client.send().replayed


@needs("/wait/jobs")
def of_many_waiting_one_runs(client: Client, ledger: Ledger) -> None:
    """C1, R11: where duplicates wait, everybody has the one answer."""
    outcomes = _at_once(client, "/wait/jobs")
    assert len(ledger) == 1
    assert sorted(outcomes) == [(201, False)] + [(201, True)] * (RIVALS - 1)


@needs("/tx/jobs")
def of_many_transactions_one_commits(client: Client, ledger: Ledger) -> None:
    """C1, R10: rivals of a transaction are refused, or wait for the database."""
    outcomes = _at_once(client, "/tx/jobs")
    assert len(ledger) == 1
    assert outcomes.count((201, False)) == 1
    assert set(outcomes) <= {(201, False), (201, True), (409, False)}
    assert client.send("/tx/jobs").replayed


def different_keys_do_not_wait_for_each_other(client: Client, ledger: Ledger) -> None:
    """C8: one intent that takes its time holds up no other."""
    gate = client.gate("after")
    running = client.begin(after=gate)
    gate.reached()
    other = client.send(key=client.tag.encode())
    assert len(ledger) == 2
    assert other.status == 201
    gate.open()
    assert running.reply().status == 201
