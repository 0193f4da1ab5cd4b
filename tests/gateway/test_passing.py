"""What a request looks like to the service behind a gateway, and its answer to whoever asked."""

from __future__ import annotations

import gzip
from uuid import UUID

import pytest

from tests.gateway.scripted import answer, received
from twicesafe import Policy
from twicesafe.stores.memory import AsyncMemoryStore

BYTES = bytes(range(256)) * 3


def test_a_method_in_small_letters(rig):
    """R2, R10: the service sees a method in capitals, so a key that comes with small letters is claimed."""
    rig.ask("post", key="k-1")
    rig.ask("post", key="k-1")
    rig.ask("POST", key="k-1")
    assert [asked.start for asked in rig.service.asked] == ["POST /jobs HTTP/1.1"]


def test_a_key_happens_once(rig):
    """I2, R10: two requests under one key are one request to the service, and the second is answered alike."""
    first = rig.ask(key="k-1")
    again = rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert (first.status, first.body) == (again.status, again.body) == (201, b"done")
    assert first.values("idempotent-replayed") == []
    assert again.values("idempotent-replayed") == ["true"]


def test_a_replay_is_the_same_on_the_wire(rig):
    """D1, R17: status, lines, their order and number, and all 256 byte values, encoded as they came."""
    lines = [
        b"Content-Type: a/b",
        b"Link: <1>",
        b"Content-Encoding: gzip",
        b"Link: <2>",
        b"X-Name: v\xe9",
        b"Date: then",
    ]
    body = gzip.compress(BYTES)
    rig.service.script = lambda wire: wire.send(answer(body, *lines))
    first, again = rig.ask(key="k-1"), rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert first.body == again.body == body
    own = {"date", "idempotent-replayed", "idempotency-key-retention"}
    kept = [[(name, line) for name, line in one.lines if name not in own] for one in (first, again)]
    assert kept[0] == kept[1]
    assert [line for name, line in kept[0] if name == "link"] == ["<1>", "<2>"]
    assert first.values("date") == ["then"] and len(again.values("date")) == 1


@pytest.mark.parametrize("key", ["", "k-1"])
@pytest.mark.parametrize("target", ["/a%2Fb/../c//d;e=%7e", "/w?a=%20&b=+&a=1&=%2f", "/?", "/jobs%3Fa"])
def test_the_target_passes_as_it_came(rig, target, key):
    """E1, R8: no path is normalised and nothing is decoded, with a key and without."""
    rig.ask(target=target, key=key)
    assert rig.service.asked[0].start == f"POST {target.rstrip('?')} HTTP/1.1"


def test_a_target_that_is_a_whole_url(rig):
    """R8: in absolute form the URL's host is the Host, and the service sees an ordinary request."""
    rig.ask(target="http://other.example/jobs?a=1")
    assert rig.service.asked[0].start == "POST /jobs?a=1 HTTP/1.1"
    assert rig.service.asked[0].value("host") == "other.example"


def test_lines_of_a_request_keep_order_and_number(rig):
    """R17: end-to-end lines of one name stay several, in their order; none is joined, dropped or added to."""
    rig.ask(
        "POST", "/jobs", "X-A: 1", "Cookie: a=1", "X-B: 2", "X-A: 3", "Accept-Encoding: br", "User-Agent: me", user=""
    )
    came = [
        line for line in rig.service.asked[0].lines if line[0] not in ("x-forwarded-for", "x-forwarded-proto", "via")
    ]
    assert came == [
        ("host", "shop.example"), ("x-a", "1"), ("cookie", "a=1"), ("x-b", "2"), ("x-a", "3"),
        ("accept-encoding", "br"), ("user-agent", "me"), ("content-length", "1"),
    ]  # fmt: skip


def test_what_concerns_one_connection_stops_here(rig):
    """R17: hop-by-hop lines, and those that Connection names, are passed on in neither direction."""
    rig.service.script = lambda wire: wire.send(
        answer(b"done", b"Connection: close, X-Hop", b"X-Hop: 1", b"Keep-Alive: timeout=5", b"X-End: 1")
    )
    answered = rig.ask(
        "POST", "/jobs", "Connection: keep-alive, X-Mine", "X-Mine: 1", "Keep-Alive: 5", "TE: trailers", "Trailer: X-T",
        "Upgrade: h2c", "Proxy-Connection: close", "X-End: 1",
    )  # fmt: skip
    names = {name for name, _ in rig.service.asked[0].lines}
    assert names == {"host", "x-end", "content-length", "x-user-id", "x-forwarded-for", "x-forwarded-proto", "via"}
    assert {name for name, _ in answered.lines} == {"content-length", "x-end", "date"}


