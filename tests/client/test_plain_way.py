"""One attempt that succeeds, which is what most operations are: nothing is decided, and all is as if it had been."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import httpx
import httpx2
import pytest

from tests.client.bindings import QUICK, Hours
from twicesafe.client import AsyncAmbient, Budgets, BudgetSize, Report, Stop, Watch, Work, report_of
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport
from twicesafe.core.answers import PLAIN
from twicesafe.core.attempts import Answered, Call, attempts, done_at_once
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, Succeeded
from twicesafe.core.provider import Provider
from twicesafe.core.retry_budget import BudgetSize as Size
from twicesafe.core.retry_budget import RetryBudget
from twicesafe.core.retry_policy import RetryPolicy

KEY = {"Idempotency-Key": "k-1"}
by = pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)
sync_or_not = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def ended(status: int, headers: tuple[tuple[bytes, bytes], ...], contract: Contract, wording: Any) -> bool:
    """Whether attempts() makes a success of a first answer."""
    policy = RetryPolicy()
    call, trail = Call(contract, "k-1", policy, 30.0, wording), list[Attempt]()
    decisions = attempts(call, RetryBudget(Size(1.0, 0.0, 0.0), 0.0), 0.0, trail)
    decisions.send(None)
    try:
        decisions.send(Answered("response", status, headers, None, 1.0, 0.0, 0.0))
    except StopIteration as end:
        return isinstance(end.value, Succeeded)
    return False


def test_what_is_done_at_once_is_what_the_rules_make_of_it() -> None:
    """R35, R36: whatever the contract, the headers and the server's own words: no answer is taken for a success that
    the rules do not take for one."""
    wordings = [PLAIN, *(Provider.of(name).wording() for name in ("stripe-v1", "flutterwave", "openai"))]
    lines = ((), ((b"Idempotent-Replayed", b"true"),), ((b"Retry-After", b"9"), (b"x-should-retry", b"true")))
    for status in range(200, 600):
        made = {
            ended(status, headers, contract, wording)
            for headers in lines
            for contract in Contract
            for wording in wordings
        }
        assert made == {True} if done_at_once(status) else False in made, status


def perform(library: Any, asynchronous: bool, play: Callable[[Any], Any], how: dict[str, Any], **request: Any) -> Any:
    """The response to a request through a retry transport."""
    hours = Hours()
    if not asynchronous:
        how = {"policy": QUICK, "budgets": Budgets(), "ambient": hours.ambient, **how}
        with library.Client(transport=RetryTransport(library.MockTransport(play), **how)) as client:
            return client.send(client.build_request(**request))

    async def story() -> Any:
        transport = AsyncRetryTransport(library.MockTransport(play), **how)
        async with library.AsyncClient(transport=transport) as client:
            return await client.send(client.build_request(**request))

    how = {"policy": QUICK, "budgets": Budgets(), "ambient": hours.async_ambient, **how}
    return asyncio.run(story())


def told(report: Report | None) -> tuple[Any, ...]:
    """A report without the times in it."""
    assert report is not None
    return report.key, [attempt._replace(seconds=0.0, began=0.0, deadline_left=0.0) for attempt in report.attempts]


@by
@sync_or_not
@pytest.mark.parametrize("replayed", ["true", "false"])
@pytest.mark.parametrize(("method", "headers"), [("GET", {}), ("POST", KEY), ("POST", {}), ("PUT", KEY)])
def test_it_is_recorded_as_if_it_had_been_decided(
    library: Any, asynchronous: bool, method: str, headers: dict[str, str], replayed: str
) -> None:
    """R40: key, attempt, reason, deadline and budget are on the response, whichever way it went."""
    seen: list[Any] = []

    def play(request: Any) -> Any:
        seen.append(request)
        return library.Response(201, headers={"Idempotent-Replayed": replayed})

    request = {"method": method, "url": "http://x.example/charges", "headers": headers}
    plain = perform(library, asynchronous, play, {}, **request)
    decided = perform(library, asynchronous, play, {"watch": Watch(observer=lambda event: None)}, **request)
    assert told(report_of(plain)) == told(report_of(decided)) == told(report_of(plain))
    (attempt,) = report_of(plain).attempts
    assert attempt.stop is Stop.ANSWERED and attempt.deadline_left > 0 and attempt.budget_left == 20.0
    assert [request.headers["twicesafe-attempt"] for request in seen] == ["1", "1"]
    assert {request.headers.get("idempotency-key") for request in seen} == {headers.get("Idempotency-Key")}


@by
@sync_or_not
def test_what_does_not_succeed_at_once_goes_on(library: Any, asynchronous: bool) -> None:
    """R36, I8: the first attempt counts as one, whatever it came to, and the next is the second."""
    answers = [library.ReadError("lost"), library.Response(503, headers={"Retry-After": "1"}), library.Response(200)]
    numbers: list[str] = []

    def play(request: Any) -> Any:
        numbers.append(request.headers["twicesafe-attempt"])
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    request = {"method": "POST", "url": "http://x.example/", "headers": KEY}
    response = perform(library, asynchronous, play, {}, **request)
    assert numbers == ["1", "2", "3"] and response.status_code == 200
    report = report_of(response)
    assert [attempt.reason for attempt in report.attempts] == ["dropped", "503", "200"] and report.key == "k-1"


@by
@sync_or_not
def test_nothing_of_it_stays_on_the_request(library: Any, asynchronous: bool) -> None:
    """R39: the caller's own extensions are back, also where nothing succeeds; a request can be sent again."""
    own = {"mine": 1, "timeout": {"read": 5.0}}
    kept: list[Any] = []

    def play(request: Any) -> Any:
        kept.append(request)
        assert request.extensions["twicesafe.attempted"] == 1
        return library.Response(204 if len(kept) == 1 else 402)

    for _ in range(2):
        perform(library, asynchronous, play, {}, method="PUT", url="http://x.example/", extensions=own)
    assert [request.extensions for request in kept] == [own, own]


