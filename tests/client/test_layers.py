"""Above, below and beside: other retry layers, other trace functions, proxies, pools, and the process's budgets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK, Binding, Hours
from tests.client.scripted import answer, drip, reset_after_commit, serving
from twicesafe.client import (
    Ambient,
    Budgets,
    BudgetSize,
    Contract,
    FailureKind,
    Intent,
    Rejected,
    Sent,
    Stop,
    Succeeded,
    Unknown,
    Work,
    report_of,
)
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send
from twicesafe.errors import FailedAnswerError

LIBRARIES = pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)


@LIBRARIES
def test_two_layers_retry_as_one(library: Any) -> None:
    """K: three attempts under three attempts are three hits, not nine."""
    hours = Hours()
    how: dict[str, Any] = {"policy": QUICK.but(attempts=3), "budgets": Budgets(), "ambient": hours.ambient}
    with serving(*[answer(503)] * 6) as server:
        inner = RetryTransport(library.HTTPTransport(verify=NO_TLS), **how)
        with library.Client(transport=RetryTransport(inner, **how)) as client:
            send(client, Intent.new("POST", server.origin), **how)
            assert len(server.hits) == 3
            client.get(server.origin)
            assert len(server.hits) == 6
    assert [hit.attempt for hit in server.hits] == ["1", "2", "3"] * 2


@LIBRARIES
def test_two_layers_retry_as_one_in_asyncio(library: Any) -> None:
    """K: and the same for the async twins."""
    hours = Hours()
    how: dict[str, Any] = {"policy": QUICK.but(attempts=3), "budgets": Budgets(), "ambient": hours.async_ambient}

    async def main(origin: str) -> None:
        inner = AsyncRetryTransport(library.AsyncHTTPTransport(verify=NO_TLS), **how)
        async with library.AsyncClient(transport=AsyncRetryTransport(inner, **how)) as client:
            await asend(client, Intent.new("POST", origin), **how)
            await client.get(origin)

    with serving(*[answer(503)] * 6) as server:
        asyncio.run(main(server.origin))
        assert len(server.hits) == 6


def test_the_callers_own_trace_is_still_called(httpx_binding: Binding) -> None:
    """R40: watching the wire takes nothing from whoever watched it before."""
    seen: list[str] = []

    def trace(event: str, info: Any) -> None:
        seen.append(event)

    async def atrace(event: str, info: Any) -> None:
        trace(event, info)

    with serving(reset_after_commit, answer(200)) as server:
        extensions = {"trace": atrace if httpx_binding.asynchronous else trace}
        result = httpx_binding.perform(
            lambda client: client.build_request("PUT", server.origin, extensions=extensions), Hours(), QUICK
        )
    assert result.response.status_code == 200
    assert seen.count("connection.connect_tcp.complete") == 2
    assert seen.count("http11.send_request_headers.started") == 2


@LIBRARIES
def test_a_proxy_that_opens_no_tunnel_proves_that_nothing_was_sent(library: Any) -> None:
    """R35: the proxy was asked for a tunnel; of the operation itself not one byte left, so it may be tried again."""
    with serving(answer(502), answer(502)) as proxy:
        transport = library.HTTPTransport(verify=NO_TLS, proxy=proxy.origin)
        with library.Client(transport=transport) as client:
            intent = Intent.new("POST", "https://pay.example/charges", json=1, contract=Contract.NEVER)
            outcome = send(client, intent, policy=QUICK.but(attempts=2), budgets=Budgets(), ambient=Hours().ambient)
        assert [(hit.method, hit.key) for hit in proxy.hits] == [("CONNECT", None)] * 2
    assert isinstance(outcome, Unknown) and outcome.sent is Sent.NO
    assert outcome.attempts[0].failure is FailureKind.CONNECT


@LIBRARIES
def test_a_pool_without_a_free_connection_sends_nothing(library: Any) -> None:
    """R35: who waited for a connection in vain sent nothing, and may wait again."""
    with serving(drip, answer(201)) as server:
        limits = library.Limits(max_connections=1)
        with library.Client(transport=library.HTTPTransport(verify=NO_TLS, limits=limits)) as client:
            busy = client.send(client.build_request("GET", server.origin), stream=True)
            hours = Hours(asleep=busy.close)
            timeout = library.Timeout(5.0, pool=0.05)
            request = client.build_request("POST", server.origin, timeout=timeout)
            outcome = send(client, request, budgets=Budgets(), ambient=hours.ambient)
        assert [hit.method for hit in server.hits] == ["GET", "POST"]
    assert isinstance(outcome, Succeeded)
    assert [attempt.sent for attempt in outcome.attempts] == [Sent.NO, Sent.YES]


@LIBRARIES
def test_a_transport_that_traces_nothing_proves_nothing(library: Any) -> None:
    """R35: its failure may have come after sending, so that what is never repeated is not."""
    calls: list[Any] = []

    def lost(request: Any) -> Any:
        calls.append(request)
        raise library.ConnectError("so it says")

    with library.Client(transport=library.MockTransport(lost)) as client:
        never = send(client, client.build_request("POST", "http://x.example"), budgets=Budgets())
        assert len(calls) == 1
        keyed = send(client, Intent.new("POST", "http://x.example"), budgets=Budgets(), ambient=Hours().ambient)
        assert len(calls) == 5
    assert isinstance(never, Unknown) and (never.sent, never.stop) == (Sent.MAYBE, Stop.NOT_REPEATABLE)
    assert isinstance(keyed, Unknown) and keyed.sent is Sent.MAYBE


@LIBRARIES
def test_an_unusable_request_is_no_outcome(library: Any) -> None:
    """R35: what the library itself refuses to send is raised as it is, once, with the key on it."""
    with library.Client(transport=library.HTTPTransport(verify=NO_TLS)) as client:
        intent = Intent.new("POST", "gopher://x.example", json=1)
        with pytest.raises(library.UnsupportedProtocol) as caught:
            send(client, intent, budgets=Budgets())
    assert report_of(caught.value).key == intent.key


@LIBRARIES
def test_an_error_that_was_judged_can_still_be_read_in_every_way(library: Any) -> None:
    """R36: a transport that looked into an error's body hands it on as if it had not."""
    document = {"type": "about:blank", "title": "No."}
    with serving(*[answer(402, json_=document)] * 4) as server:
        wrapped = RetryTransport(library.HTTPTransport(verify=NO_TLS), budgets=Budgets())
        with library.Client(transport=wrapped) as client:
            plain = client.post(server.origin)
            assert plain.json() == document and plain.elapsed.total_seconds() > 0
            with client.stream("POST", server.origin) as response:
                assert b"".join(response.iter_raw()) == plain.content
            with client.stream("POST", server.origin) as response:
                assert "".join(response.iter_text()) == plain.text
            with client.stream("POST", server.origin) as response:
                assert response.read() == plain.content


