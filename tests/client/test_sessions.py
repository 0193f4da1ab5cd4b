"""requests and niquests: what they and urllib3 do by themselves, and what is proved about it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import niquests
import pytest
import requests

from tests.client.bindings import QUICK, Hours
from tests.client.scripted import Exchange, answer, drip, half_body, problem, redirect, reset_after_commit, serving
from twicesafe.client import (
    BodyNotRepeatableError,
    Budgets,
    ClientError,
    Contract,
    FailureKind,
    Intent,
    Outcome,
    Rejected,
    Sent,
    Stop,
    Succeeded,
    Unknown,
    report_of,
)
from twicesafe.client.requests import RetryAdapter, send
from twicesafe.client.watching import Watch
from twicesafe.errors import ConfigurationError

LIBRARIES = pytest.mark.parametrize("library", [requests, niquests], ids=lambda library: library.__name__)

SOON = timedelta(seconds=0.3)
REPLAY = answer(201, "Idempotent-Replayed: true", json_={"charge": 1})


def session_of(library: Any, adapter: Any = None) -> Any:
    """A session that looks at nothing of the machine's."""
    made = library.Session()
    made.trust_env = False
    if adapter is not None:
        made.mount("http://", adapter)
        made.mount("https://", adapter)
    return made


def sent(session: Any, what: Any, hours: Hours | None = None, **how: Any) -> Outcome[Any]:
    ambient = (hours or Hours()).ambient
    return send(session, what, **{"policy": QUICK, "budgets": Budgets(), "ambient": ambient, **how})


def adapter_of(library: Any, hours: Hours | None = None, *, inner: Any = None, **how: Any) -> RetryAdapter:
    ambient = (hours or Hours()).ambient
    inner = library.adapters.HTTPAdapter() if inner is None else inner
    return RetryAdapter(inner, **{"policy": QUICK, "budgets": Budgets(), "ambient": ambient, **how})


# --- one layer -------------------------------------------------------------------------------------------------------


@LIBRARIES
@pytest.mark.parametrize("through", ["send", "adapter"])
def test_urllib3s_own_retries_are_switched_off(library: Any, through: str) -> None:
    """K: three attempts above six of urllib3's are three hits; for whoever uses the adapter itself it retries on."""
    eager = library.adapters.Retry(total=5, read=5, status=5, status_forcelist=[503], allowed_methods=None)
    inner = library.adapters.HTTPAdapter(max_retries=eager)
    policy = QUICK.but(attempts=3)
    with serving(answer(503), reset_after_commit, answer(503), answer(503), answer(200)) as server:
        intent = Intent.new("PUT", server.origin, json=1)
        if through == "send":
            with session_of(library, inner) as session:
                sent(session, intent, policy=policy)
        else:
            with session_of(library, adapter_of(library, inner=inner, policy=policy)) as session:
                session.put(server.origin, json=1)
        assert [hit.attempt for hit in server.hits] == ["1", "2", "3"]
        with session_of(library, inner) as session:
            assert session.put(server.origin).status_code == 200
        assert len(server.hits) == 5
    assert inner.max_retries is eager or inner.max_retries.total == 5


@LIBRARIES
def test_adapters_in_a_row_and_send_retry_as_one(library: Any) -> None:
    """K: an adapter around another is one layer, and so is `send()` through a session that has one."""
    policy = QUICK.but(attempts=3)
    twice = adapter_of(library, inner=adapter_of(library, policy=policy), policy=policy)
    with serving(*[answer(503)] * 6) as server, session_of(library, twice) as session:
        session.put(server.origin)
        assert len(server.hits) == 3
        sent(session, Intent.new("PUT", server.origin), policy=policy)
        assert len(server.hits) == 6
    assert [hit.attempt for hit in server.hits] == ["1", "2", "3"] * 2


def test_niquests_does_not_ask_again_by_itself() -> None:
    """K: it takes a TypeError for an adapter that knows fewer arguments; after the request went out it gets another."""

    def broken(request: Any) -> None:
        raise TypeError("the caller's own")

    with serving(lambda exchange: exchange.wait_until_left()) as server, session_of(niquests) as session:
        request = niquests.Request("PUT", server.origin, data=b"1", hooks={"on_upload": [broken]})
        with pytest.raises(ClientError) as caught:
            sent(session, request)
    assert isinstance(caught.value.__cause__, TypeError)


