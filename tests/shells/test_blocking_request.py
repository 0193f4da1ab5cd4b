"""The blocking driver: record, then send; whatever the application gives, and whoever fails."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.shells.blocking_rig import KEYED, LINES, REPLAYED, RETENTION, BlockingRig, facts, kind, sent
from twicesafe.blocking.request import BlockingRequest
from twicesafe.core.exchange import IncompleteAnswerError
from twicesafe.core.keys import PUBLIC
from twicesafe.core.policy import Operation, Policy
from twicesafe.errors import AmbiguousWriteError, KeyReusedError, StoreUnavailableError

PATIENCE = 30.0


def test_a_retry_gets_the_recorded_answer_and_runs_nothing():
    """R11, R17, R20: one effect; the retry has the first answer's bytes and lines, marked; both announce."""
    rig = BlockingRig()
    lines = (*LINES, (b"Content-Length", b"4"), (b"Link", b"</1>"), (b"Link", b"</2>"))
    first = rig.ask(headers=lines)
    again = rig.ask(headers=lines)
    assert rig.ledger == ["k-0001"]
    assert (first.status, first.headers, sent(first)) == (201, (RETENTION, *lines), b"done")
    assert (again.status, again.headers, sent(again)) == (201, (RETENTION, *lines, REPLAYED), b"done")
    assert rig.told == ["replayed"]


@pytest.mark.parametrize("live", [False, True])
def test_what_is_announced_is_never_stored(live):
    """R20: after the policy changed, a replay announces what holds now, and that once."""
    rig = BlockingRig()
    sent(rig.ask(lambda: iter([b"a", b"b"]) if live else [b"ab"]))
    rig.policy = Policy(key_retention=timedelta(days=2))
    again = rig.ask()
    assert len(rig.ledger) == 1
    assert again.headers == ((b"idempotency-key-retention", b"172800"), *LINES, REPLAYED)


@pytest.mark.parametrize(
    "pieces", [[b"done"], (b"do", b"ne"), [b"", b"done"], [bytearray(b"done")], [memoryview(b"done")]]
)
def test_a_list_is_whole_and_recorded_before_it_is_given(pieces):
    """I11: a list needs no Content-Length to be a whole answer; views of buffers are taken as they are now."""
    rig = BlockingRig()
    order = []
    rig.store.before["complete"] = lambda: order.append("recorded")
    first = rig.ask(pieces)
    order.append("given")
    assert order == ["recorded", "given"]
    assert isinstance(first.pieces, list) and sent(first) == b"done"
    assert sent(rig.ask()) == b"done"
    assert rig.ledger == ["k-0001"]


def test_an_iterator_with_a_length_is_read_to_its_end_before_it_is_recorded():
    """I11, R14: with a Content-Length the pieces are held back to the last one, then recorded, then given."""
    rig = BlockingRig()
    order: list[object] = []

    def pieces():
        for piece in (b"do", b"ne"):
            order.append(piece)
            yield piece
        order.append("ended")

    rig.store.before["complete"] = lambda: order.append("recorded")
    first = rig.ask(pieces, headers=((b"content-length", b"4"),), close=lambda: order.append("closed"))
    assert order == [b"do", b"ne", "ended", "recorded"]
    assert sent(first) == b"done"
    assert order[-1] == "closed" and order.count("closed") == 1
    assert rig.ledger == ["k-0001"]


def test_an_answer_shorter_than_it_says_is_never_recorded_as_whole():
    """D5, K: four bytes of the ten announced: the outcome is unknown, and the server is told of an error."""
    rig = BlockingRig()
    closed = []
    with pytest.raises(IncompleteAnswerError):
        rig.ask([b"half"], headers=((b"content-length", b"10"),), close=lambda: closed.append(1))
    assert closed == [1]
    assert (len(rig.ledger), kind(rig.ask())) == (1, "outcome-unknown")


