"""What was asked for: a key never serves another request (I4)."""

from __future__ import annotations

import asyncio

import pytest

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Rig
from twicesafe import JSON, MULTIPART, FingerprintRule, Operation, Policy


def run(coroutine):
    return asyncio.run(coroutine)


async def refused(rig: Rig, **other) -> None:
    """The key of a first request, sent with another one, is refused; the first answer stays what it was."""
    first = await post(rig.safe)
    wrong = await post(rig.safe, **other)
    again = await post(rig.safe)
    assert rig.effects == 1, other
    assert (wrong.status, wrong.kind) == (422, "key-reused"), other
    assert first.body not in wrong.body
    assert (again.body, again.replayed) == (first.body, True)


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"amount": 2}'},
        {"body": b'{"amount":1}'},
        {"query": b"dry=1"},
        {"path": "/jobs/"},
        {"path": "/tickets/2"},
        {"path": "/jobs", "raw_path": b"/%6Aobs"},
        {"method": "PATCH"},
        {"headers": [(b"content-type", b"text/plain")]},
        {"headers": [(b"content-encoding", b"gzip")]},
    ],
    ids=repr,
)
def test_a_key_never_serves_another_request(other):
    """I4, R7, R8, F3, F6, G2, K: body, query, path, method, media type and encoding are part of what was asked for."""
    run(refused(Rig(), **other))


def test_a_slash_and_its_escape_are_two_paths():
    """F3, K: `%2F` and `/`, `%7E` and `~`, the order of a query: what differs on the wire differs."""

    async def trial():
        for one, two in ((b"/a/b", b"/a%2Fb"), (b"/~a", b"/%7Ea")):
            rig = Rig()
            await post(rig.safe, path="/x", raw_path=one)
            assert (await post(rig.safe, path="/x", raw_path=two)).status == 422
        rig = Rig()
        await post(rig.safe, query=b"a=1&b=2")
        assert (await post(rig.safe, query=b"b=2&a=1")).status == 422
        assert rig.effects == 1

    run(trial())


def test_a_server_that_gives_no_raw_path_is_served_too():
    """R8: without raw_path the decoded path is quoted again, as clients quote: the same request is the same, also
    behind a server that gives it."""

    async def trial():
        rig = Rig()
        path = "/ä b/ada@example.com:refund,now;a=b!$&'()*+~"
        for raw in (None, b"/%C3%A4%20b/ada@example.com:refund,now;a=b!$&'()*+~", None):
            wire = Wire(rig.safe, path=path, raw_path=raw)
            if raw is None:
                del wire.scope["raw_path"]
            assert (await wire.end()).status == 201
        assert rig.effects == 1

    run(trial())


def test_another_request_is_refused_while_the_first_runs_and_after_it_was_given_up():
    """I4, F6, F8, R11: 422 comes before 409 and before taking over; body 1 then completes and replays."""

    async def trial():
        inside, go = asyncio.Event(), asyncio.Event()

        async def slow():
            inside.set()
            await go.wait()

        rig = Rig(Policy(effects="keyed"), Probe(after=slow))
        first = Wire(rig.safe).start()
        await inside.wait()
        running = await post(rig.safe, body=b"other")
        rig.pass_time(rig.safe._operation.policy.lease)
        stale = await post(rig.safe, body=b"other")
        go.set()
        assert (await first.end()).status == 201
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (running.status, stale.status) == (422, 422)
        assert (again.status, again.replayed) == (201, True)

    run(trial())


def test_transport_noise_is_no_part_of_a_request():
    """F1: one body in one piece or in three, with or without a length, expected or not, is one request."""

    async def trial():
        rig = Rig()
        await post(rig.safe, parts=[b"one body"], headers=[(b"content-length", b"8")])
        for parts in ([b"one ", b"", b"body"], [b"one body", b""]):
            again = await post(rig.safe, parts=parts, headers=[(b"transfer-encoding", b"chunked"), (b"expect", b"100")])
            assert again.replayed
        assert rig.effects == 1
        assert rig.probe.seen == [b"one body"]

    run(trial())


