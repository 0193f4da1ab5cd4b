"""Whether two requests are one (F): what counts, what does not, and what becomes of a reused key."""

from __future__ import annotations

import gzip

from tests.behaviour.case import needs
from tests.behaviour.client import Client, Ledger


def another_body_is_refused(client: Client, ledger: Ledger) -> None:
    """F6, F8, I4: 422, no leak of the first answer, and the first request's retry is still answered."""
    first = client.send(body=b'{"amount": 1}', lines=[[b"x-first", b"secret"]])
    other = client.send(body=b'{"amount": 2}')
    assert len(ledger) == 1
    assert (other.status, other.problem) == (422, "key-reused")
    assert other.document["safe_new_key"] is False and other.document["retryable"] is False
    assert not other.all(b"x-first") and not other.replayed
    client.same(first, client.send(body=b'{"amount": 1}'))
    assert len(ledger) == 1


def another_body_is_refused_while_the_first_runs(client: Client, ledger: Ledger) -> None:
    """F6, F8: the fingerprint is compared first, running or not, and the record is left alone."""
    gate = client.gate("after")
    running = client.begin(after=gate)
    gate.reached()
    other = client.send(body=b'{"amount": 2}')
    assert len(ledger) == 1
    assert (other.status, other.problem) == (422, "key-reused")
    gate.open()
    first = running.reply()
    assert first.status == 201
    client.same(first, client.send())
    assert len(ledger) == 1


def another_body_is_refused_after_a_failure(client: Client, ledger: Ledger) -> None:
    """F6: a stored failure is compared like any other answer."""
    first = client.send(rows=0, status=402)
    other = client.send(body=b'{"amount": 2}')
    assert len(ledger) == 0
    assert (other.status, other.problem) == (422, "key-reused")
    client.same(first, client.send())


def the_query_counts(client: Client, ledger: Ledger) -> None:
    """F3: a dry run is not the real thing; parameters in another order are written another way, so another request."""
    first = client.send("/jobs?dry=1")
    real = client.send("/jobs")
    assert len(ledger) == 1
    assert (real.status, real.problem) == (422, "key-reused")
    client.same(first, client.send("/jobs?dry=1"))
    key = client.tag.encode()
    client.send("/jobs?a=1&b=2", key=key)
    assert client.send("/jobs?b=2&a=1", key=key).problem == "key-reused"
    assert len(ledger) == 2


@needs("raw path")
def the_path_counts_as_it_is_written(client: Client, ledger: Ledger) -> None:
    """F3, K: %7E is not ~, by the one written rule: the bytes that were sent."""
    first = client.send("/things/%7E/jobs")
    other = client.send("/things/~/jobs")
    assert len(ledger) == 1
    assert (other.status, other.problem) == (422, "key-reused")
    client.same(first, client.send("/things/%7E/jobs"))


def another_spelling_of_the_path_is_no_replay(client: Client, ledger: Ledger) -> None:
    """F3: /jobs/ is not /jobs: not found, sent elsewhere or refused, but never the first one's answer, nor its key's
    end."""
    first = client.send("/jobs")
    other = client.send("/jobs/")
    assert len(ledger) == 1
    assert other.status in (301, 307, 308, 404, 405, 422) and not other.replayed
    client.same(first, client.send("/jobs"))


def the_media_type_counts(client: Client, ledger: Ledger) -> None:
    """K: the same bytes as another type are another request."""
    client.send(body=b"1", content_type=b"application/json")
    other = client.send(body=b"1", content_type=b"text/plain")
    assert len(ledger) == 1
    assert (other.status, other.problem) == (422, "key-reused")


def transport_does_not_count(client: Client, ledger: Ledger) -> None:
    """F1, F5: framing, expectation, preferences and trace headers are not what is asked for."""
    body = b'{"amount": 1}'
    first = client.send(body=body)
    same = [
        client.send(pieces=[body[:3], body[3:7], body[7:]]),
        client.send(body=body, expect=True),
        client.send(body=body, headers=[(b"Accept", b"text/html"), (b"Accept-Encoding", b"gzip")]),
        client.send(body=body, headers=[(b"Traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")]),
        client.send(body=body, headers=[(b"Date", b"Mon, 21 Oct 2030 07:28:00 GMT"), (b"Twicesafe-Attempt", b"2")]),
    ]
    assert len(ledger) == 1
    for again in same:
        client.same(first, again)


@needs("/json/jobs")
def json_is_compared_by_its_meaning(client: Client, ledger: Ledger) -> None:
    """F1, F2: by choice, order, white space, escapes and coding do not count; the order of a list and a number do."""
    first = client.send("/json/jobs", body='{"a":1,"b":{"x":1,"y":"é"},"c":[1,2]}'.encode())
    plain = b'{"b": {"y": "\\u00e9", "x": 1},\n "c": [1, 2], "a": 1}'
    same = [
        client.send("/json/jobs", body=plain),
        client.send("/json/jobs", body=gzip.compress(plain), headers=[(b"Content-Encoding", b"gzip")]),
    ]
    assert len(ledger) == 1
    for again in same:
        client.same(first, again)
    for other in ('{"a":1,"b":{"x":1,"y":"é"},"c":[2,1]}', '{"a":1.0000000000000001,"b":{"x":1,"y":"é"},"c":[1,2]}'):
        assert client.send("/json/jobs", body=other.encode()).problem == "key-reused"
    assert len(ledger) == 1


@needs("/json/jobs")
def json_that_cannot_be_compared_is_taken_as_sent(client: Client, ledger: Ledger) -> None:
    """K: lone surrogates, a hundred thousand brackets, huge numbers and broken JSON are bytes, not errors."""
    bodies = [b'"\\ud800"', b"[" * 100_000 + b"]" * 100_000, b"9" * 4301, b'{"a":', b'{"a":1,"a":2}', b"NaN", b"\xff"]
    for number, body in enumerate(bodies, 1):
        key = f"{client.tag} {number}".encode()
        client.twice("/json/jobs", body=body, key=key)
        assert len(ledger) == number
        assert client.send("/json/jobs", body=body + b" 1", key=key).problem == "key-reused"
    assert [row.body for row in ledger.rows()] == bodies


def _form(boundary: bytes, *parts: tuple[bytes, bytes]) -> bytes:
    lines = b""
    for name, content in parts:
        lines += b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, name, content)
    return lines + b"--%b--\r\n" % boundary


@needs("/form/jobs")
def forms_are_compared_without_their_boundary(client: Client, ledger: Ledger) -> None:
    """F1: by choice, a boundary drawn anew and fields in another order are the same form; one byte of a file is not."""
    parts = (b"amount", b"1"), (b"file", bytes(range(256)))

    def sent(boundary: bytes, *parts: tuple[bytes, bytes]):
        return client.send(
            "/form/jobs",
            content_type=b"multipart/form-data; boundary=" + boundary,
            body=_form(boundary, *parts),
        )

    first = sent(b"one-1", *parts)
    same = [sent(b"two-22", *parts), sent(b"three-333", *reversed(parts))]
    assert len(ledger) == 1
    for again in same:
        client.same(first, again)
    assert sent(b"one-1", parts[0], (b"file", bytes(range(255)) + b"x")).problem == "key-reused"
    assert len(ledger) == 1