@LIBRARIES
def test_a_response_knows_how_long_it_took(library: Any) -> None:
    """R40: what the library puts on a response is there after `send()` too."""
    transport = library.HTTPTransport(verify=NO_TLS)
    acts = answer(201, "Set-Cookie: a=1", body=b"done")
    with serving(acts) as server, library.Client(transport=transport) as client:
        response = send(client, Intent.new("POST", server.origin, json=1), budgets=Budgets()).raise_for_outcome()
        assert client.cookies["a"] == "1"
    assert response.elapsed.total_seconds() > 0
    assert (response.text, response.num_bytes_downloaded, response.request.content) == ("done", 4, b"1")


@LIBRARIES
def test_the_contract_can_be_said_with_a_request(library: Any) -> None:
    """R36: a POST that only searches is safe because its caller says so, call by call."""
    with serving(answer(503), answer(200), answer(503)) as server:
        wrapped = RetryTransport(library.HTTPTransport(verify=NO_TLS), budgets=Budgets(), ambient=Hours().ambient)
        with library.Client(transport=wrapped) as client:
            assert client.post(server.origin, extensions={"twicesafe.contract": "safe"}).status_code == 200
            assert client.get(server.origin, extensions={"twicesafe.contract": Contract.NEVER}).status_code == 503
        assert len(server.hits) == 3


# --- budgets ---------------------------------------------------------------------------------------------------------


