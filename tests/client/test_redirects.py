"""Redirects: the key goes where its origin is, and nowhere else."""

from __future__ import annotations

import asyncio
import warnings
from datetime import timedelta

import aiohttp
import pytest
import requests

from tests.client.bindings import QUICK, Binding, Hours
from tests.client.scripted import answer, redirect, reset_after_commit, serving, silence
from twicesafe.client import Contract, Intent, Rejected, Route, Routes, Succeeded
from twicesafe.client.aiohttp import asend
from twicesafe.client.requests import send
from twicesafe.errors import RedirectedElsewhereError


@pytest.mark.parametrize("status", [307, 308])
def test_one_origin_sees_one_key(binding: Binding, status: int) -> None:
    """I8, K: redirected on the same origin, also in the middle of a retry: one key, the same bytes, one intent."""
    acts = (redirect(status, "/v2"), reset_after_commit, redirect(status, "/v2"), answer(201))
    with serving(*acts) as server:
        intent = Intent.new("POST", f"{server.origin}/v1", json={"amount": 100})
        result = binding.perform(lambda client: intent, Hours(), QUICK, follow_redirects=True)
        targets = [hit.target for hit in server.hits]
        assert {(hit.key, hit.body) for hit in server.hits} == {(intent.key, intent.body)}
    # A transport sees each hop as a request of its own, and repeats only the one that failed.
    assert targets in (["/v1", "/v2", "/v1", "/v2"], ["/v1", "/v2", "/v2", "/v2"])
    assert (result.response.status_code, result.response.url.path) == (201, "/v2")
    assert [hop.status_code for hop in result.response.history] == [status] * (2 if not binding.typed else 1)


@pytest.mark.parametrize("status", [307, 308])
def test_another_origin_sees_no_key(binding: Binding, status: int) -> None:
    """I8, K: elsewhere the key names nothing: it is not handed over, and the effect is not carried off without it."""
    with serving(reset_after_commit) as elsewhere, serving(redirect(status, f"{elsewhere.origin}/in")) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = binding.perform(lambda client: intent, Hours(), QUICK, follow_redirects=True)
        assert elsewhere.hits == []
        if binding.typed:
            assert isinstance(result.outcome, Rejected)
            assert result.response.next_request.url == f"{elsewhere.origin}/in"
        else:
            assert isinstance(result.error, RedirectedElsewhereError)
            assert result.report.key == intent.key
            assert elsewhere.origin in str(result.error)
        elsewhere.unplayed.clear()
        assert [hit.key for hit in server.hits] == [intent.key]


def test_a_key_in_the_body_leads_nowhere_else_either(binding: Binding) -> None:
    """I8, K: where the server takes the key in the body it cannot be left behind: the effect stays where it is."""
    policy = QUICK.but(routes=Routes(Route("POST", "/{path:path}", profile="square")))
    with serving(answer(201)) as elsewhere, serving(redirect(307, elsewhere.origin)) as server:
        intent = Intent.new("POST", server.origin, json={"amount": 1})
        result = binding.perform(lambda client: intent, Hours(), policy, follow_redirects=True)
        assert (len(server.hits), elsewhere.hits) == (1, [])
        elsewhere.unplayed.clear()
    assert isinstance(result.outcome, Rejected) or isinstance(result.error, RedirectedElsewhereError)


def test_what_was_done_is_looked_at_elsewhere_without_the_key(binding: Binding) -> None:
    """I8: 303 after a charge is followed by a GET, wherever it leads; the key stays behind."""
    with serving(answer(200)) as elsewhere, serving(redirect(303, f"{elsewhere.origin}/done")) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = binding.perform(lambda client: intent, Hours(), QUICK, follow_redirects=True)
        assert [(hit.method, hit.key, hit.body) for hit in elsewhere.hits] == [("GET", None, b"")]
    assert result.response.status_code == 200


def test_redirects_have_an_end(typed: Binding) -> None:
    """R39: a loop of redirects ends with the library's own exception, and the key is on it."""
    with serving(*[redirect(307, "/again")] * 4) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = typed.perform(lambda client: intent, Hours(), QUICK, follow_redirects=True, max_redirects=3)
        assert len(server.hits) == 4
    assert isinstance(result.error, typed.library.TooManyRedirects)
    assert result.report.key == intent.key


def test_redirects_share_the_deadline(transport: Binding) -> None:
    """R39: a transport sees a redirect as a new request, and still knows what time the operation has left."""
    hours = Hours(fraction=0.0)
    policy = QUICK.but(deadline=timedelta(seconds=2.5), attempt_timeout=None)
    acts = (answer(503, "Retry-After: 2"), redirect(307, "/v2"), answer(503, "Retry-After: 2"))
    with serving(*acts) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = transport.perform(lambda client: intent, hours, policy, follow_redirects=True)
        assert [hit.target for hit in server.hits] == ["/", "/", "/v2"]
    assert result.response.status_code == 503 and hours.waits == [2.0]


