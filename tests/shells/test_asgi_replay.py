"""What a retry is given: the first answer, byte for byte and line for line."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import timedelta

import pytest

from tests.shells.probe import RETENTION, Probe, Wire, post
from tests.shells.rig import Rig
from twicesafe.core.policy import Policy


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_retry_gets_the_first_answer_and_nothing_runs_again():
    """R11, R17, R42: one effect, and the retry carries the first answer with the marker."""

    async def trial():
        rig = Rig()
        first = await post(rig.safe)
        second = await post(rig.safe)
        assert rig.effects == 1
        assert (first.status, first.body) == (201, b'{"n": 1}')
        assert not first.replayed
        assert (second.status, second.body, second.replayed) == (201, b'{"n": 1}', True)
        assert second.lines[:-1] == first.lines

    run(trial())


@pytest.mark.parametrize("status", [204, 202, 205])
def test_an_answer_without_a_body_is_an_answer(status):
    """A3, R17: 202, 204 and 205 without a body are remembered; the replay has no body either."""

    async def trial():
        rig = Rig(probe=Probe(status=status, headers=((b"content-length", b"0"),) if status == 202 else (), body=b""))
        await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.body, again.replayed) == (status, b"", True)
        assert again.header(b"content-length") in (None, b"0")

    run(trial())


@pytest.mark.parametrize("size", [256 * 1024, 256 * 1024 + 1, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_answer_reaches_its_first_caller_whole_and_is_never_made_twice(size, chunked):
    """A4, R18: over the limit the first caller gets everything, retries get "done, not kept"; effects stay 1."""

    async def trial():
        whole = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        lines = ((b"content-type", b"application/octet-stream"), (b"location", b"/w/1"), (b"etag", b'"1"'))
        if chunked:
            probe = Probe(headers=lines, chunks=[whole[i : i + 65536] for i in range(0, size, 65536)])
        else:
            probe = Probe(headers=(*lines, (b"content-length", b"%d" % size)), body=whole)
        rig = Rig(Policy(response_limit=256 * 1024), probe)
        first = await post(rig.safe)
        retries = [await post(rig.safe) for _ in range(2)]
        assert rig.effects == 1
        assert first.body == whole and first.whole
        for retry in retries:
            assert (retry.status, retry.replayed) == (201, True)
            assert retry.header(b"location") == b"/w/1"
            if size > 256 * 1024:
                assert retry.kind == "result-not-kept"
                assert retry.problem["status"] == 201
                assert retry.header(b"etag") is None
            else:
                assert retry.body == whole

    run(trial())


def test_header_lines_are_replayed_one_by_one():
    """D1, R17: two Set-Cookie and two Link lines, commas and Latin-1 bytes come back line for line."""

    async def trial():
        lines = (
            (b"set-cookie", b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
            (b"content-type", b"application/json; charset=utf-8"),
            (b"set-cookie", b"b=2; Expires=Tue, 22 Oct 2030 07:28:00 GMT"),
            (b"content-disposition", b'attachment; filename="a, b.txt"'),
            (b"link", b"</1>; rel=next"),
            (b"link", b"</2>; rel=last"),
            (b"x-name", "café".encode("latin-1")),
            (b"X-Mixed-Case", b"kept as sent"),
        )
        rig = Rig(Policy(store_cookies=True), Probe(headers=lines))
        first = await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert tuple(first.lines) == (RETENTION, *lines)
        assert tuple(again.lines) == (RETENTION, *lines, (b"idempotent-replayed", b"true"))

    run(trial())


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (201, ((b"location", b"/jobs/1"), (b"etag", b'"v1"'))),
        (202, ((b"retry-after", b"7"),)),
        (303, ((b"location", b"/jobs/1"),)),
        (406, ((b"content-type", b"application/problem+json"),)),
        (200, ((b"content-type", b"application/json; charset=utf-8"),)),
        (304, ((b"etag", b'"v1"'),)),
        (409, ((b"content-type", b"application/json"),)),
        (500, ((b"content-type", b"text/plain"),)),
    ],
)
def test_status_and_headers_come_back_whatever_the_retry_accepts(status, lines):
    """D2, R15, R17: wire bytes are stored, failures included, and the retry's Accept changes nothing."""

    async def trial():
        rig = Rig(probe=Probe(status=status, headers=lines))
        first = await post(rig.safe, headers=[(b"accept", b"application/json")])
        again = await post(rig.safe, headers=[(b"accept", b"text/html")])
        assert rig.effects == 1
        assert again.status == first.status == status
        assert again.lines == [RETENTION, *lines, (b"idempotent-replayed", b"true")]
        assert again.body == first.body

    run(trial())


def test_what_belongs_to_one_exchange_is_not_replayed():
    """D3, R17: cookies, challenges, dates, limits, ids and hop-by-hop lines stay with their own exchange."""

    async def trial():
        lines = (
            (b"set-cookie", b"csrf=1"),
            (b"www-authenticate", b"Bearer"),
            (b"date", b"Mon, 21 Oct 2030 07:28:00 GMT"),
            (b"x-request-id", b"1"),
            (b"x-ratelimit-remaining", b"9"),
            (b"connection", b"x-hop"),
            (b"x-hop", b"1"),
            (b"transfer-encoding", b"chunked"),
            (b"content-type", b"application/json"),
        )
        rig = Rig(probe=Probe(headers=lines))
        first = await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert tuple(first.lines) == (RETENTION, *lines)
        assert again.lines == [RETENTION, (b"content-type", b"application/json"), (b"idempotent-replayed", b"true")]

    run(trial())