def test_it_leaves_nothing_for_the_collector() -> None:
    """R40: what is kept for a report goes with the response."""
    ask = {"method": "GET", "url": "http://x.example/"}
    response = perform(httpx2, False, lambda request: httpx2.Response(200), {}, **ask)
    gone = weakref.ref(response.request)
    gc.disable()
    try:
        del response
        assert gone() is None
    finally:
        gc.enable()


@by
@sync_or_not
def test_a_host_that_needed_a_retry_is_paid_back(library: Any, asynchronous: bool) -> None:
    """R39: while anything was spent each success pays, and what is full again is forgotten."""
    budgets = Budgets({Work.INTERACTIVE: BudgetSize(2.0, 0.5, 0.0)})
    answers = [429, *[200] * 3]
    left = []

    def play(request: Any) -> Any:
        return library.Response(answers.pop(0))

    for _ in range(3):
        response = perform(library, asynchronous, play, {"budgets": budgets}, method="GET", url="http://x.example/")
        left.append(report_of(response).attempts[-1].budget_left)
        left.append(not budgets.spent)
    assert left == [1.5, False, 2.0, True, 2.0, True] and answers == []


def test_a_malformed_key_is_told_before_anything_is_sent() -> None:
    """R4: the plain way is none for a key that is none."""
    for key in ("", "a\x7f", "k" * 256):
        with pytest.raises(Exception, match="idempotency key"):
            perform(
                httpx2,
                False,
                pytest.fail,
                {},
                method="POST",
                url="http://x.example/",
                headers={"Idempotency-Key": key},
            )


@by
@sync_or_not
def test_what_is_safe_needs_no_key(library: Any, asynchronous: bool) -> None:
    """R4, R36: a GET is asked for and repeated whatever stands in its header, and has no key."""
    answers = [200, 503, 200]
    ask = {"method": "GET", "url": "http://x.example/", "headers": {"Idempotency-Key": ""}}
    for attempts_made in (1, 2):
        response = perform(library, asynchronous, lambda request: library.Response(answers.pop(0)), {}, **ask)
        assert response.status_code == 200
        report = report_of(response)
        assert report.key is None and len(report.attempts) == attempts_made


def test_two_keys_are_none() -> None:
    """R4: two lines that name different keys are told, before anything is sent; two that name one are one."""
    for other, fine in (("k-2", False), ("k-1", True)):
        headers = [("Idempotency-Key", "k-1"), ("idempotency-key", other)]
        ask = {"method": "POST", "url": "http://x.example/", "headers": headers}
        if fine:
            response = perform(httpx2, False, lambda request: httpx2.Response(200), {}, **ask)
            assert report_of(response).key == "k-1"
        else:
            with pytest.raises(Exception, match="two different"):
                perform(httpx2, False, pytest.fail, {}, **ask)


def test_time_and_chance_are_not_asked_for_what_needs_neither() -> None:
    """R39: a success draws no lot and looks at no calendar."""
    ambient = AsyncAmbient(wall=lambda: pytest.fail("asked"), fraction=lambda: pytest.fail("asked"))
    response = perform(
        httpx2, True, lambda request: httpx2.Response(200), {"ambient": ambient}, method="GET", url="http://x.example/"
    )
    assert response.status_code == 200
