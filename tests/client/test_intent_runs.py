"""Reserved intents that are sent: what is on disk before and after, and what is told and done because of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from tests.client.bindings import NO_TLS, QUICK
from tests.client.reserving import ONCE, WAYS, Desk, Way, called
from tests.client.scripted import Exchange, answer, redirect, reset_after_commit, serving
from twicesafe.client import (
    AsyncIntentStore,
    Budgets,
    Contract,
    Intent,
    IntentChangedError,
    IntentOverdueError,
    IntentSettledError,
    Outcome,
    Rejected,
    RetryPolicy,
    Sent,
    Standing,
    Stop,
    Succeeded,
    Unknown,
    report_of,
)
from twicesafe.client.httpx import asend, send
from twicesafe.client.intent_store import host_clock
from twicesafe.errors import ConfigurationError

DAY = timedelta(days=1)
NAME = "cart 17"


def charge(origin: str = "https://pay.example", **changes: Any) -> Intent:
    return Intent.new("POST", f"{origin}/charges", **{"json": {"amount": 100}, **changes})


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """Each way to send, on a file of its own."""
    way: Way = request.param
    return Desk(tmp_path / "intents.db", way)


@pytest.fixture
def one(tmp_path: Path) -> Desk:
    """One way, for what does not depend on it."""
    return Desk(tmp_path / "intents.db")


def test_what_was_sent_and_not_answered_is_sent_again(desk: Desk) -> None:
    """R33, R34, I8, K: the answer is lost, the process ends; the next one sends the same key and the same bytes."""
    with serving(reset_after_commit, answer(201)) as server:
        lost = desk.send(desk.reserve(NAME, charge(server.origin), remembers=DAY))
        standing = desk.standing(NAME)
        again = desk.send(desk.reserve(NAME, charge(server.origin), remembers=DAY))
        first, second = server.hits
    assert (first.key, first.body) == (second.key, second.body)
    assert isinstance(lost, Unknown) and isinstance(again, Succeeded)
    assert (standing, desk.standing(NAME)) == ("unknown", "succeeded")
    assert again.key == lost.key == first.key


def test_what_was_provably_not_sent_is_as_it_was(desk: Desk) -> None:
    """R34, R35: no connection came about: nothing was sent, and the server's memory has not begun to run out."""
    with serving(answer(201), listening=False) as server:
        reserved = desk.reserve(NAME, charge(server.origin), remembers=DAY)
        refused = desk.send(reserved)
        assert (desk.standing(NAME), server.hits) == ("reserved", [])
        desk.clock.advance(9 * DAY)
        server.listen()
        assert isinstance(desk.send(reserved), Succeeded)
    assert isinstance(refused, Unknown) and refused.sent is Sent.NO
    assert desk.standing(NAME) == "succeeded"


def test_a_run_without_an_end_may_have_been_sent(one: Desk) -> None:
    """R34, R35, I6: what began and has no end is unknown, and counts as sent for every later answer."""
    with serving(answer(402), answer(402, "Idempotent-Replayed: true"), listening=False) as server:
        reserved = one.reserve(NAME, charge(server.origin), remembers=DAY)
        one.store.runs.begin(reserved, ONCE, None)
        assert one.standing(NAME) == "unknown"
        unreached = one.send(reserved)
        server.listen()
        refused = one.send(reserved)
        standing = one.standing(NAME)
        final = one.send(reserved)
    assert isinstance(unreached, Unknown) and unreached.sent is Sent.MAYBE
    assert isinstance(refused, Unknown) and refused.response.status_code == 402
    assert standing == "unknown"
    assert isinstance(final, Rejected) and final.replayed
    assert one.standing(NAME) == "rejected"


def test_a_refusal_is_final_where_nothing_else_was_sent(desk: Desk) -> None:
    """R35: a rejection is kept, and the same intent is not sent again behind the back of whatever replaced it."""
    with serving(answer(402)) as server:
        reserved = desk.reserve(NAME, charge(server.origin), remembers=DAY)
        assert isinstance(desk.send(reserved), Rejected)
        with pytest.raises(IntentSettledError, match="rejected") as caught:
            desk.send(reserved)
        assert len(server.hits) == 1
    assert desk.standing(NAME) == "rejected"
    report = report_of(caught.value)
    assert report is not None and report.key == reserved.intent.key and report.key not in str(caught.value)