@LIBRARIES
def test_a_process_shares_a_hosts_budget(library: Any) -> None:
    """R39: two clients that ask one host spend one budget, and the original answer comes back when it is empty."""
    budgets = Budgets({Work.INTERACTIVE: BudgetSize(3.0, 0.0, 0.0)})
    with serving(*[answer(429)] * 5) as server:
        stops = []
        for _ in range(2):
            with library.Client(transport=library.HTTPTransport(verify=NO_TLS)) as client:
                outcome = send(client, Intent.new("POST", server.origin), budgets=budgets, ambient=Hours().ambient)
            assert isinstance(outcome, Rejected) and outcome.response.status_code == 429
            stops.append(outcome.stop)
        assert len(server.hits) == 5
    assert stops == [Stop.ATTEMPTS, Stop.BUDGET]


def test_an_open_circuit_lets_nothing_through(binding: Binding) -> None:
    """R39, R35: once a host has failed often enough nothing is sent to it, and others are asked as before."""

    class OpenError(Exception):
        pass

    failures: dict[str, int] = {}

    @contextmanager
    def breaker(host: str) -> Iterator[None]:
        if failures.get(host, 0) >= 2:
            raise OpenError(host)
        try:
            yield
        except FailedAnswerError:
            failures[host] = failures.get(host, 0) + 1
            raise

    budgets = Budgets(breaker=breaker)
    with serving(answer(503), answer(503)) as server, serving(answer(200)) as other:
        down = binding.perform(lambda client: Intent.new("PUT", server.origin, json=1), Hours(), QUICK, budgets)
        assert len(server.hits) == 2 and down.response.status_code == 503
        shut = binding.perform(lambda client: Intent.new("PUT", server.origin, json=1), Hours(), QUICK, budgets)
        assert len(server.hits) == 2 and shut.response is None
        fine = binding.perform(lambda client: Intent.new("PUT", other.origin, json=1), Hours(), QUICK, budgets)
    assert down.report.attempts[-1].stop is Stop.CIRCUIT
    assert isinstance(shut.error, OpenError) and shut.report.attempts == () and fine.response.status_code == 200
    assert list(failures) == [f"127.0.0.1:{server.port}"]
    if binding.typed:
        assert isinstance(shut.outcome, Unknown)
        assert (shut.outcome.sent, shut.outcome.stop) == (Sent.NO, Stop.CIRCUIT)


def test_hosts_and_classes_of_work_have_their_own() -> None:
    """R39: a batch cannot eat what a person needs, nor one host what another has."""
    budgets = Budgets({work: BudgetSize(1.0, 0.0, 0.0) for work in Work})
    names = [("a:80", Work.INTERACTIVE), ("a:80", Work.BACKGROUND), ("a:81", Work.INTERACTIVE)]
    assert [budgets.of(host, work).take(1.0, 0.0) for host, work in names] == [True] * 3
    assert [budgets.of(host, work).take(1.0, 0.0) for host, work in names] == [False] * 3


def test_a_budget_is_shared_between_threads() -> None:
    """R39: eight threads that spend at once spend what there is, and nothing twice."""
    budgets = Budgets({Work.INTERACTIVE: BudgetSize(1000.0, 0.0, 0.0)})
    gate, taken = threading.Barrier(8), []

    def spend() -> None:
        gate.wait()
        budget = budgets.of("a", Work.INTERACTIVE)
        taken.append(sum(budget.take(1.0, 0.0) for _ in range(500)))

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 1000


def test_a_crawler_does_not_fill_the_memory() -> None:
    """R39: budgets that are full say nothing, and are forgotten; those that are spent are kept."""
    budgets = Budgets({Work.INTERACTIVE: BudgetSize(1.0, 0.0, 0.001)})
    for number in range(5000):
        assert budgets.of(f"host-{number}", Work.INTERACTIVE).left(0.0) == 1.0
    assert not budgets.spent
    for number in range(3000):
        now = number * 10.0
        assert budgets.of(f"host-{number}", Work.INTERACTIVE).take(1.0, now)
        assert len(budgets.spent) <= 1100
    assert not budgets.of("host-2999", Work.INTERACTIVE).take(1.0, now)
    assert budgets.of("host-0", Work.INTERACTIVE).take(1.0, now)


def test_chance_and_time_are_real_by_default() -> None:
    """R38: the defaults draw from [0, 1) and read a clock that does not stand still."""
    ambient = Ambient()
    draws = [ambient.fraction() for _ in range(100)]
    assert all(0 <= draw < 1 for draw in draws) and len(set(draws)) > 90
    assert ambient.clock() <= ambient.clock() and ambient.wall() > 1_700_000_000