def test_json_is_compared_by_value_where_the_policy_says_so():
    """F2, R8: members in another order, white space and escapes replay; another array order is another request."""

    async def trial():
        rig = Rig(Policy(fingerprint=FingerprintRule(JSON)))
        await post(rig.safe, body=b'{"a":1,"b":{"x":1,"y":["\\u00e9",2]}}')
        for same in (b'{ "b": {"y": ["\xc3\xa9", 2.0], "x": 1e0},\n "a": 1 }',):
            assert (await post(rig.safe, body=same)).replayed
        for other in (b'{"a":1,"b":{"x":1,"y":[2,"\\u00e9"]}}', b'{"a":true,"b":{"x":1,"y":["\\u00e9",2]}}'):
            assert (await post(rig.safe, body=other)).status == 422
        assert rig.effects == 1

    run(trial())


def test_multipart_is_compared_without_its_boundary():
    """F1, R8: the same parts under another random boundary replay; one changed byte of the file is refused."""

    async def trial():
        rig = Rig(Policy(fingerprint=FingerprintRule(MULTIPART)))

        async def upload(boundary: bytes, file: bytes):
            body = (
                b'--%b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
                b'--%b\r\nContent-Disposition: form-data; name="f"; filename="f.bin"\r\n'
                b"Content-Type: application/octet-stream\r\n\r\n%b\r\n--%b--\r\n"
            ) % (boundary, boundary, file, boundary)
            return await post(
                rig.safe, body=body, headers=[(b"content-type", b"multipart/form-data; boundary=" + boundary)]
            )

        await upload(b"AaB03x", bytes(range(256)))
        assert (await upload(b"zzzZZZ", bytes(range(256)))).replayed
        assert (await upload(b"zzzZZZ", bytes(range(255)) + b"\x00")).status == 422
        assert rig.effects == 1

    run(trial())


@pytest.mark.parametrize(
    "body", [b'"\\ud800"', b"[" * 100_000 + b"]" * 100_000, b"[" + b"9" * 4301 + b"]", b"{", b"NaN"]
)
def test_hostile_json_is_taken_as_bytes(body):
    """K, R8: lone surrogates, deep nesting and endless numbers neither raise nor merge with anything."""

    async def trial():
        rig = Rig(Policy(fingerprint=FingerprintRule(JSON)))
        assert (await post(rig.safe, body=body)).status == 201
        assert (await post(rig.safe, body=body)).replayed
        assert (await post(rig.safe, body=body + b" ")).status in (201, 422)
        assert rig.effects == 1

    run(trial())


def test_chosen_headers_are_part_of_the_request():
    """R8: an API version that the rule names changes what is asked for; one it does not name does not."""

    async def trial():
        rig = Rig(Policy(fingerprint=FingerprintRule(headers=(b"API-Version",))))
        await post(rig.safe, headers=[(b"api-version", b"1"), (b"x-other", b"1")])
        assert (await post(rig.safe, headers=[(b"api-version", b"1"), (b"x-other", b"2")])).replayed
        assert (await post(rig.safe, headers=[(b"api-version", b"2")])).status == 422
        assert rig.effects == 1

    run(trial())


def test_operations_may_have_keys_of_their_own():
    """R7: with per-operation keys one key on two operations is two intents; without, it is refused."""

    async def trial():
        for apart in (False, True):
            policy = Policy(per_operation_keys=apart)
            operations = {path: Operation(path, policy) for path in ("/a", "/b")}
            rig = Rig(operation=lambda scope, operations=operations: operations.get(scope["path"]))
            await post(rig.safe, path="/a")
            second = await post(rig.safe, path="/b")
            await post(rig.safe, path="/c")
            assert rig.effects == (3 if apart else 2)
            assert second.status == (201 if apart else 422)

    run(trial())
