"""A replay is the first answer, byte for byte and line for line (D, A3)."""

from __future__ import annotations

import gzip

from tests.behaviour.case import everywhere, needs, of_servers
from tests.behaviour.client import Client, Ledger
from tests.behaviour.knobs import EXPIRES, PATTERN, kept

OCTETS = [b"content-type", b"application/octet-stream"]
MEGABYTES = 10 * 1024 * 1024


@everywhere
def every_byte_comes_back(client: Client, ledger: Ledger) -> None:
    """D4: all 256 values, and nothing decoded, in request and answer, which come in more than one piece."""
    sent = PATTERN * 800
    first, _ = client.twice(body=sent, content_type=OCTETS[1], lines=[OCTETS], size=len(sent) - 3)
    assert [row.body for row in ledger.rows()] == [sent]
    assert first.body == sent[:-3]
    assert first.one(b"content-type") == OCTETS[1]


@of_servers
@needs("/large/jobs")
def ten_megabytes_come_back(client: Client, ledger: Ledger) -> None:
    """D4, R17: as large as the contract allows, both ways."""
    sent = PATTERN * (MEGABYTES // len(PATTERN))
    first, _ = client.twice("/large/jobs", body=sent, content_type=OCTETS[1], lines=[OCTETS], size=MEGABYTES)
    [row] = ledger.rows()
    assert row.body == kept(sent)
    assert first.body == sent
    assert first.one(b"content-length") == b"%d" % MEGABYTES


@everywhere
def no_body_is_an_answer(client: Client, ledger: Ledger) -> None:
    """A3: 204 and an empty 202 are remembered like any other."""
    for number, status in enumerate((204, 202), 1):
        first, again = client.twice(key=client.key + b"%d" % status, status=status, content=b"")
        assert len(ledger) == number
        assert first.status == status
        assert first.body == b""
        assert all(length == b"0" for length in again.all(b"content-length"))
        assert status == 202 or not again.all(b"content-length")


@everywhere
def header_lines_come_back_as_they_were(client: Client, ledger: Ledger) -> None:
    """D1: commas, quotes, Latin-1 and blanks inside are bytes of one line; nothing is joined or split."""
    lines = [
        [b"content-disposition", b'attachment; filename="a, b.txt"; x="1;2"'],
        [b"x-list", b"a,b, c,,d"],
        [b"x-date", b"Mon, 21 Oct 2030 07:28:00 GMT"],
        [b"etag", b'W/"v1"'],
    ]
    latin = "Straße"
    first, _ = client.twice(lines=[*lines, [b"x-latin", latin.encode("latin-1")]])
    assert len(ledger) == 1
    for name, line in lines:
        assert first.all(name) == [line]
    # WSGI and its like hand text to a server, and not all of them write the bytes that it stood for.
    assert first.one(b"x-latin") in (latin.encode("latin-1"), latin.encode("utf-8"))


@everywhere
@needs("repeated lines")
def lines_of_one_name_stay_apart(client: Client, ledger: Ledger) -> None:
    """D1, K: two Link lines are two lines, in their order, beside lines that are not replayed as well."""
    links = [b"</1>; rel=next", b"</2>; rel=last"]
    lines = [[b"link", line] for line in links]
    first, _ = client.twice(lines=lines)
    mixed = {"key": client.tag.encode(), "lines": [lines[0], [b"x-request-id", b"one"], lines[1]]}
    other, again = client.send(**mixed), client.send(**mixed)
    assert len(ledger) == 2
    assert first.all(b"link") == other.all(b"link") == again.all(b"link") == links
    assert again.replayed and again.all(b"x-request-id") == []


@everywhere
def cookies_are_not_handed_out_again(client: Client, ledger: Ledger) -> None:
    """D3: by the default rule the first caller gets its cookies, line by line, and a replay none."""
    first, again = client.send(cookies=["a", "b"]), client.send(cookies=["a", "b"])
    assert len(ledger) == 1
    given = first.all(b"set-cookie")
    assert [line.partition(b"=")[0] for line in given] == [b"a", b"b"]
    assert all(f"{EXPIRES:%d %b %Y}".encode() in line.replace(b"-", b" ") for line in given)
    assert again.replayed and again.status == 201
    assert again.body == first.body
    assert again.all(b"set-cookie") == []


@everywhere
@needs("/cookies/jobs")
def cookies_are_handed_out_again_by_choice(client: Client, ledger: Ledger) -> None:
    """D1, K: where the contract says so, each Set-Cookie line comes back, commas in dates and all."""
    first, again = client.twice("/cookies/jobs", cookies=["a", "b"])
    assert len(ledger) == 1
    assert len(first.all(b"set-cookie")) == 2
    assert first.all(b"set-cookie") == again.all(b"set-cookie")


@everywhere
def what_belongs_to_one_exchange_is_not_repeated(client: Client, ledger: Ledger) -> None:
    """D3: request ids, limits, challenges and dates of the first exchange are not shown as the second's."""
    lines = [
        [b"x-request-id", b"one"],
        [b"x-ratelimit-remaining", b"7"],
        [b"www-authenticate", b"Basic"],
        [b"traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"],
        [b"x-kept", b"kept"],
    ]
    first, again = client.send(lines=lines), client.send(lines=lines)
    assert len(ledger) == 1
    assert again.replayed
    for name, line in lines:
        assert first.all(name) == [line]
        assert again.all(name) == ([line] if name == b"x-kept" else [])
    assert len(again.all(b"date")) <= 1


@everywhere
def statuses_and_their_lines_come_back(client: Client, ledger: Ledger) -> None:
    """D2: whatever the retry would rather have, status, type, Location, ETag and the rest are the first answer's."""
    answers = [
        (200, [[b"content-type", b"text/html; charset=utf-8"], [b"etag", b'"v1"']]),
        (201, [[b"content-type", b"application/json; charset=utf-8"], [b"location", b"/things/1?a=b&c=%20d"]]),
        (202, [[b"retry-after", b"120"], [b"content-location", b"/jobs/1"]]),
        (206, [[b"content-type", b"text/plain"], [b"content-range", b"bytes 0-8/100"], [b"accept-ranges", b"bytes"]]),
        (303, [[b"location", b"https://example.com/done"]]),
        (406, [[b"content-type", b"application/problem+json"]]),
        (418, [[b"content-language", b"en"], [b"cache-control", b"no-store"]]),
    ]
    for number, (status, lines) in enumerate(answers, 1):
        knobs = {"key": client.key + b"%d" % status, "status": status, "lines": lines}
        first = client.send(headers=[(b"Accept", b"application/json"), (b"Range", b"bytes=0-8")], **knobs)
        again = client.send(headers=[(b"Accept", b"text/html;q=0.5, */*")], **knobs)
        assert len(ledger) == number
        assert first.status == status
        for name, line in lines:
            assert first.all(name) == [line]
        client.same(first, again)


@everywhere
def nothing_modified_comes_back(client: Client, ledger: Ledger) -> None:
    """D2: 304 has no body, and its header lines are those of the body it has not."""
    first, again = client.twice(status=304, content=b"", lines=[[b"etag", b'"v1"']])
    assert len(ledger) == 1
    assert (first.status, first.body, again.body) == (304, b"", b"")


@everywhere
def a_coded_body_is_not_coded_again(client: Client, ledger: Ledger) -> None:
    """D4: gzip made by the handler comes back as gzip, whatever the retry accepts."""
    coded = gzip.compress(b"hello " * 100, mtime=0)
    lines = [[b"content-type", b"text/plain"], [b"content-encoding", b"gzip"], [b"vary", b"Accept-Encoding"]]
    first = client.send(content=coded, lines=lines, headers=[(b"Accept-Encoding", b"gzip")])
    again = client.send(content=coded, lines=lines, headers=[(b"Accept-Encoding", b"identity")])
    assert len(ledger) == 1
    client.same(first, again)
    assert gzip.decompress(again.body) == b"hello " * 100
    assert again.one(b"content-encoding") == b"gzip"


@everywhere
def falsy_answers_are_answers(client: Client, ledger: Ledger) -> None:
    """D6: null, false, 0, "", [] and {} are results, not the want of one."""
    for number, body in enumerate((b"null", b"false", b"0", b'""', b"[]", b"{}"), 1):
        first, _ = client.twice(key=client.key + b"%d" % number, content=body)
        assert len(ledger) == number
        assert first.body == body


@everywhere
def the_marker_and_the_retention_are_announced(client: Client, ledger: Ledger) -> None:
    """R17, R20: a replay says that it is one; every answer says for how long its key is remembered."""
    first, again = client.twice()
    refused = client.send(body=b"other")
    assert len(ledger) == 1
    assert first.all(b"idempotent-replayed") == refused.all(b"idempotent-replayed") == []
    assert again.all(b"idempotent-replayed") == [b"true"]
    for reply in (first, again, refused):
        assert reply.all(b"idempotency-key-retention") == [b"86400"]


@everywhere
def reading_is_no_operation(client: Client, ledger: Ledger) -> None:
    """R2: GET and HEAD under a key pass through: nothing is claimed, replayed or announced."""
    replies = [client.send(method="GET"), client.send(method="GET"), client.send(method="HEAD")]
    assert len(ledger) >= 2
    assert [reply.status for reply in replies[:2]] == [201, 201]
    assert [reply.document for reply in replies[:2]] == [{"n": 1}, {"n": 2}]
    assert replies[2].body == b""
    assert not any(reply.replayed or reply.all(b"idempotency-key-retention") for reply in replies)
    client.twice()


@everywhere
@needs("streams")
def reading_a_stream_is_no_operation(client: Client, ledger: Ledger) -> None:
    """K: a streamed answer to GET comes whole, under a key or without."""
    chunks = [b"one ", b"two ", b"three"]
    replies = [client.send(method="GET", chunks=chunks), client.send(method="GET", key=None, chunks=chunks)]
    assert len(ledger) == 2
    assert [reply.body for reply in replies] == [b"one two three"] * 2