def test_who_asked_is_passed_on(rig):
    """R17: the caller's address is added to what a proxy in front wrote; what that proxy says of the scheme stays."""
    rig.ask(
        "POST", "/", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 10.0.0.2", "X-Forwarded-Proto: https", "Via: 1.1 a"
    )
    asked = rig.service.asked[0]
    assert asked.value("x-forwarded-for") == "10.0.0.1, 10.0.0.2, 127.0.0.1"
    assert asked.value("x-forwarded-proto") == "https"
    assert asked.values("via") == ["1.1 a", "1.1 twicesafe"]
    rig.ask("POST", "/", "Forwarded: for=10.0.0.1")
    assert rig.service.asked[1].values("forwarded") == ["for=10.0.0.1", "for=127.0.0.1"]


def test_without_a_proxy_in_front_nobody_else_says_who_asked(rig):
    """R6: what a caller itself writes about its address is dropped where the gateway is told not to trust it."""
    rig.set_up(trust_forwarded=False)
    rig.ask(
        "POST",
        "/",
        "X-Forwarded-For: 6.6.6.6",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil",
        "Forwarded: for=6.6.6.6",
    )
    asked = rig.service.asked[0]
    assert asked.values("x-forwarded-for") == ["127.0.0.1"] and asked.values("x-forwarded-proto") == ["http"]
    assert asked.values("x-forwarded-host") == asked.values("forwarded") == []


def test_host(rig):
    """R8: the service is asked for the host that the caller asked for, or by choice for its own."""
    rig.ask()
    rig.set_up(rewrite_host=True)
    rig.ask()
    first, second = rig.service.asked
    assert first.value("host") == "shop.example" and first.values("x-forwarded-host") == []
    assert second.value("host") == f"127.0.0.1:{rig.service.port}"
    assert second.value("x-forwarded-host") == "shop.example"


def test_another_host_is_another_request(rig):
    """R7, R8, G2: where the service sees whom the caller asked, one host's answer is never another one's replay."""
    request = "POST /jobs HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nX-User-Id: ann\r\nIdempotency-Key: k-1\r\n\r\n"
    for rewrite, statuses in ((False, [201, 201, 422]), (True, [201, 201, 201])):
        rig.store = AsyncMemoryStore()
        rig.set_up(rewrite_host=rewrite)
        before = len(rig.service.asked)
        answers = [rig.raw(request.format(host).encode()) for host in ("a.example", "a.example", "b.example")]
        assert len(rig.service.asked) - before == 1
        assert [answered.status for answered in answers] == statuses


def test_answers_without_a_body(rig):
    """D6: HEAD, 204 and 304 have none, whatever length they speak of."""
    for method, given in (
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
    ):
        rig.service.script = lambda wire, given=given: wire.send(given)
        answered = rig.ask(method, body=b"")
        assert (answered.status, answered.body, answered.broken) == (int(given[9:12]), b"", False)
        assert answered.values("content-length") == (["5"] if method == "HEAD" else [])
    assert rig.service.connections == 1