def test_a_success_can_be_asked_for_again_while_its_server_knows_it(one: Desk) -> None:
    """R34: the answer was kept by the server, not here: asked for within its memory it comes again, and never after."""
    with serving(answer(201), answer(201, "Idempotent-Replayed: true")) as server:
        reserved = one.reserve(NAME, charge(server.origin), remembers=DAY)
        one.send(reserved)
        again = one.send(reserved)
        one.clock.advance(DAY)
        with pytest.raises(IntentSettledError, match="succeeded"):
            one.send(reserved)
        assert len({hit.key for hit in server.hits}) == 1
    assert isinstance(again, Succeeded) and again.replayed


def test_what_its_server_may_have_forgotten_is_never_sent_again(desk: Desk) -> None:
    """R34, I6, K: unknown past the server's memory: it would run as new, so it is refused, kept and listed."""
    with serving(reset_after_commit) as server:
        reserved = desk.reserve(NAME, charge(server.origin), remembers=DAY)
        desk.send(reserved)
        desk.clock.advance(DAY - timedelta(minutes=1))
        with pytest.raises(IntentOverdueError, match="twice") as caught:
            desk.send(reserved)
        assert len(server.hits) == 1
    store = desk.store
    assert store.purge() == 0
    assert [(found.name, found.standing) for found in store.listed()] == [(NAME, Standing.OVERDUE)]
    report = report_of(caught.value)
    assert report is not None and report.key == reserved.intent.key
    store.settle(NAME, done=True, why="ch_1 is in the account")
    (found,) = store.listed(settled=True)
    assert (found.standing, found.runs[-1].reason) == (Standing.SUCCEEDED, "ch_1 is in the account")
    assert store.listed() == () and store.purge() == 0
    with pytest.raises(IntentSettledError):
        store.settle(NAME, done=False, why="a slip")
    desk.clock.advance(timedelta(minutes=1))
    assert (store.purge(), store.find(NAME)) == (1, None)


def test_attempts_end_before_the_server_forgets(one: Desk) -> None:
    """R34, R39: the deadline of a run is clipped to what is left of the server's memory, and is the caller's below."""
    seen: list[RetryPolicy] = []

    def by(client: Any, intent: Intent, *, policy: RetryPolicy, **how: Any) -> Outcome[Any]:
        seen.append(policy)
        raise LookupError

    desk = Desk(one.file, clock=one.clock, policy=ONCE.but(header="X-Request-Id"))
    reserved = desk.reserve(NAME, charge(), remembers=timedelta(hours=1))
    minute = timedelta(minutes=1)
    for deadline, later in ((5 * minute, 0 * minute), (90 * minute, 0 * minute), (90 * minute, 58 * minute)):
        one.clock.advance(later)
        with pytest.raises(LookupError):
            one.send(reserved, by=by, deadline=deadline)
    assert [policy.deadline for policy in seen] == [5 * minute, 59 * minute, minute]
    assert {policy.header for policy in seen} == {"X-Request-Id"}
    with pytest.raises(ConfigurationError, match="X-Request-Id"):
        one.send(reserved, policy=ONCE.but(header="PayPal-Request-Id"))


def test_a_reserved_intent_is_not_sent_past_its_file(desk: Desk) -> None:
    """R34: a binding's own `send` says how to send it, and nothing leaves: the file would know of no run."""
    reserved = desk.reserve(NAME, charge(), remembers=DAY)
    with pytest.raises(ConfigurationError, match=r"intents\.send\(client, reserved, by=send\)"):
        desk.send_past_the_file(reserved)
    assert desk.standing(NAME) == "reserved"


def test_what_may_not_be_sent_twice_is_sent_once(one: Desk) -> None:
    """R36: an intent whose server knows no keys is sent once; where that is unknown, nothing sends it again."""
    with serving(reset_after_commit) as server:
        reserved = one.reserve(NAME, charge(server.origin, contract=Contract.NEVER))
        assert isinstance(one.send(reserved, policy=QUICK), Unknown)
        with pytest.raises(IntentOverdueError):
            one.send(reserved)
        assert len(server.hits) == 1


