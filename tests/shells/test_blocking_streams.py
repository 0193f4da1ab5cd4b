"""The blocking driver and answers that flow: recorded by their heads, drained, broken, lost."""

from __future__ import annotations

import gc

import pytest

from tests.shells.blocking_rig import REPLAYED, BlockingRig, kind, sent
from twicesafe.blocking import sending
from twicesafe.core.policy import Policy


def test_a_stream_flows_and_is_replayed_whole():
    """D5, R18, I11: its head is recorded before the first piece leaves, each piece leaves as it comes, all are kept."""
    rig = BlockingRig()
    order: list[object] = []

    def pieces():
        for piece in (b"a", b"b", b"c"):
            order.append(piece)
            yield piece

    rig.store.before["start_answer"] = lambda: order.append("head")
    rig.store.before["complete"] = lambda: order.append("recorded")
    first = rig.ask(pieces, close=lambda: order.append("closed"))
    order.extend(b"sent " + piece for piece in first.pieces)
    first.close()
    first.close()
    assert order == [b"a", "head", b"sent a", b"b", b"sent b", b"c", b"sent c", "recorded", "closed"]
    again = rig.ask()
    assert (rig.ledger, sent(again), again.headers[-1]) == (["k-0001"], b"abc", REPLAYED)


def test_a_stream_whose_client_is_gone_is_drained_for_its_record():
    """R14, R18: closed after its first piece, a stream that can still be recorded is read to its end, and is."""
    rig = BlockingRig()
    closed = []
    first = rig.ask(lambda: iter([b"a", b"b", b"c"]), close=lambda: closed.append(1))
    assert next(iter(first.pieces)) == b"a"
    first.close()
    assert closed == [1]
    assert sent(rig.ask()) == b"abc"
    assert rig.ledger == ["k-0001"]


def test_a_stream_nobody_reads_is_not_drained_for_ever():
    """R18, D5: after LINGER seconds the rest is left; retries are told: done, not kept; nothing runs."""
    rig = BlockingRig()
    pulled = []

    def pieces():
        for number in range(1000):
            rig.seconds += 1.0
            pulled.append(number)
            yield b"x"

    first = rig.ask(pieces)
    first.close()
    assert sending.LINGER <= len(pulled) <= sending.LINGER + 2
    again = rig.ask()
    assert len(rig.ledger) == 1
    assert (again.status, kind(again)) == (201, "result-not-kept")
    assert not rig.shared.renewals._live


def test_an_endless_stream_ends_with_its_client():
    """D5, R18: server-sent events are not drained at all, for nothing of them can be kept."""
    rig = BlockingRig()
    pulled = []

    def events():
        while True:
            pulled.append(1)
            yield b"data: 1\n\n"

    first = rig.ask(events, status=200, headers=((b"content-type", b"text/event-stream"),))
    assert next(iter(first.pieces)) == b"data: 1\n\n"
    first.close()
    assert len(pulled) == 1
    assert kind(rig.ask()) == "result-not-kept"
    assert len(rig.ledger) == 1


def test_a_stream_that_nobody_closes_is_closed_when_it_is_lost():
    """R27: a layer that drops an answer without closing it leaves no claim under renewal for ever."""
    rig = BlockingRig()
    first = rig.ask(lambda: iter([b"a", b"b"]))
    assert rig.shared.renewals._live
    del first
    gc.collect()
    assert not rig.shared.renewals._live
    assert sent(rig.ask()) == b"ab"
    assert len(rig.ledger) == 1


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_a_stream_that_breaks_is_an_unknown_outcome(error):
    """D5, K, I6: it is broken for its reader too, closed once, and no retry runs or is told that all went well."""
    rig = BlockingRig()
    closed = []

    def pieces():
        yield b"half"
        raise error

    first = rig.ask(pieces, close=lambda: closed.append(1))
    with pytest.raises(type(error)):
        sent(first)
    assert closed == [1]
    assert (len(rig.ledger), kind(rig.ask())) == (1, "outcome-unknown")


@pytest.mark.parametrize("pieces", [[b"x" * 10], [b"x" * 6, b"x" * 4]])
def test_an_answer_whose_length_is_known_is_recorded_before_its_last_byte_leaves(pieces):
    """I11, A4: over the limit it flows, and a client that counts bytes may ask again as soon as it has them all."""
    rig = BlockingRig(Policy(response_limit=5))
    lines = ((b"Content-Length", b"10"),)
    first = rig.ask(lambda: iter(pieces), headers=lines)
    answers = []
    for number, _ in enumerate(first.pieces, 1):
        answers.append(kind(rig.ask()) if number == len(pieces) else "")
    assert answers[-1] == "result-not-kept"
    assert len(rig.ledger) == 1


def test_what_comes_after_the_last_byte_of_an_answer_is_passed_on():
    """R18: an application that sends more than it said is not cut short by the record; its error is its own."""
    rig = BlockingRig(Policy(response_limit=5))

    def pieces():
        yield b"x" * 6
        yield b"x" * 4
        yield b"more"
        raise ZeroDivisionError

    first = rig.ask(pieces, headers=((b"Content-Length", b"10"),))
    given = []
    with pytest.raises(ZeroDivisionError):
        given.extend(first.pieces)
    assert given == [b"x" * 6, b"x" * 4, b"more"]
    assert (kind(rig.ask()), len(rig.ledger)) == ("result-not-kept", 1)