@pytest.mark.parametrize("pieces", [b"text", ["text"], [97]])
def test_what_is_no_body_is_the_applications_error(pieces):
    """R16: text and numbers where bytes belong are refused, and never become a body of zeros."""
    rig = BlockingRig()
    first = rig.ask(pieces)
    assert (first.status, kind(first), type(first.error)) == (500, "handler-failed", TypeError)
    assert rig.ask().status == 500
    assert len(rig.ledger) == 1


def test_an_exception_of_opaque_work_is_the_answer_to_every_retry():
    """R16: the 500 is recorded, sent, and the exception goes where the application's errors go."""
    rig = BlockingRig()
    boom = RuntimeError("boom")
    first = rig.ask(error=boom)
    assert (first.status, kind(first), first.error) == (500, "handler-failed", boom)
    again = rig.ask()
    assert (again.status, kind(again), again.error) == (500, "handler-failed", None)
    assert len(rig.ledger) == 1


def test_an_exception_of_keyed_work_lets_the_next_attempt_run():
    """R13, R16: keyed work runs again under its derived keys; its exception reaches the server."""
    rig = BlockingRig(KEYED)
    keys = []
    for _ in range(2):
        with pytest.raises(RuntimeError):
            rig.ask(error=RuntimeError(), handler=lambda request: keys.append(request.derived_key("call")))
        rig.pass_time(timedelta(microseconds=1))
    assert len(rig.ledger) == 2
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("policy", "again"), [(Policy(), (500, True)), (KEYED, (201, False)), (Policy(unknown_on_error=True), (409, False))]
)
def test_a_frameworks_last_resort_is_recorded_where_exceptions_are(policy, again):
    """E4, R16: shown with what it answers, the page is sent; recorded it is for opaque work whose outcome is told."""
    rig = BlockingRig(policy)
    page = rig.ask([b"page"], status=500, handler=lambda request: request.failed(RuntimeError()))
    assert (page.status, sent(page)) == (500, b"page")
    rig.pass_time(timedelta(microseconds=1))
    answer = rig.ask()
    assert (answer.status, REPLAYED in answer.headers) == again
    assert again[1] is False or sent(answer) == b"page"
    assert len(rig.ledger) == (2 if policy is KEYED else 1)


def test_layers_around_a_handler_add_to_what_stands_in():
    """R17, R21: lines that they make afresh go with a replay or a refusal; those it has, or of a body, do not."""
    rig = BlockingRig()
    rig.ask(headers=((b"Content-Type", b"text/plain"), (b"X-Frame", b"1")))
    request = rig.request()
    stand_in = request.enter(PUBLIC, facts(b"x"))
    added = (
        (b"X-Id", b"2"),
        (b"X-FRAME", b"2"),
        (b"Content-Encoding", b"gzip"),
        (b"ETag", b"1"),
        (b"Set-Cookie", b"s=1"),
    )
    answer = request.answered(500, (*stand_in.headers, *added), [b"broken"])
    assert (answer.status, sent(answer)) == (201, b"done")
    assert answer.headers == (*stand_in.headers, (b"X-Id", b"2"), (b"Set-Cookie", b"s=1"))


def test_an_answer_may_be_rebuilt():
    """R18, R19: from what is stored and the duplicate's request; what fails is told, and what is stored is sent."""
    rig = BlockingRig(Policy(duplicates="rebuilt"))
    rig.ask()
    given = []

    def rebuild(stored, request):
        given.append((stored.body, request))
        if len(given) > 1:
            raise ZeroDivisionError
        return stored._replace(body=b"anew")

    answers = []
    for _ in range(2):
        request = BlockingRequest(rig.shared, Operation("op", rig.policy, rebuild), "k-0001")
        answers.append(sent(request.enter(PUBLIC, facts(b"x"), "the request")))
    assert answers == [b"anew", b"done"]
    assert given == [(b"done", "the request")] * 2
    assert "rebuild.failed" in rig.told and rig.ledger == ["k-0001"]


