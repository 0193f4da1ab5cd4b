"""What a retry is given under WSGI, bare, by Flask and by Falcon: the first answer, byte for byte, line for line."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from datetime import timedelta

import pytest

from tests.shells.wsgi_subjects import KINDS, HttpError, MappedError, Probe, Reply, Subject, request
from twicesafe import Policy

JSON = ("Content-Type", "application/json")
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_a_retry_gets_the_first_answer_and_nothing_runs_again(kind):
    """R11, R17, R42: one effect, and the retry carries the first answer with the marker."""
    subject = Subject(kind)
    first, again = subject.post(), subject.post()
    assert subject.effects == 1
    assert (first.status, first.body, first.replayed) == (201, b'{"n": 1}', False)
    assert (again.status, again.body, again.replayed) == (201, b'{"n": 1}', True)
    assert again.own == first.own
    assert first.header("idempotency-key-retention") == again.header("idempotency-key-retention") == "86400"
    assert subject.told == ["replayed"]


@every_kind
def test_header_lines_are_replayed_one_by_one(kind):
    """D1, R17: cookies, links, commas and Latin-1 bytes come back line for line as the first caller got them."""
    lines = (
        ("Set-Cookie", "a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("Set-Cookie", "b=2; Expires=Tue, 22 Oct 2030 07:28:00 GMT"),
        ("Content-Disposition", 'attachment; filename="a, b.txt"'),
        ("Link", "</1>; rel=next"),
        ("Link", "</2>; rel=last"),
        ("X-Name", "caf\xe9"),
    )
    subject = Subject(kind, Policy(store_cookies=True), Probe(headers=lines))
    first, again = subject.post(), subject.post()
    assert subject.effects == 1
    assert again.own == first.own
    cookies = [line for name, line in again.own if name.lower() == b"set-cookie"]
    assert cookies == [b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT", b"b=2; Expires=Tue, 22 Oct 2030 07:28:00 GMT"]
    assert again.header("x-name") == "caf\xe9"
    assert again.header("content-disposition") == 'attachment; filename="a, b.txt"'
    if kind != "falcon":
        # Falcon makes one line of two, cookies apart.
        assert [line for name, line in again.own if name.lower() == b"link"] == [b"</1>; rel=next", b"</2>; rel=last"]


@every_kind
@pytest.mark.parametrize(
    ("status", "line"),
    [
        (201, ("Location", "/jobs/1")),
        (202, ("Retry-After", "7")),
        (303, ("Location", "/jobs/1")),
        (406, ("Content-Type", "application/problem+json")),
        (200, ("Content-Type", "application/json; charset=utf-8")),
        (409, JSON),
        (500, ("Content-Type", "text/plain")),
    ],
)
def test_status_and_headers_come_back_whatever_the_retry_accepts(kind, status, line):
    """D2, R15, R17: wire bytes are stored, failures included, and the retry's Accept changes nothing."""
    subject = Subject(kind, probe=Probe(status=status, headers=(line,)))
    first = subject.post(headers=[("Accept", "application/json")])
    again = subject.post(headers=[("Accept", "text/html")])
    assert subject.effects == 1
    assert (again.status, again.replayed) == (first.status, True) == (status, True)
    assert again.own == first.own
    assert again.header(line[0].lower()) == first.header(line[0].lower()) != None  # noqa: E711 - what it was
    assert again.body == first.body


@every_kind
@pytest.mark.parametrize("status", [202, 204, 304])
def test_an_answer_without_a_body_is_an_answer(kind, status):
    """A3, D2, R17: 202, 204 and 304 without a body are remembered; the replay has no body either."""
    subject = Subject(kind, probe=Probe(status=status, headers=(("ETag", '"v1"'),), body=b""))
    first, again = subject.post(), subject.post()
    assert subject.effects == 1
    assert (again.status, again.body, again.replayed) == (status, b"", True)
    assert again.own == first.own
    assert again.header("content-length") in (None, "0")


@every_kind
def test_what_belongs_to_one_exchange_is_not_replayed(kind):
    """D3, R17: cookies, challenges, dates, limits, ids and hop-by-hop lines stay with their own exchange."""
    lines = (
        ("Set-Cookie", "csrf=1"),
        ("WWW-Authenticate", "Bearer"),
        ("Date", "Mon, 21 Oct 2030 07:28:00 GMT"),
        ("X-Request-Id", "1"),
        ("X-RateLimit-Remaining", "9"),
        ("Connection", "x-hop"),
        ("X-Hop", "1"),
        ("X-Kept", "1"),
        JSON,
    )
    subject = Subject(kind, probe=Probe(headers=lines))
    first, again = subject.post(), subject.post()
    assert subject.effects == 1
    assert first.header("set-cookie") == "csrf=1"
    assert {name.lower() for name, _ in again.own} == {b"content-type", b"content-length", b"x-kept"}