@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n", b"Content-Length: 4\r\n"])
def test_a_204_is_replayed(rig, length):
    """D6, R17: an answer of nothing is an answer, whatever length it speaks of."""
    rig.service.script = lambda wire: wire.send(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n" + length + b"\r\n")
    first, again = rig.ask(key="k-1"), rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert first.status == again.status == 204
    assert first.values("content-length") == again.values("content-length") == []
    assert again.values("x-a") == ["1"] and again.values("idempotent-replayed") == ["true"]


def test_interim_answers_and_trailers_stop_here(rig):
    """D6: 102 and 103 are dropped, a chunked body arrives without its trailers."""
    rig.service.script = lambda wire: wire.send(
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n4\r\ndone\r\n0\r\nX-T: 1\r\n\r\n"
    )
    first, again = rig.ask(key="k-1"), rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert (first.status, first.body, first.broken) == (again.status, again.body, again.broken) == (200, b"done", False)
    assert first.values("link") == first.values("x-t") == first.values("trailer") == []


def test_a_redirect_is_an_answer(rig):
    """R15: the gateway follows none; the caller is told, and told again."""
    rig.service.script = lambda wire: wire.send(answer(b"", b"Location: /there", status=b"303 See Other"))
    first, again = rig.ask(key="k-1"), rig.ask(key="k-1")
    assert len(rig.service.asked) == 1
    assert first.status == again.status == 303 and again.values("location") == ["/there"]


def test_the_service_sees_a_derived_key(rig):
    """R25: the service finds the same key on every attempt, another for every caller and intent, never the caller's."""
    policy = Policy(effects="keyed", released=frozenset({503}))
    rig.set_up(policy)
    rig.service.script = lambda wire: wire.send(answer(status=b"503 Service Unavailable"))
    for user, key in (("ann", "k-1"), ("ann", "k-1"), ("ben", "k-1"), ("ann", "k-2")):
        rig.ask(user=user, key=key)
    keys = [asked.value("idempotency-key") for asked in rig.service.asked]
    assert keys[0] == keys[1] and len(set(keys)) == 3
    assert all(str(UUID(key)) == key for key in keys)


def test_only_the_gateway_writes_the_derived_key(rig):
    """R25, I7: a line of that name from a caller never reaches the service, whatever the method."""
    rig.set_up(key_header="X-Intent")
    rig.ask("PUT", "/jobs", "Idempotency-Key: guessed", "X-Intent: guessed")
    rig.ask("POST", "/jobs", "X-Intent: guessed", key="k-1")
    put, post = rig.service.asked
    assert put.values("x-intent") == put.values("idempotency-key") == post.values("idempotency-key") == []
    assert len(post.values("x-intent")) == 1 and post.value("x-intent") != "guessed"


def test_a_service_that_speaks_the_protocol_itself(rig):
    """R17, R20: its marker and its retention are not told a second time beside the gateway's."""
    rig.service.script = lambda wire: wire.send(
        answer(b"done", b"Idempotent-Replayed: true", b"Idempotency-Key-Retention: 60")
    )
    first, again, without = rig.ask(key="k-1"), rig.ask(key="k-1"), rig.ask()
    assert len(rig.service.asked) == 2
    for answered in (first, again):
        assert answered.values("idempotent-replayed") == ["true"]
        assert answered.values("idempotency-key-retention") == ["86400"]
    assert without.values("idempotency-key-retention") == ["60"]


def test_another_carrier(rig):
    """R5: keys may come in a header of another name, and be required."""
    rig.set_up(Policy(header="X-Idempotency-Key", required=True))
    first, again = rig.ask("POST", "/", "X-Idempotency-Key: k-1"), rig.ask("POST", "/", "X-Idempotency-Key: k-1")
    assert len(rig.service.asked) == 1
    assert (first.status, again.status, rig.ask(key="k-1").status) == (201, 201, 400)
    assert len(rig.service.asked[0].values("x-idempotency-key")) == 1


def test_a_body_in_pieces(rig):
    """R8: a keyed body has a length for the service however it came; an unkeyed one passes in chunks as it comes."""
    head = "POST /jobs HTTP/1.1\r\nHost: a\r\nX-User-Id: ann\r\nTransfer-Encoding: chunked\r\n{}\r\n"
    with rig.connected() as wire:
        wire.send(head.format("Idempotency-Key: k-1\r\n").encode() + b"3\r\nabc\r\n")
        wire.send(b"2\r\nde\r\n0\r\n\r\n")
        assert received(wire).status == 201
    keyed = rig.service.asked[0]
    assert keyed.body == b"abcde" and keyed.value("content-length") == "5" and keyed.values("transfer-encoding") == []
    with rig.connected() as wire:
        wire.send(head.format("").encode() + b"3\r\nabc\r\n")
        wire.send(b"2\r\nde\r\n0\r\n\r\n")
        assert received(wire).status == 201
    assert rig.service.asked[1].body == b"abcde"


def test_expect_continue(rig):
    """F1: the gateway itself asks for the body, and the service is not asked to."""
    for key in ("", "Idempotency-Key: k-1\r\n"):
        with rig.connected() as wire:
            wire.send(
                b"POST / HTTP/1.1\r\nHost: a\r\nX-User-Id: ann\r\nContent-Length: 1\r\nExpect: 100-continue\r\n"
                + key.encode() + b"\r\n"
            )  # fmt: skip
            assert wire.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
            wire.send(b"x")
            assert received(wire).status == 201
        assert rig.service.asked[-1].body == b"x" and rig.service.asked[-1].values("expect") == []
    assert len(rig.service.asked) == 2


def test_one_connection_serves_many(rig):
    """R35: connections to the service are kept, so that a request costs no handshake."""
    for number in range(5):
        assert rig.ask(key=f"k-{number}").status == 201
    assert (rig.service.connections, len(rig.service.asked)) == (1, 5)