def test_a_request_that_is_sent_again_has_its_whole_time(transport: Binding) -> None:
    """R39: a request is a redirect of another, or its caller sends it again; only the first inherits a deadline."""
    hours = Hours()
    with serving(answer(200), answer(200)) as server:
        request = []

        def again(client: object) -> object:
            if not request:
                request.append(client.build_request("POST", server.origin, headers={"Idempotency-Key": "k-1"}))
            return request[0]

        transport.perform(again, hours, QUICK)
        hours.waits.append(3600.0)
        result = transport.perform(again, hours, QUICK)
        assert [hit.key for hit in server.hits] == ["k-1", "k-1"]
    assert result.report.attempts[0].deadline_left > 19


def test_a_keyless_post_is_redirected_once(binding: Binding) -> None:
    """R36, K: what is never repeated is followed to where it is sent, and not repeated there either."""
    policy = QUICK.but(attempt_timeout=timedelta(milliseconds=500))
    with serving(silence) as elsewhere, serving(redirect(307, elsewhere.origin)) as server:
        intent = Intent.new("POST", server.origin, json=1, contract=Contract.NEVER)
        request = lambda client: client.build_request("POST", server.origin, content=intent.body)  # noqa: E731
        result = binding.perform(request, Hours(), policy, follow_redirects=True)
        assert (len(server.hits), len(elsewhere.hits)) == (1, 1)
    assert isinstance(result.error, binding.library.TimeoutException)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_credentials_do_not_follow_a_redirect_elsewhere(httpx_binding: Binding, method: str) -> None:
    """K: who the client is, is said to the operation's own origin, also after a redirect within it, and to no other."""
    with serving(answer(200)) as elsewhere:
        acts = (redirect(303, "/done"), redirect(303, f"{elsewhere.origin}/in"))
        with serving(*acts) as server:
            intent = Intent.new(method, server.origin)
            options = {"follow_redirects": True, "auth": ("shop", "secret")}
            result = httpx_binding.perform(lambda client: intent, Hours(), QUICK, **options)
            assert [hit.header("authorization") for hit in elsewhere.hits] == [None]
            assert None not in {hit.header("authorization") for hit in server.hits}
    assert (result.response.status_code, len(result.response.history)) == (200, 2)


def test_a_sessions_credentials_do_not_follow_a_redirect_elsewhere() -> None:
    """K: aiohttp has a session's `auth` on every request; where a redirect leads to another origin it is taken off."""

    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            session = aiohttp.ClientSession(auth=aiohttp.BasicAuth("shop", "secret"))
        async with session:
            outcome = await asend(session, Intent.new("POST", server.origin, json=1), policy=QUICK)
        assert isinstance(outcome, Succeeded)

    with serving(answer(200)) as elsewhere:
        with serving(redirect(303, "/done"), redirect(303, f"{elsewhere.origin}/in")) as server:
            asyncio.run(main())
        assert [hit.header("authorization") for hit in elsewhere.hits] == [None]
        assert None not in {hit.header("authorization") for hit in server.hits}


def test_a_redirect_goes_by_the_proxy_of_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """R40: what the environment says of proxies is asked for each address, as the session itself does.

    niquests asks the environment once in a process, so that a test of it would be one of all that follow.
    """
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving(answer(200)) as proxy, serving(redirect(303, "http://shop.test/done")) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.origin)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with requests.Session() as session:
            outcome = send(session, Intent.new("POST", server.origin, json=1), policy=QUICK)
        assert [(hit.method, hit.target) for hit in proxy.hits] == [("GET", "http://shop.test/done")]
        assert [hit.target for hit in server.hits] == ["/"]
    assert isinstance(outcome, Succeeded)


NOWHERE = ["http://[::1", "javascript:alert(1)", "mailto:ada@shop.test", "http://shop.test:99999/", "http://ü..ü/"]


@pytest.mark.parametrize("location", NOWHERE)
def test_a_redirect_to_no_address_is_an_answer(typed: Binding, location: str) -> None:
    """R35, I8: what a server says of the effect is not lost because of where it leads: it is an outcome, no exception.

    httpx says nothing of a response whose address it cannot read: it is asked for again, under the same key.
    """
    with serving(*[redirect(303, location)] * 4) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = typed.perform(lambda client: intent, Hours(), QUICK, follow_redirects=True)
        assert {(hit.method, hit.key, hit.body) for hit in server.hits} == {("POST", intent.key, b"1")}
        server.unplayed.clear()
    if not typed.name.startswith(("httpx-", "httpx2-")) and location != NOWHERE[-1]:
        assert len(server.hits) == 1
        assert isinstance(result.outcome, Succeeded) and result.response.status_code == 303
    assert result.outcome is not None


def test_an_answer_with_a_line_that_is_none_is_asked_for_again(typed: Binding) -> None:
    """R35, I8: a header that breaks the library's rules is the server's fault, and the effect may have been had."""
    broken = answer(201, "X-Trace: a\x00b")
    with serving(broken, answer(201, "Idempotent-Replayed: true")) as server:
        intent = Intent.new("POST", server.origin, json=1)
        result = typed.perform(lambda client: intent, Hours(), QUICK)
        assert {hit.key for hit in server.hits} == {intent.key}
        server.unplayed.clear()
    assert isinstance(result.outcome, Succeeded)
