"""Which requests are one request under WSGI, whose they are, what comes first, and how their bodies arrive."""

from __future__ import annotations

import secrets
import string
from io import BytesIO

import pytest

from tests.shells.wsgi_subjects import KINDS, Probe, Subject
from twicesafe import JSON, MULTIPART, FingerprintRule, KeyRule, KeySyntax, Policy
from twicesafe.core.carriers import FormField, JsonMember

every_kind = pytest.mark.parametrize("kind", KINDS)


def form(boundary: str, content: bytes) -> tuple[str, bytes]:
    """A multipart form with a file."""
    body = (
        b'--%b\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'
        b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n%b\r\n--%b--\r\n'
    )
    mark = boundary.encode()
    return f"multipart/form-data; boundary={boundary}", body % (mark, mark, content, mark)


@every_kind
def test_authentication_comes_first_on_a_replay_as_well(kind):
    """E1, R22: without credentials 401, which leaves no record; with them it runs; a replay wants them too."""
    subject = Subject(kind)
    assert [subject.post(user="").status, subject.post().status, subject.post(user="").status] == [401, 201, 401]
    assert subject.effects == 1
    assert subject.post().replayed


@every_kind
def test_what_the_router_refuses_leaves_no_record(kind):
    """E1: 404 and 405 under a key, then the right call under it: it runs."""
    subject = Subject(kind)
    assert subject.post(path="/nowhere").status == 404
    assert subject.post(method="GET").status == 405
    assert (subject.post().status, subject.effects) == (201, 1)


@every_kind
def test_a_body_over_the_limit_claims_nothing(kind):
    """R9, E1: 413, whether its length is told or not; the key is free for a body that fits."""
    subject = Subject(kind, Policy(body_limit=10))
    told = subject.post(body=b"x" * 11)
    untold = subject.post(body=b"x" * 11, length=None, terminated=True)
    assert [(reply.status, reply.kind) for reply in (told, untold)] == [(413, "body-too-large")] * 2
    assert subject.effects == 0
    assert (subject.post(body=b"x" * 10).status, subject.effects) == (201, 1)


@every_kind
@pytest.mark.parametrize("how", ["short", "broken", "untold"])
def test_half_an_upload_claims_nothing(kind, how):
    """R9, H1, K: a body shorter than told, broken, or without a readable end: 400, and the whole one runs."""

    class Broken:
        def read(self, size: int = -1) -> bytes:
            raise ConnectionError("the client is gone")

    if how == "short":
        half = subject_post(kind, body=b"half", length="10")
    elif how == "broken":
        half = subject_post(kind, stream=Broken(), length=None, terminated=True)
    else:
        half = subject_post(kind, body=b"half", length=None)
    subject, reply = half
    assert subject.effects == 0
    assert (reply.status, reply.kind) == (400, "body-incomplete")
    assert (subject.post().status, subject.effects) == (201, 1)


def subject_post(kind, **how):
    subject = Subject(kind)
    return subject, subject.post(**how)


class Trickling:
    """A connection that gives a few bytes at a time and must not be read past the body's end."""

    def __init__(self, body: bytes, length: int) -> None:
        self._body = BytesIO(body)
        self._left = length

    def read(self, size: int = -1) -> bytes:
        assert self._left, "this would wait for ever"
        found = self._body.read(min(3, size if size >= 0 else 3))
        self._left -= len(found)
        return found


@every_kind
@pytest.mark.parametrize("key", ["k-1", None])
def test_the_application_reads_exactly_what_was_sent(kind, key):
    """H1: from a connection that trickles, with more behind it, the handler reads the body's bytes and no more."""
    body = bytes(range(256))
    subject = Subject(kind)
    if key is None:
        # Without a key nobody stands between the application and its server.
        assert subject.post(key=None, body=body).status == 201
    else:
        reply = subject.post(stream=Trickling(body + b"GET / HTTP/1.1", 256), length="256", key=key)
        assert reply.status == 201
    assert subject.probe.seen == [body]