@LIBRARIES
def test_what_authentication_sends_again_is_the_same_attempt(library: Any) -> None:
    """I8, R40: a challenge and the request that answers it are one attempt with one key, whoever sends the second."""
    challenge = 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
    with serving(answer(401, challenge), reset_after_commit, answer(201)) as server:
        with session_of(library) as session:
            session.auth = library.auth.HTTPDigestAuth("ann", "secret")
            outcome = sent(session, Intent.new("POST", server.origin, json=1))
        assert [hit.attempt for hit in server.hits] == ["1", "1", "2"]
        assert len({hit.key for hit in server.hits}) == 1
        assert {hit.body for hit in server.hits} == {b"1"}
    assert isinstance(outcome, Succeeded) and [attempt.sent for attempt in outcome.attempts] == [Sent.YES] * 2


@LIBRARIES
@pytest.mark.parametrize("through", ["send", "adapter"])
def test_whoever_watches_is_told(library: Any, through: str) -> None:
    """R40: each attempt and the end; and the attempts carry their operation's id and how many there may be."""
    told: list[str] = []
    watch = Watch(observer=lambda event: told.append(event.name))
    with serving(reset_after_commit, answer(200)) as server:
        if through == "send":
            with session_of(library) as session:
                sent(session, Intent.new("PUT", server.origin, json=1), watch=watch)
        else:
            with session_of(library, adapter_of(library, watch=watch)) as session:
                session.put(server.origin, json=1)
        assert {hit.header("twicesafe-attempt-limit") for hit in server.hits} == {"4"}
        assert len({hit.header("twicesafe-operation") for hit in server.hits} - {None}) == 1
    assert told == ["attempt.ended", "attempt.ended", "operation.succeeded"]


# --- proof -----------------------------------------------------------------------------------------------------------


@LIBRARIES
def test_connections_from_before_prove_nothing(library: Any) -> None:
    """R35: those that a session made on its own tell nothing; what fails on them may have been sent, and ends there."""
    with serving(answer(200)) as server, session_of(library) as session:
        session.get(server.origin)
        server.close()
        outcome = sent(session, Intent.new("POST", server.origin, contract=Contract.NEVER))
    assert isinstance(outcome, Unknown)
    assert (outcome.sent, outcome.stop) == (Sent.MAYBE, Stop.NOT_REPEATABLE)