@pytest.mark.parametrize("torn", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_work_that_is_torn_down_is_an_unknown_outcome(torn):
    """B7, R16, I6: a server that aborts its worker ends opaque work with no record of success, and no rerun."""
    rig = BlockingRig()
    with pytest.raises(type(torn)):
        rig.ask(error=torn)
    assert (len(rig.ledger), kind(rig.ask())) == (1, "outcome-unknown")
    assert not rig.shared.renewals._live


@pytest.mark.parametrize("status", [408, 425, 429, 503])
@pytest.mark.parametrize("live", [False, True])
def test_answers_that_say_that_nothing_was_done_free_the_key(status, live):
    """E3, R15: a 429 or a 503 is passed on and not recorded; the retry runs."""
    rig = BlockingRig()
    first = rig.ask(lambda: iter([b"later"]) if live else [b"later"], status=status)
    assert (first.status, sent(first)) == (status, b"later")
    assert rig.ask().status == 201
    assert len(rig.ledger) == 2


def test_a_handler_may_declare_that_it_did_nothing():
    """R15: after nothing_done() the key stays free, whatever the answer."""
    rig = BlockingRig()
    lines = ((b"Content-Length", b"4"),)
    assert rig.ask(headers=lines, handler=lambda request: request.nothing_done()).status == 201
    assert REPLAYED not in rig.ask(headers=lines).headers
    assert len(rig.ledger) == 2


def test_what_never_reached_the_handler_leaves_no_record():
    """E1, R15: an answer of a router, whatever its status, leaves the key free."""
    rig = BlockingRig()
    for _ in range(2):
        assert REPLAYED not in rig.ask(status=404, entered=False).headers
    assert len(rig.ledger) == 2


def test_another_request_under_the_key_is_refused():
    """I4, R11: 422 for another body, whose handler does not run."""
    rig = BlockingRig()
    rig.ask()
    assert kind(rig.ask(body=b"y")) == "key-reused"
    assert len(rig.ledger) == 1


def test_a_duplicate_of_running_work_is_told_to_wait():
    """R11: 409 with Retry-After while the first runs; with `wait` it looks again until the time is over."""
    rig = BlockingRig(Policy(wait=timedelta(seconds=2)))
    assert rig.request().enter(PUBLIC, facts(b"x")) is None
    refused = rig.ask()
    assert (rig.ledger, refused.status, kind(refused)) == ([], 409, "in-progress")
    assert (b"retry-after", b"1") in refused.headers
    assert sum(rig.paused) == pytest.approx(2.0)


@pytest.mark.parametrize("policy", [Policy(), Policy(wait=timedelta(seconds=20))])
def test_many_threads_at_once_run_once(policy):
    """C1, R10: 32 threads send one request at once: one effect; the others are told to wait, or wait and replay."""
    rig = BlockingRig(policy)
    rig.shared.pause = lambda seconds: done.wait(PATIENCE)
    start, done = threading.Barrier(32, timeout=PATIENCE), threading.Event()

    def one(_: int) -> tuple[int, bool]:
        start.wait()
        answer = rig.ask(headers=((b"Content-Length", b"4"),))
        done.set()
        return answer.status, REPLAYED in answer.headers

    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(one, range(32)))
    assert rig.ledger == ["k-0001"]
    assert set(answers) <= {(201, False), (201, True), (409, False)}
    assert answers.count((201, False)) == 1
    assert not policy.wait or (409, False) not in answers
    assert not rig.shared.renewals._live


def test_a_claim_whose_reply_is_lost_is_found_again():
    """B6: the row is recognised by its owner; the handler runs once."""
    rig = BlockingRig()
    rig.store.fail("claim", AmbiguousWriteError("lost"), lost_reply=True)
    assert rig.ask().status == 201
    assert len(rig.ledger) == 1


def test_without_a_store_nothing_runs():
    """R10: 503, and the handler is not reached."""
    rig = BlockingRig()
    rig.store.fail("claim", StoreUnavailableError("down"))
    refused = rig.ask()
    assert (rig.ledger, refused.status, kind(refused)) == ([], 503, "store-unavailable")


