"""The effect and its record are one transaction (H2, R23): what is stored agrees with the data."""

from __future__ import annotations

from tests.behaviour.case import needs
from tests.behaviour.client import Client, Ledger
from tests.behaviour.knobs import MAPPED

TX = "/tx/jobs"
transactional = needs(TX)


@transactional
def work_and_record_are_committed_together(client: Client, ledger: Ledger) -> None:
    """R23: one row, one answer."""
    first, _ = client.twice(TX)
    assert len(ledger) == 1
    assert first.status == 201 and first.document == {"n": 1}


@transactional
def without_a_key_it_commits_as_well(client: Client, ledger: Ledger) -> None:
    """R3: a request without a key is worked on as ever."""
    replies = [client.send(TX, key=None) for _ in range(2)]
    assert len(ledger) == 2
    assert [(reply.status, reply.replayed) for reply in replies] == [(201, False)] * 2


@transactional
def a_returned_failure_rolls_back(client: Client, ledger: Ledger) -> None:
    """H2: an answer of 400 is stored, and nothing else is."""
    first, _ = client.twice(TX, status=400)
    assert len(ledger) == 0
    assert first.status == 400


@transactional
def a_raised_failure_rolls_back(client: Client, ledger: Ledger) -> None:
    """H2: raised or returned, it is the same."""
    first, _ = client.twice(TX, raises="http", status=400)
    assert len(ledger) == 0
    assert first.status == 400


@transactional
def a_mapped_failure_rolls_back(client: Client, ledger: Ledger) -> None:
    """H2: what a handler made of an exception is stored, what the exception interrupted is not."""
    first, _ = client.twice(TX, raises="mapped")
    assert len(ledger) == 0
    assert first.status == 409 and first.document == MAPPED


@transactional
def a_failure_that_nobody_handles_frees_the_key(client: Client, ledger: Ledger) -> None:
    """R16: it was rolled back, so that the retry runs."""
    broken = client.send(TX, raises="unhandled")
    assert len(ledger) == 0
    assert broken.status == 500
    client.twice(TX)
    assert len(ledger) == 1


@transactional
def a_refused_commit_is_no_success(client: Client, ledger: Ledger) -> None:
    """H2: the database refuses at the last moment: not stored as done, and the retry runs."""
    refused = client.send(TX, mark=0)
    assert len(ledger) == 0
    assert refused.status >= 500
    first, _ = client.twice(TX)
    assert len(ledger) == 1
    assert first.status == 201


@transactional
def a_stream_is_committed_before_its_first_byte(client: Client, ledger: Ledger) -> None:
    """I11: a body without a length is held back until the commit, and replayed whole."""
    first, _ = client.twice(TX, chunks=[b"one ", b"two"])
    assert len(ledger) == 1
    assert first.body == b"one two"


@transactional
def a_duplicate_runs_nothing_while_the_first_does(client: Client, ledger: Ledger) -> None:
    """R10, A7: whoever comes while the transaction is open is refused or waits; one row in the end."""
    gate = client.gate("after")
    running = client.begin(TX, after=gate)
    gate.reached()
    rival = client.begin(TX, after=gate)
    gate.open()
    first, second = running.reply(), rival.reply()
    assert len(ledger) == 1
    assert first.status == 201
    assert second.status == 409 or second.body == first.body
    client.same(first, client.send(TX))