@LIBRARIES
def test_a_connection_that_was_kept_proves_as_a_new_one_does(library: Any) -> None:
    """R35: sent again on a connection that the first attempt made; gone by then, and nothing of the second went out."""

    def kept(exchange: Exchange) -> None:
        exchange.read()
        exchange.send(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n")
        exchange.read()
        exchange.reset()

    with serving(kept, answer(201)) as server, session_of(library) as session:
        assert isinstance(sent(session, Intent.new("POST", server.origin)), Succeeded)
        outcome = sent(session, Intent.new("POST", server.origin))
        assert len(server.hits) == 3
    assert [attempt.sent for attempt in outcome.attempts] == [Sent.YES, Sent.YES]


@LIBRARIES
def test_a_proxy_that_opens_no_tunnel_proves_that_nothing_was_sent(library: Any) -> None:
    """R35: the proxy was asked for a tunnel; of the operation itself not one byte left, so it may be tried again."""
    with serving(answer(502), answer(502)) as proxy, session_of(library) as session:
        session.proxies = {"https": proxy.origin}
        intent = Intent.new("POST", "https://pay.example/charges", json=1, contract=Contract.NEVER)
        outcome = sent(session, intent, policy=QUICK.but(attempts=2))
        assert [(hit.method, hit.key) for hit in proxy.hits] == [("CONNECT", None)] * 2
    assert isinstance(outcome, Unknown) and outcome.sent is Sent.NO
    assert outcome.attempts[0].failure is FailureKind.CONNECT


@LIBRARIES
def test_a_pool_without_a_free_connection_sends_nothing(library: Any) -> None:
    """R35, R39: who waits for a connection in vain sends nothing, and waits no longer than there is time."""
    inner = library.adapters.HTTPAdapter(pool_maxsize=1, pool_connections=1, pool_block=True)
    with serving(drip, answer(201)) as server, session_of(library, inner) as session:
        # The first connection is this package's too, so that silence is proof.
        adapter = adapter_of(library, inner=inner)
        session.mount("http://", adapter)
        busy = session.get(server.origin, stream=True)
        hours = Hours(asleep=busy.close)
        outcome = sent(
            session, library.Request("POST", server.origin), hours, policy=QUICK.but(attempt_timeout=2 * SOON)
        )
        assert [hit.method for hit in server.hits] == ["GET", "POST"]
    assert isinstance(outcome, Succeeded)
    assert [attempt.sent for attempt in outcome.attempts] == [Sent.NO, Sent.YES]


@LIBRARIES
def test_an_adapter_of_somebody_elses_proves_nothing(library: Any) -> None:
    """R35: its failure may have come after sending, so that what is never repeated is not."""

    class Lost(library.adapters.BaseAdapter):  # type: ignore[name-defined,misc]
        calls = 0

        def send(self, request: Any, **how: Any) -> Any:
            type(self).calls += 1
            raise library.exceptions.ConnectionError("so it says")

        def close(self) -> None:
            pass

    with session_of(library, Lost()) as session:
        never = sent(session, library.Request("POST", "http://x.example"))
        assert Lost.calls == 1
        keyed = sent(session, Intent.new("POST", "http://x.example"))
        assert Lost.calls == 5
    assert isinstance(never, Unknown) and (never.sent, never.stop) == (Sent.MAYBE, Stop.NOT_REPEATABLE)
    assert isinstance(keyed, Unknown) and keyed.sent is Sent.MAYBE


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_head_that_drips_ends_at_the_deadline() -> None:
    """R39: a server that sends its head a line at a time, for ever, is left when the time is over."""

    def dripping(exchange: Exchange) -> None:
        exchange.read()
        exchange.send(b"HTTP/1.1 200 OK\r\n")
        exchange.wait_until_left(drip=b"X-More: 1\r\n", every=0.02)

    with serving(dripping) as server, session_of(requests) as session:
        outcome = sent(session, Intent.new("POST", server.origin), deadline=2 * SOON, policy=QUICK.but(attempts=1))
        assert len(server.hits) == 1
    assert isinstance(outcome, Unknown) and outcome.attempts[0].failure is FailureKind.TIMEOUT
    assert outcome.attempts[0].seconds < 30


@LIBRARIES
def test_a_timeout_as_the_library_takes_it_is_clipped(library: Any) -> None:
    """R39: a number, a pair and urllib3's own object: each counts, and none for longer than is left."""
    kind = library.adapters.TimeoutSauce
    times = [0.2, (5, 0.2), kind(connect=5, read=0.2), kind(total=0.2), (60, 60), kind(connect=60, read=60), None]
    for timeout in times:
        with serving(lambda exchange: exchange.wait_until_left()) as server, session_of(library) as session:
            policy = QUICK.but(attempts=1, attempt_timeout=SOON)
            outcome = sent(session, Intent.new("POST", server.origin), policy=policy, timeout=timeout)
        assert isinstance(outcome, Unknown) and outcome.attempts[0].failure is FailureKind.TIMEOUT, timeout
        assert isinstance(outcome.error, library.exceptions.ReadTimeout)


# --- within a session ------------------------------------------------------------------------------------------------


@LIBRARIES
def test_an_answer_that_breaks_off_is_recovered_by_the_adapter_too(library: Any) -> None:
    """K: unless it was told to stream, the adapter reads the body, and asks again where that breaks."""
    with serving(half_body, REPLAY, half_body) as server, session_of(library, adapter_of(library)) as session:
        headers = {"Idempotency-Key": "k-1"}
        response = session.post(server.origin, headers=headers)
        assert [hit.key for hit in server.hits] == ["k-1"] * 2
        assert response.json() == {"charge": 1}
        streamed = session.post(server.origin, headers=headers, stream=True)
        assert len(server.hits) == 3
        with pytest.raises(library.exceptions.ChunkedEncodingError):
            streamed.content  # noqa: B018 - it reads
    assert report_of(response).attempts[0].status == 201


@LIBRARIES
def test_an_error_that_was_judged_can_still_be_read(library: Any) -> None:
    """R36: an adapter that looked into an error's body hands it on as if it had not."""
    document = {"type": "about:blank", "title": "No."}
    with serving(*[answer(402, json_=document)] * 3) as server, session_of(library, adapter_of(library)) as session:
        plain = session.post(server.origin)
        assert plain.json() == document and plain.elapsed.total_seconds() > 0
        with session.post(server.origin, stream=True) as response:
            assert b"".join(response.iter_content(7)) == plain.content
        with session.post(server.origin, stream=True) as response:
            assert [*response.iter_lines()] == [plain.content]


@LIBRARIES
def test_mounts_are_a_table_of_contracts(library: Any) -> None:
    """R36: what is below one address only searches, and says so once."""
    with serving(answer(503), answer(200), answer(503)) as server, session_of(library) as session:
        session.mount("http://", adapter_of(library))
        session.mount(f"{server.origin}/search", adapter_of(library, contract=Contract.SAFE))
        assert session.post(f"{server.origin}/search?q=1").status_code == 200
        assert session.post(f"{server.origin}/charge").status_code == 503
        assert len(server.hits) == 3


@LIBRARIES
def test_a_session_finds_its_own_as_it_was(library: Any) -> None:
    """R40: cookies, hooks, what the library puts on a response, and the request: all as after `session.request()`."""
    seen: list[int] = []

    def noted(response: Any, **_: Any) -> None:
        seen.append(response.status_code)

    with serving(answer(503), answer(201, "Set-Cookie: a=1", body=b"done")) as server, session_of(library) as session:
        session.hooks["response"].append(noted)
        session.headers["X-Shop"] = "1"
        response = sent(session, Intent.new("POST", server.origin, json=1)).raise_for_outcome()
        assert session.cookies["a"] == "1"
        assert {hit.header("x-shop") for hit in server.hits} == {"1"}
    assert seen == [503, 201]
    assert response.elapsed.total_seconds() > 0
    assert (response.text, response.request.body, response.history) == ("done", b"1", [])
    assert report_of(response).attempts[1].status == 201


@LIBRARIES
def test_a_stream_does_not_go_with_a_redirect(library: Any) -> None:
    """R36: what can be read once was read by the first server; the redirect is the answer, nothing empty is sent on."""

    def pieces() -> Iterator[bytes]:
        yield from (b"one ", b"two")

    with serving(redirect(307, "/v2")) as server, session_of(library) as session:
        outcome = sent(session, library.Request("POST", server.origin, data=pieces()))
        assert [hit.body for hit in server.hits] == [b"one two"]
    assert isinstance(outcome, Rejected) and outcome.response.status_code == 307


@LIBRARIES
def test_a_file_that_is_too_large_is_put_back(library: Any) -> None:
    """I8, K: its size was not known beforehand; it stands where it stood, and nothing was sent."""

    class Unsized(io.BytesIO):
        def fileno(self) -> int:
            raise io.UnsupportedOperation

        def seekable(self) -> bool:
            return True

    file = Unsized(b"0123456789what is left")
    file.seek(10)
    with serving() as server, session_of(library) as session:
        prepared = session.prepare_request(library.Request("PUT", server.origin, data=file))
        prepared.headers.pop("Content-Length", None)
        with pytest.raises(BodyNotRepeatableError):
            sent(session, prepared, policy=QUICK.but(body_limit=4))
    assert file.tell() == 10


@LIBRARIES
def test_an_unusable_request_is_no_outcome(library: Any) -> None:
    """R35: what the library itself refuses to send is raised as it is, once, with the key on it."""
    with session_of(library, adapter_of(library)) as session:
        for url, error in [
            ("gopher://x.example", library.exceptions.InvalidSchema),
            ("/charges", library.exceptions.MissingSchema),
        ]:
            intent = Intent.new("POST", url, json=1)
            with pytest.raises(error) as caught:
                sent(session, intent)
            assert report_of(caught.value).key == intent.key
            assert report_of(caught.value).attempts == ()


def test_what_is_not_a_session_is_refused() -> None:
    """House: a mistake in the wiring is said at once."""
    for wrong in (object(), niquests.AsyncSession()):
        with pytest.raises(ConfigurationError):
            send(wrong, Intent.new("POST", "http://x.example"))
    for wrong in (requests.Session(), niquests.adapters.AsyncHTTPAdapter(), None):
        with pytest.raises(ConfigurationError):
            RetryAdapter(wrong)


def test_a_problem_is_read_whatever_it_comes_in() -> None:
    """R37: a key that was used for another request is no proof that nothing was done."""
    with serving(problem(422, "key-reused")) as server, session_of(requests) as session:
        assert isinstance(sent(session, Intent.new("POST", server.origin)), Unknown)