@every_kind
def test_a_body_of_unknown_length_is_read_to_its_end(kind):
    """H1, F1: where the server ends wsgi.input itself, a chunked body is one request with the same body whole."""
    subject = Subject(kind)
    assert subject.post(body=b"chunks", length=None, terminated=True).status == 201
    assert subject.probe.seen == [b"chunks"]
    assert subject.post(body=b"chunks").replayed
    assert subject.post(body=b"chunk", length=None, terminated=True).status == 422
    assert subject.effects == 1


@every_kind
def test_files_are_compared_by_content(kind):
    """F1: two boundaries and one file are one request; one changed byte in the file is another."""
    subject = Subject(kind, Policy(fingerprint=FingerprintRule(MULTIPART)))

    def upload(boundary, content):
        content_type, body = form(boundary, content)
        return subject.post(content_type=content_type, body=body)

    assert upload("one", b"file").status == 201
    assert upload("two", b"file").replayed
    assert upload("two", b"fila").status == 422
    assert subject.effects == 1


@every_kind
def test_json_is_compared_by_value_where_that_is_wanted(kind):
    """F2: members in another order, white space and escapes are one request; another order of an array is not."""
    subject = Subject(kind, Policy(fingerprint=FingerprintRule(JSON)))
    assert subject.post(body=b'{"a":1,"b":{"x":"\xc3\xa9","y":[1,2]}}').status == 201
    assert subject.post(body=b'{"b": {"y": [1, 2], "x": "\\u00e9"}, "a": 1}').replayed
    assert subject.post(body=b'{"a":1,"b":{"x":"\xc3\xa9","y":[2,1]}}').status == 422
    assert subject.effects == 1


@every_kind
@pytest.mark.parametrize(
    "other",
    [
        {"query": "dry=1"},
        {"query": "b=2&a=1"},
        {"path": "/other"},
        {"path": "/jobs/1"},
        {"method": "PATCH"},
        {"content_type": "text/plain"},
        {"body": b'{"amount": 2}'},
        {"raw": "/w%6Frk"},
    ],
)
def test_another_request_under_the_key_is_refused(kind, other):
    """F3, F6, G2, K, I4: query, path and its spelling, method, type and body tell requests apart; nothing runs."""
    subject = Subject(kind)
    first = {"query": "a=1&b=2"} if other.get("query") == "b=2&a=1" else {}
    subject.post(**first)
    refused = subject.post(**other)
    assert (refused.status, refused.kind) == (422, "key-reused")
    assert subject.post(**first).replayed
    assert subject.effects == 1


@every_kind
def test_the_raw_path_is_what_the_client_wrote(kind):
    """F3, K: where the server tells it, %2F and / differ; otherwise the path is quoted anew."""
    subject = Subject(kind)
    subject.post(raw="/jobs?a=1")
    assert subject.post(raw="http://example.com/jobs").replayed
    assert subject.post().replayed
    assert subject.post(path="/jobs/a b", raw="/jobs/a%20b", key="k-2").status == 201
    assert subject.post(path="/jobs/a b", key="k-2").replayed
    assert subject.post(path="/jobs/a b", raw="/jobs%2Fa%20b", key="k-2").status == 422
    assert subject.effects == 2
    plain = "/jobs/ada@example.com:refund,now;a=b!$&'()*+~"
    assert subject.post(path=plain, raw=plain, key="k-3").status == 201
    assert subject.post(path=plain, key="k-3").replayed


@every_kind
def test_what_changes_between_attempts_changes_nothing(kind):
    """F5, R6: another token of the same user, trace headers: a replay; another user: a namespace of their own."""
    subject = Subject(kind)
    subject.post(headers=[("Authorization", "Bearer 1"), ("Traceparent", "1"), ("User-Agent", "a")])
    assert subject.post(headers=[("Authorization", "Bearer 2"), ("Traceparent", "2"), ("User-Agent", "b")]).replayed
    assert subject.effects == 1
    other = subject.post(user="bob")
    assert (other.status, other.replayed, subject.effects) == (201, False, 2)


@every_kind
def test_a_header_that_changes_the_request_is_part_of_it_by_choice(kind):
    """R8: a version header that the policy names tells requests apart."""
    subject = Subject(kind, Policy(fingerprint=FingerprintRule(headers=(b"Api-Version",))))
    subject.post(headers=[("Api-Version", "1")])
    assert subject.post(headers=[("Api-Version", "1")]).replayed
    assert subject.post(headers=[("Api-Version", "2")]).status == 422
    assert subject.effects == 1