@every_kind
def test_every_byte_value_and_an_encoded_body_come_back_untouched(kind):
    """D4, R17: all 256 byte values, and gzip bytes with their Content-Encoding, are equal on the replay."""
    for body, lines in (
        (bytes(range(256)), (("Content-Type", "application/octet-stream"),)),
        (gzip.compress(b'{"n": 1}'), (("Content-Encoding", "gzip"), JSON)),
    ):
        subject = Subject(kind, probe=Probe(body=body, headers=lines))
        subject.post()
        again = subject.post(headers=[("Accept-Encoding", "identity")])
        assert subject.effects == 1
        assert again.body == body
        assert again.header("content-encoding") == dict(lines).get("Content-Encoding")


@every_kind
@pytest.mark.parametrize("value", [0, False, "", {}, [], None])
def test_falsy_answers_are_answers(kind, value):
    """D6: 0, false, "", {}, [] and null are results, not the absence of one."""
    subject = Subject(kind, probe=Probe(body=json.dumps(value).encode()))
    first, again = subject.post(), subject.post()
    assert subject.effects == 1
    assert again.body == first.body == json.dumps(value).encode()


@every_kind
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("over", [0, 1])
def test_a_large_answer_reaches_its_first_caller_whole_and_is_never_made_twice(kind, chunked, over):
    """A4, R18: over the limit the first caller gets everything, retries get "done, not kept"; effects stay 1."""
    whole = bytes(range(256)) * 256 + b"x" * over
    lines = (("Content-Type", "application/octet-stream"), ("Location", "/w/1"), ("ETag", '"1"'))
    probe = Probe(headers=lines, body=whole)
    if chunked:
        probe = Probe(headers=lines, chunks=[whole[at : at + 16384] for at in range(0, len(whole), 16384)])
    subject = Subject(kind, Policy(response_limit=65536), probe)
    first = subject.post()
    assert first.body == whole
    for retry in (subject.post(), subject.post()):
        assert subject.effects == 1
        assert (retry.status, retry.replayed, retry.header("location")) == (201, True, "/w/1")
        if over:
            assert retry.kind == "result-not-kept"
            assert retry.header("etag") is None
        else:
            assert retry.body == whole


@every_kind
def test_a_finite_stream_flows_live_and_is_replayed_whole(kind):
    """D5, R18, I11: each chunk leaves before the next is made; the replay is whole."""
    made: list[int] = []
    left_at = []
    subject = Subject(kind, probe=Probe(chunks=[b"a", b"b", b"c"], between=made.append))

    def server(environ, start_response):
        with closing(subject.app(environ, start_response)) as result:
            for piece in result:
                if piece:
                    left_at.append((piece, len(made)))
                yield piece

    first = Reply(server, request())
    again = subject.post()
    assert subject.effects == 1
    assert first.body == again.body == b"abc"
    assert again.replayed
    assert left_at == [(b"a", 1), (b"b", 2), (b"c", 3)]


@every_kind
def test_a_client_that_leaves_a_stream_changes_nothing(kind):
    """R14, D5: the server closes the answer after its first piece; it is drained, recorded, and replayed whole."""
    subject = Subject(kind, probe=Probe(chunks=[b"a", b"b", b"c"]))
    first = Reply(subject.app, request(), after=1)
    again = subject.post()
    assert subject.effects == 1
    assert (first.body, again.body, again.replayed) == (b"a", b"abc", True)


@every_kind
def test_an_endless_stream_ends_with_its_client(kind):
    """D5, R18: server-sent events flow, end when they are closed, and a retry is told that it is done."""
    probe = Probe(status=200, headers=(("Content-Type", "text/event-stream"),))
    probe.chunks = (b"data: %d\n\n" % number for number in iter(int, 1))
    subject = Subject(kind, probe=probe)
    first = Reply(subject.app, request(), after=3)
    again = subject.post()
    assert subject.effects == 1
    assert first.body == b"data: 0\n\n" * 3
    assert (again.status, again.kind, again.replayed) == (200, "result-not-kept", True)


@every_kind
def test_a_broken_stream_is_never_stored_as_a_success(kind):
    """D5, K: an answer that stops half-way is broken for its caller and an unknown outcome, not a 201."""

    def breaks(number: int) -> None:
        if number:
            raise RuntimeError("the source broke")

    subject = Subject(kind, probe=Probe(chunks=[b"half", b"more"], between=breaks))
    first = subject.post(raises=RuntimeError)
    assert (first.body, type(first.raised)) == (b"half", RuntimeError)
    again = subject.post()
    assert subject.effects == 1
    assert (again.status, again.kind) == (409, "outcome-unknown")


