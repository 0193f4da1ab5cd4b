"""The process is killed in the middle of its work (A7, B5, R13)."""

from __future__ import annotations

from tests.behaviour.case import needs
from tests.behaviour.client import Client, Ledger


def nothing_to_complain_of(client: Client, ledger: Ledger) -> None:
    """A1: after all of that, no task's exception went unseen and no coroutine unawaited."""
    assert client.send().status == 201
    assert len(ledger) == 1
    said = client.server.said()
    assert "never retrieved" not in said and "never awaited" not in said and "was destroyed" not in said


@needs("/short/jobs")
def after_a_crash_the_contract_decides(client: Client, ledger: Ledger) -> None:
    """A7, B5, R13, R23: killed right after its effect, opaque work is held as unknown, never silently done again; a
    transaction was never there, and runs at once."""
    opaque, inside = client.gate("opaque"), client.gate("inside")
    transactional = client.offers("/tx/jobs")
    tx = {"key": client.tag.encode(), "body": b'"in a transaction"'}
    client.begin("/short/jobs", after=opaque)
    opaque.reached()
    if transactional:
        client.begin("/tx/jobs", after=inside, **tx)
        inside.reached()
    client.server.kill()
    assert len(ledger) == 1
    client.server.start()
    client.server.await_ready()
    if transactional:
        client.twice("/tx/jobs", **tx)
        assert len(ledger) == 2
    retry = client.settled("/short/jobs")
    assert [row.path for row in ledger.rows()] == ["/short/jobs", "/tx/jobs"][: 1 + transactional]
    assert (retry.status, retry.problem) == (409, "outcome-unknown")
    assert retry.document["safe_new_key"] is False