@every_kind
def test_a_refused_request_damages_no_record(kind):
    """F8, B4: while the first runs, another body is refused and a duplicate told to wait; then the first replays."""
    refusals = []

    def meanwhile(keyed):
        subject.probe.effect = lambda keyed: None
        refusals.extend([subject.post(body=b"other"), subject.post()])

    subject = Subject(kind, probe=Probe(effect=meanwhile))
    assert subject.post().status == 201
    assert [(reply.status, reply.kind) for reply in refusals] == [(422, "key-reused"), (409, "in-progress")]
    assert refusals[1].header("retry-after") == "1"
    assert subject.post().replayed
    assert subject.effects == 1


@every_kind
def test_nobody_is_a_caller(kind):
    """G1, R6: where the scope gives None, 403 and nothing runs."""
    subject = Subject(kind, scope=lambda *_: None)
    refused = subject.post()
    assert subject.effects == 0
    assert (refused.status, refused.kind) == (403, "caller-unknown")


@every_kind
@pytest.mark.parametrize(
    "key",
    ["", "   ", '""', "x" * 256, "".join(secrets.choice(string.ascii_letters) for _ in range(5000)), "caf\xe9", "a\tb"],
)
def test_a_key_that_is_none_is_refused(kind, key):
    """G5, G6, R4: empty, blank, over-long and non-ASCII keys get 400 before any work."""
    subject = Subject(kind)
    refused = subject.post(key=key)
    assert subject.effects == 0
    assert (refused.status, refused.kind) == (400, "key-invalid")


@every_kind
def test_bare_and_quoted_are_one_key_and_two_lines_are_none(kind):
    """R4: one identity, however written; differing lines, which WSGI servers join, are refused."""
    subject = Subject(kind)
    subject.post(key="abc")
    assert subject.post(key='"abc"').replayed
    assert subject.post(key="abc,abc").replayed
    for two in ("abc,def", 'abc, "def"', "abc,", ",abc"):
        assert subject.post(key=two).kind == "key-invalid"
    assert subject.post(key='"a,b"').status == 201
    assert subject.post(key='"a,b", "a,b"').replayed
    assert subject.effects == 2


@every_kind
def test_a_missing_key_is_passed_through_or_refused(kind):
    """R3, G6: three calls without a key are three runs; where it is required, 400 and none."""
    subject = Subject(kind)
    for _ in range(3):
        reply = subject.post(key=None)
        assert (reply.status, reply.header("idempotency-key-retention")) == (201, None)
    assert subject.effects == 3
    strict = Subject(kind, Policy(required=True, key=KeyRule(KeySyntax.UUID)))
    assert strict.post(key=None).kind == "key-missing"
    assert strict.post(key="no-uuid").kind == "key-invalid"
    assert strict.effects == 0


@every_kind
def test_a_preflight_touches_nothing(kind):
    """G8: OPTIONS that carries a key claims nothing, whatever answers it."""
    subject = Subject(kind)
    subject.post(method="OPTIONS")
    effects = subject.effects
    assert subject.post().replayed is False
    assert subject.effects == effects + 1
    assert subject.told == []


@every_kind
def test_a_key_may_stand_in_the_body(kind):
    """R5: in a JSON member or a form's field; the body is still the application's to read; too large, it is refused."""
    subject = Subject(kind, Policy(fields=(JsonMember("key"), FormField("key")), body_limit=100))
    body = b'{"key": "k-1", "amount": 1}'
    assert subject.post(key=None, body=body).status == 201
    assert subject.post(key=None, body=body).replayed
    form_type = "application/x-www-form-urlencoded"
    assert subject.post(key=None, content_type=form_type, body=b"key=k-2&a=1").status == 201
    assert subject.post(key=None, content_type=form_type, body=b"key=k-2&a=1").replayed
    assert subject.post(key=None, body=b'{"key": "%b"}' % (b"x" * 100)).status == 413
    assert subject.effects == 2
    assert subject.probe.seen == [body, b"key=k-2&a=1"]