@every_kind
def test_a_key_is_remembered_longer_than_its_body(kind):
    """R20: body and key have retentions of their own; past both the key is free, without any sweeper."""
    day = timedelta(days=1)
    subject = Subject(kind, Policy(key_retention=30 * day, body_retention=day))
    subject.post()
    subject.pass_time(day)
    gone = subject.post()
    assert subject.effects == 1
    assert (gone.status, gone.kind, gone.replayed) == (201, "result-not-kept", True)
    subject.pass_time(29 * day)
    assert not subject.post().replayed
    assert subject.effects == 2


@every_kind
def test_what_is_closed_is_closed_once_and_after_the_record(kind):
    """K, R17: close() of the first answer is called exactly once; one that fails makes no second run."""
    closed = []

    def close() -> None:
        assert subject.probe.ledger
        closed.append(1)
        raise RuntimeError("a task after the answer failed")

    subject = Subject(kind, probe=Probe(closed=close))
    first = subject.post(raises=RuntimeError)
    again = subject.post()
    assert (subject.effects, closed) == (1, [1])
    assert (first.status, again.status, again.replayed) == (201, 201, True)


@every_kind
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("error", "status"), [(HttpError(402), 402), (MappedError(), 409)])
def test_an_error_is_recorded_as_its_caller_saw_it(kind, after, error, status):
    """E4, R15: a framework's HTTP error and a mapped exception, before or after the effect: the retry gets the same."""
    subject = Subject(kind, probe=Probe(raise_after=error) if after else Probe(raise_before=error))
    first, again = subject.post(), subject.post()
    assert subject.effects == (1 if after else 0)
    assert (first.status, first.replayed) == (status, False)
    assert (again.status, again.replayed, again.body) == (status, True, first.body)
    assert len(subject.probe.seen) == 1


@every_kind
def test_an_unhandled_error_of_opaque_work_is_the_answer_to_every_retry(kind):
    """E4, R16: the framework's own 500 is recorded, or `handler-failed`; unknown_on_error makes the outcome unknown."""
    subject = Subject(kind, probe=Probe(raise_after=ZeroDivisionError()))
    first = subject.post(raises=ZeroDivisionError)
    again = subject.post()
    assert subject.effects == 1
    assert (first.status, again.status, again.replayed) == (500, 500, True)
    assert first.body == again.body
    assert kind != "bare" or again.kind == "handler-failed"
    unsure = Subject(kind, Policy(unknown_on_error=True), Probe(raise_after=ZeroDivisionError()))
    assert unsure.post(raises=ZeroDivisionError).status == (None if kind == "bare" else 500)
    assert (unsure.post().kind, unsure.effects) == ("outcome-unknown", 1)


@every_kind
def test_an_unhandled_error_of_keyed_work_lets_the_next_attempt_run(kind):
    """E4, R13, R16: nothing is stored; the framework's own 500, or the exception itself, reaches the caller."""
    subject = Subject(kind, Policy(effects="keyed"), Probe(raise_after=ZeroDivisionError()))
    first = subject.post(raises=ZeroDivisionError)
    assert (type(first.raised) is ZeroDivisionError) == (kind == "bare")
    assert first.status == (None if kind == "bare" else 500)
    subject.probe.raise_after = None
    subject.pass_time(timedelta(microseconds=1))
    assert (subject.post().status, subject.effects) == (201, 2)


@every_kind
@pytest.mark.parametrize("torn", [SystemExit(1), KeyboardInterrupt()])
def test_a_worker_that_is_torn_down_leaves_an_unknown_outcome(kind, torn):
    """B7, R16: gunicorn ends a worker by SystemExit in the handler; nothing is recorded as done, nothing runs again."""
    subject = Subject(kind, probe=Probe(raise_after=torn))
    assert type(subject.post(raises=BaseException).raised) is type(torn)
    again = subject.post()
    assert subject.effects == 1
    assert (again.status, again.kind) == (409, "outcome-unknown")


@every_kind
@pytest.mark.parametrize("status", [408, 425, 429, 503])
@pytest.mark.parametrize("raised", [False, True])
def test_answers_that_say_that_nothing_was_done_free_the_key(kind, status, raised):
    """E3, R15: 408, 425, 429 and 503, returned or raised, are not stored; the retry runs."""
    subject = Subject(kind, probe=Probe(raise_before=HttpError(status)) if raised else Probe(status=status))
    first = subject.post()
    assert first.status == status
    subject.probe.raise_before, subject.probe.status = None, 201
    before = subject.effects
    assert (subject.post().status, subject.effects) == (201, before + 1)


@every_kind
def test_a_handler_may_declare_that_it_did_nothing(kind):
    """E2, R15: a refused attempt that says so does not burn the key."""
    subject = Subject(kind, probe=Probe(status=422, effect=lambda keyed: keyed.nothing_done()))
    assert subject.post().status == 422
    subject.probe.status, subject.probe.effect = 201, lambda keyed: None
    assert subject.post(body=b"corrected").status == 201
    assert subject.effects == 2