def test_a_redirect_on_the_way_keeps_the_key(desk: Desk) -> None:
    """R33, I8, K: the intent is redirected, its answer is lost, another process sends it: one key all the way."""
    script = [redirect(307, "/v2/charges"), reset_after_commit, redirect(308, "/v2/charges"), answer(201)]
    with serving(*script) as server:
        for expected in (Unknown, Succeeded):
            reserved = desk.reserve(NAME, charge(server.origin), remembers=DAY)
            assert isinstance(desk.send(reserved, follow_redirects=True), expected)
        assert [hit.target for hit in server.hits] == ["/charges", "/v2/charges"] * 2
        assert {(hit.key, hit.body) for hit in server.hits} == {(reserved.intent.key, reserved.intent.body)}


def test_two_that_send_one_intent_at_once(one: Desk) -> None:
    """R34, I8, I6: both send, under one key, and neither is told that it was not done, whichever ends first."""
    both = threading.Barrier(2, timeout=20)

    def meet(status: int) -> Callable[[Exchange], None]:
        def act(exchange: Exchange) -> None:
            hit = exchange.read()
            both.wait()
            done = answer(status)
            exchange.read = lambda: hit  # type: ignore[method-assign]
            done(exchange)

        return act

    with serving(meet(201), meet(402)) as server:
        reserved = one.reserve(NAME, charge(server.origin), remembers=DAY)
        outcomes: list[Outcome[Any]] = []
        senders = [threading.Thread(target=lambda: outcomes.append(one.send(reserved))) for _ in range(2)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(30)
        assert len(server.hits) == 2 and len({hit.key for hit in server.hits}) == 1
    assert one.standing(NAME) == "succeeded"
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Succeeded", "Unknown"]


def test_the_caller_is_told_what_the_file_could_not_keep(one: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """R34, I6: the file is gone when the answer comes: it is told all the same, and the failure is logged, keyless."""
    with serving(answer(201)) as server:
        reserved = one.reserve(NAME, charge(server.origin), remembers=DAY)

        def by(*given: Any, **how: Any) -> Outcome[Any]:
            outcome = send(*given, **how)
            for path in one.file.parent.iterdir():
                path.rename(one.file.parent.parent / path.name)
            return outcome

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Desk, "store", one.store)
            assert isinstance(one.send(reserved, by=by), Succeeded)
    (logged,) = caplog.records
    assert logged.levelname == "ERROR" and "intent_not_recorded" in logged.message and NAME in logged.message
    assert reserved.intent.key not in logged.message
    for path in list(one.file.parent.parent.iterdir()):
        if path.name.startswith(one.file.name):
            path.rename(one.file.parent / path.name)
    assert one.standing(NAME) == "unknown"


def test_what_a_circuit_breaker_held_back_was_not_sent(one: Desk) -> None:
    """R34, R39: a run without a single attempt proves that nothing was sent, and says what held it back."""
    open_ = Unknown(key=None, sent=Sent.NO, attempts=(), stop=Stop.CIRCUIT)
    reserved = one.reserve(NAME, charge(), remembers=DAY)
    assert one.send(reserved, by=called(lambda: open_)) == open_
    found = one.store.find(NAME)
    assert found is not None and found.standing is Standing.RESERVED
    assert [(run.reason, run.attempts, run.status) for run in found.runs] == [("circuit open", 0, None)]


def test_what_breaks_off_is_kept_as_unknown(one: Desk) -> None:
    """R34: Ctrl-C, as an error of the caller's own, leaves a run that may have been sent; a wrong client does not."""
    reserved = one.reserve(NAME, charge(), remembers=DAY)
    with pytest.raises(ConfigurationError):
        one.send(reserved, by=lambda client, intent, **how: send(object(), intent, **how))
    assert one.standing(NAME) == "reserved"

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.send(reserved, by=called(interrupted))
    found = one.store.find(NAME)
    assert found is not None and found.standing is Standing.UNKNOWN
    assert [(run.reason, run.ended_at is None) for run in found.runs] == [
        ("ConfigurationError", False),
        ("KeyboardInterrupt", False),
    ]


def test_cancellation_leaves_the_intent_to_be_sent_again(tmp_path: Path) -> None:
    """R34, R42: a task that is cancelled between the send and the answer leaves an intent that another resumes."""
    arrived, left = threading.Event(), threading.Event()

    def stay(exchange: Exchange) -> None:
        exchange.read()
        arrived.set()
        assert left.wait(20)

    async def cancelled(origin: str) -> None:
        store = AsyncIntentStore(tmp_path / "intents.db")
        reserved = await store.reserve(NAME, charge(origin), remembers=DAY)
        async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=NO_TLS)) as client:
            task = asyncio.create_task(store.send(client, reserved, by=asend, budgets=Budgets()))
            await asyncio.to_thread(arrived.wait, 20)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    with serving(stay, answer(201)) as server:
        asyncio.run(cancelled(server.origin))
        left.set()
        desk = Desk(tmp_path / "intents.db", clock=host_clock)
        found = desk.store.find(NAME)
        assert found is not None and (found.standing, found.runs[0].ended_at) == (Standing.UNKNOWN, None)
        assert isinstance(desk.send(found), Succeeded)
        first, second = server.hits
    assert (first.key, first.body) == (second.key, second.body)


