"""Answers that come in pieces, or are larger than what is kept (D5, A4, K, R18)."""

from __future__ import annotations

from tests.behaviour.case import everywhere, needs
from tests.behaviour.client import Client, Ledger

KEPT = 64 * 1024
EVENTS = [b"content-type", b"text/event-stream"]
streams = needs("streams")


@everywhere
@needs("streams", "/wait/jobs")
def a_stream_is_replayed_whole(client: Client, ledger: Ledger) -> None:
    """D5: a body without a length is recorded at its end, empty pieces and all."""
    first, _ = client.twice("/wait/jobs", chunks=[b"one ", b"", b"two ", bytes(range(256)), b"three"])
    assert len(ledger) == 1
    assert first.body == b"one two " + bytes(range(256)) + b"three"


@needs("streams", "/wait/jobs")
def a_stream_flows_while_it_is_made(client: Client, ledger: Ledger) -> None:
    """D5: the first piece is there before the handler makes the second; a retry afterwards gets them all."""
    gate = client.gate("between")
    knobs = {"chunks": [b"one ", b"two ", b"three"], "between": gate}
    flowing = client.begin("/wait/jobs", **knobs)
    assert flowing.until(4) == b"one "
    gate.open()
    assert flowing.until(8) == b"one two "
    gate.open()
    first = flowing.reply()
    assert first.whole and first.body == b"one two three"
    again = client.send("/wait/jobs", **knobs)
    assert len(ledger) == 1
    client.same(first, again)


@streams
def events_flow_and_are_not_kept(client: Client, ledger: Ledger) -> None:
    """D5: an event stream without an end reaches its reader event by event; a retry is told that it was begun."""
    gate = client.gate("between")
    knobs = {"chunks": [b"data: 1\n\n", b"data: 2\n\n"], "between": gate, "then": "for ever", "lines": [EVENTS]}
    flowing = client.begin(**knobs)
    assert flowing.until(9) == b"data: 1\n\n"
    gate.open()
    assert flowing.until(18) == b"data: 1\n\ndata: 2\n\n"
    gate.open()
    assert flowing.until(27).endswith(b"data: 2\n\n")
    assert len(ledger) == 1
    again = client.send(**knobs)
    assert len(ledger) == 1
    assert again.problem in ("in-progress", "result-not-kept", "outcome-unknown")
    flowing.hang_up()


@needs("streams", "/wait/jobs")
def a_broken_stream_is_no_success(client: Client, ledger: Ledger) -> None:
    """D5, K: an answer that broke off is never replayed as a whole one, and nothing runs again."""
    broken = client.begin("/wait/jobs", chunks=[b"one ", b"two "], then="break").reply()
    assert not broken.whole
    again = client.send("/wait/jobs", chunks=[b"one ", b"two "], then="break")
    assert len(ledger) == 1
    assert again.problem in ("outcome-unknown", "result-not-kept")
    assert b"one" not in again.body


@needs("/small/jobs")
def an_answer_at_the_limit_is_kept(client: Client, ledger: Ledger) -> None:
    """A4: as large as may be."""
    first, _ = client.twice("/small/jobs", size=KEPT)
    assert len(ledger) == 1
    assert len(first.body) == KEPT


@needs("/small/jobs")
def an_answer_over_the_limit_is_not_kept(client: Client, ledger: Ledger) -> None:
    """A4, R18: one byte more, or megabytes: the first caller gets it all, retries are told that it is done."""
    for number, size in enumerate((KEPT + 1, 5_000_000), 1):
        knobs = {"key": client.key + b"%d" % size, "size": size, "lines": [[b"x-kept", b"kept"]]}
        first = client.send("/small/jobs", **knobs)
        again = [client.send("/small/jobs", **knobs) for _ in range(2)]
        assert len(ledger) == number
        assert len(first.body) == size
        for reply in again:
            assert (reply.status, reply.problem, reply.replayed) == (201, "result-not-kept", True)
            assert reply.all(b"x-kept") == [b"kept"]


@needs("/small/jobs", "streams")
def a_stream_over_the_limit_is_not_kept(client: Client, ledger: Ledger) -> None:
    """A4, R18: the same for an answer whose length nobody knew."""
    knobs = {"chunks": [b"x" * 1024], "times": KEPT // 1024 + 1}
    first = client.send("/small/jobs", **knobs)
    again = client.settled("/small/jobs", **knobs)
    assert len(ledger) == 1
    assert first.body == b"x" * (KEPT + 1024)
    assert (again.status, again.problem, again.replayed) == (201, "result-not-kept", True)