@pytest.mark.parametrize("failures", [1, 3])
def test_recording_is_tried_again(failures):
    """R14: the work is done; a store that is back in time has its record, and the answer waits for it."""
    rig = BlockingRig()
    rig.store.fail("complete", StoreUnavailableError("down"), times=failures)
    assert sent(rig.ask(headers=((b"Content-Length", b"4"),))) == b"done"
    assert len(rig.paused) == failures
    assert REPLAYED in rig.ask().headers
    assert len(rig.ledger) == 1


def test_an_answer_that_cannot_be_recorded_reaches_its_caller_and_nothing_runs_again():
    """R14, A7: the caller has the true answer, the failure is told loudly, the retry learns that nobody knows."""
    rig = BlockingRig()
    rig.store.fail("complete", StoreUnavailableError("down"), times=9)
    assert sent(rig.ask()) == b"done"
    assert ("recording.failed", True) in [(event.name, event.loud) for event in rig.events]
    assert (len(rig.ledger), kind(rig.ask())) == (1, "outcome-unknown")


def test_an_owner_that_lost_its_claim_gives_no_second_answer():
    """B4, I3: a rival took over and answered; the late owner's own answer is dropped, and closed all the same."""
    rig = BlockingRig(KEYED)
    closed = []

    def overtaken(request):
        rig.pass_time(timedelta(seconds=31))
        assert sent(rig.ask([b"theirs"])) == b"theirs"

    late = rig.ask([b"mine"], close=lambda: closed.append(1), handler=overtaken)
    assert (sent(late), REPLAYED in late.headers) == (b"theirs", True)
    assert closed == [1]
    assert "lease.lost" in rig.told
    assert sent(rig.ask()) == b"theirs"


def test_a_store_that_fails_as_none_may_runs_nothing():
    """R10: an error that is no store's goes to the server, and what is answered to it is passed on, not recorded."""
    rig = BlockingRig()
    rig.store.fail("claim", ZeroDivisionError())
    request = rig.request()
    with pytest.raises(ZeroDivisionError):
        request.enter(PUBLIC, facts(b"x"))
    page = request.answered(500, (), [b"sorry"])
    assert (page.status, page.pieces) == (500, [b"sorry"])
    rig.store.fail("complete", ZeroDivisionError())
    closed = []
    with pytest.raises(ZeroDivisionError):
        rig.ask(headers=((b"content-length", b"4"),), close=lambda: closed.append(1))
    assert (closed, len(rig.ledger)) == ([1], 1)
    assert not rig.shared.renewals._live


def test_a_request_that_is_not_entered_passes_through():
    """R3: its pieces are not even looked at, and its errors are its own."""
    rig = BlockingRig()
    pieces = iter([b"a"])
    passed = rig.request("").answered(200, LINES, pieces)
    assert passed == (200, LINES, pieces, None, None)
    boom = RuntimeError()
    with pytest.raises(RuntimeError) as raised:
        rig.request("").raised(boom)
    assert raised.value is boom
    assert rig.told == [] and rig.ledger == []


def test_a_refused_request_is_answered_whatever_the_application_says():
    """R21: the refusal is sent, the application's own answer is closed."""
    rig = BlockingRig()
    closed = []
    request = rig.request()
    refused = request.refuse(KeyReusedError("used"))
    assert request.begun and refused.status == 422
    instead = request.answered(200, (), [b"other"], lambda: closed.append(1))
    assert sent(instead) == sent(refused)
    assert closed == [1]


def test_nothing_is_left_behind():
    """H: after its answer no claim is under renewal and, without any garbage collection, no request is left."""
    rig = BlockingRig()
    gone = []
    gc.disable()
    try:
        for live in (False, True):
            request = rig.request(f"key-{live}")
            assert request.enter(PUBLIC, facts(b"x")) is None
            gone.append(weakref.ref(request))
            sendable = request.answered(201, LINES, iter([b"a"]) if live else [b"a"])
            assert sent(sendable) == b"a"
            del request, sendable
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()
    assert not rig.shared.renewals._live