@pytest.mark.parametrize("chunks", [None, [b"done"]])
def test_what_a_policy_writes_by_a_name_of_its_own_stands_once(chunks):
    """R17, R20: a service that marks its own replays has no say in whether this is one."""
    policy = Policy(marker="X-Cache-Hit", retention_header="X-Kept")
    rig = Rig(policy, Probe(headers=[(b"X-Cache-Hit", b"false"), (b"x-kept", b"1")], body=b"done", chunks=chunks))

    async def trial():
        await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        marks = [line for name, line in again.lines if name.lower() == b"x-cache-hit"]
        kept = [line for name, line in again.lines if name.lower() == b"x-kept"]
        assert (marks, kept) == ([b"true"], [b"86400"])

    asyncio.run(trial())


def test_every_byte_value_and_an_encoded_body_come_back_untouched():
    """D4, R17: all 256 byte values, and gzip bytes with their Content-Encoding, are equal on the replay."""

    async def trial():
        for body, lines in (
            (bytes(range(256)), ((b"content-type", b"application/octet-stream"),)),
            (gzip.compress(b'{"n": 1}'), ((b"content-encoding", b"gzip"), (b"content-type", b"application/json"))),
        ):
            rig = Rig(probe=Probe(body=body, headers=lines))
            await post(rig.safe)
            again = await post(rig.safe, headers=[(b"accept-encoding", b"identity")])
            assert rig.effects == 1
            assert again.body == body
            assert again.lines[: len(lines) + 1] == [RETENTION, *lines]

    run(trial())


@pytest.mark.parametrize("value", [0, False, "", {}, [], None])
def test_falsy_answers_are_answers(value):
    """D6: 0, false, "", {}, [] and null are results, not the absence of one."""

    async def trial():
        rig = Rig(probe=Probe(body=json.dumps(value).encode()))
        first = await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert again.body == first.body == json.dumps(value).encode()

    run(trial())


def test_a_finite_stream_flows_live_and_is_replayed_whole():
    """D5, R18, I11: the first chunk leaves before the last is made; the replay is whole."""

    async def trial():
        seen_at: list[int] = []
        wire: Wire

        async def between(number: int) -> None:
            seen_at.append(len(wire.reply.messages))

        probe = Probe(chunks=[b"a", b"b", b"c", b"d", b"e"], between=between)
        rig = Rig(probe=probe)
        wire = Wire(rig.safe)
        first = await wire.end()
        again = await post(rig.safe)
        assert rig.effects == 1
        assert first.body == again.body == b"abcde"
        assert first.whole and again.whole and again.replayed
        assert seen_at == [0, 2, 3, 4, 5, 6]

    run(trial())


def test_an_endless_stream_flows_live_and_stops_when_its_client_hangs_up():
    """D5, R18: server-sent events reach the client as they come; a hang-up ends them, and a retry does not run."""

    async def trial():
        ticks = asyncio.Event()
        wire: Wire

        async def events(scope, receive, send):
            rig.probe.ledger.append(b"")
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            number = 0
            gone = asyncio.ensure_future(receive_gone(receive))
            while not gone.done():
                await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
                number += 1
                if number == 3:
                    ticks.set()
                await asyncio.sleep(0)
            raise OSError("the client is gone")

        async def receive_gone(receive):
            while (await receive())["type"] != "http.disconnect":
                pass

        rig = Rig(app=events)
        wire = Wire(rig.safe).start()
        await ticks.wait()
        assert b"data: 2\n\n" in wire.reply.body
        wire.hang_up()
        await wire.end()
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.kind, again.replayed) == (200, "result-not-kept", True)

    run(trial())


@pytest.mark.parametrize("declared", [False, True])
def test_a_broken_answer_is_never_stored_as_a_success(declared):
    """D5, K: an answer that stops half-way is an unknown outcome, not a 201."""

    async def trial():
        rig = Rig()

        async def broken(scope, receive, send):
            rig.probe.ledger.append(b"")
            lines = [(b"content-length", b"10")] if declared else []
            await send({"type": "http.response.start", "status": 201, "headers": lines})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            if not declared:
                await send({"type": "http.response.body", "body": b"more", "more_body": True})
                raise RuntimeError("the source broke")

        rig.safe.app = broken
        first = await post(rig.safe, raises=RuntimeError)
        assert first.raised is not None
        assert not first.whole
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.kind) == (409, "outcome-unknown")

    run(trial())


def test_a_key_is_remembered_longer_than_its_body():
    """R20: body and key have retentions of their own; past both the key is free, without any sweeper."""

    async def trial():
        day = timedelta(days=1)
        rig = Rig(Policy(key_retention=30 * day, body_retention=day), Probe(headers=((b"location", b"/w/1"),)))
        await post(rig.safe)
        rig.pass_time(day)
        gone = await post(rig.safe)
        assert rig.effects == 1
        assert (gone.status, gone.kind, gone.replayed) == (201, "result-not-kept", True)
        assert gone.header(b"location") == b"/w/1"
        other = await post(rig.safe, body=b'{"amount": 2}')
        assert rig.effects == 1
        assert other.status == 422
        rig.pass_time(29 * day)
        fresh = await post(rig.safe, body=b'{"amount": 2}')
        assert rig.effects == 2
        assert (fresh.status, fresh.replayed) == (201, False)

    run(trial())