def test_the_file_is_used_under_trio(tmp_path: Path) -> None:
    """R34: the same under trio: its threads do the file's work, and a binding's own function sends."""
    sent: list[str] = []

    async def by(client: Any, intent: Intent, **how: Any) -> Outcome[Any]:
        await trio.lowlevel.checkpoint()
        sent.append(intent.key)
        raise LookupError

    async def main() -> None:
        store = AsyncIntentStore(tmp_path / "intents.db")
        reserved = await store.reserve(NAME, charge(), remembers=DAY)
        with pytest.raises(LookupError):
            await store.send(None, reserved, by=by)
        (found,) = await store.listed()
        assert found.standing is Standing.UNKNOWN and sent == [reserved.intent.key]
        await store.settle(NAME, done=True, why="looked up")
        assert await store.purge() == 0
        await store.forget(NAME)
        assert await store.find(NAME) is None

    trio.run(main)


def test_an_intent_that_was_forgotten_meanwhile_is_not_sent(one: Desk) -> None:
    """I8: whoever holds an intent that was forgotten, and perhaps reserved anew, sends nothing under the old key."""
    reserved = one.reserve(NAME, charge(), remembers=DAY)
    one.store.forget(NAME)
    for _ in range(2):
        with pytest.raises(IntentChangedError, match="forgotten"):
            one.send(reserved)
        one.reserve(NAME, charge(), remembers=DAY)
    with pytest.raises(ConfigurationError, match="no intent named"):
        one.store.forget("nobody")


def test_only_what_is_over_is_purged(one: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """R34: of many only those go that are settled and forgotten by their server; what is unknown stays."""
    with serving(*[answer(201)] * 3, reset_after_commit) as server:
        for number in range(3):
            one.send(one.reserve(f"done {number}", charge(server.origin), remembers=(number + 1) * DAY))
        one.send(one.reserve("lost", charge(server.origin), remembers=DAY))
    store = one.store
    monkeypatch.setattr("twicesafe.client.intent_store._PAGE", 3)
    for number in range(7):
        reserved = store.reserve(f"more {number}", charge(), remembers=DAY)
        store.settle(reserved.name, done=number % 2 == 0, why="a test")
    one.reserve("never sent", charge(), remembers=DAY)
    with pytest.raises(ConfigurationError, match="nobody knows"):
        store.forget("lost")
    one.clock.advance(2 * DAY)
    assert store.purge(beyond=DAY) == 8
    assert [found.name for found in store.listed(settled=True)] == ["done 1", "done 2", "lost", "never sent"]
    store.forget("lost", even_unknown=True)
    assert [found.name for found in store.listed()] == ["never sent"]
