"""Limits on new keys, over both kinds of shell and beside what they must not touch."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.shells.blocking_rig import BlockingRig, facts, kind, sent
from tests.shells.probe import Probe, post
from tests.shells.rig import Rig
from tests.shells.test_lookup import OverAsgi, OverWsgi
from twicesafe import PUBLIC, Effects, Limits, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore

TWO = Policy(limits=Limits(new_keys=2))


def key(number: int) -> str:
    return f"k-{number:016}"


def who(scope: dict[str, Any]) -> str:
    return str(dict(scope["headers"])[b"x-user"], "ascii")


@pytest.fixture(params=[OverAsgi, OverWsgi])
def over(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_over_the_limit_nothing_runs_and_nothing_is_kept(over: Any) -> None:
    """R15, R21: the third new key is refused with a document that says that it may be asked again; no trace is left."""
    rig = over(TWO)
    replies = [rig.work(key=key(number)) for number in range(3)]
    assert rig.effects() == 2
    assert [reply.status for reply in replies] == [201, 201, 429]
    refused = replies[2]
    assert (refused.kind, refused.problem["retryable"], refused.problem["safe_new_key"]) == (
        "too-many-keys",
        True,
        False,
    )
    assert 1 <= int(refused.header(b"retry-after") or 0) <= 30
    assert rig.ask(key=key(2)).kind == "key-unknown"


def test_over_the_limit_known_keys_get_their_answers(over: Any) -> None:
    """R11: whoever asks again for what is remembered gets it, and another caller has a limit of their own."""
    rig = over(TWO)
    for number in range(5):
        rig.work(key=key(number))
    again = [rig.work(key=key(number)) for number in (0, 1, 0, 1)]
    assert rig.effects() == 2
    assert all(reply.status == 201 and reply.replayed for reply in again)
    assert rig.work("bob", key=key(0)).status == 201 and rig.effects() == 3


def test_another_request_under_a_known_key_is_a_mismatch(over: Any) -> None:
    """I4: the limit does not hide that a key was used for something else."""
    rig = over(TWO)
    for number in range(3):
        rig.work(key=key(number))
    assert rig.work(key=key(0), query=b"other=1").status == 422
    assert rig.effects() == 2


def test_closing_a_key_is_a_new_key(over: Any) -> None:
    """R20: closing remembers a key as well, so it is limited as any first use; a look is not."""
    rig = over(TWO)
    told = [rig.ask(method="DELETE", key=key(number)).kind for number in range(3)]
    assert told == ["key-closed", "key-closed", "too-many-keys"]
    assert rig.ask(key=key(7)).kind == "key-unknown"


def test_a_refused_key_runs_once_there_is_room() -> None:
    """R15: the same request under the same key, asked again after Retry-After, is done, once."""
    rig = Rig(TWO)
    for number in range(2):
        asyncio.run(post(rig.safe, key=key(number)))
    refused = asyncio.run(post(rig.safe, key=key(2)))
    assert refused.status == 429 and rig.effects == 2
    rig.pass_time(timedelta(seconds=int(refused.header(b"retry-after") or 0)))
    assert [asyncio.run(post(rig.safe, key=key(2))).status for _ in range(2)] == [201, 201]
    assert rig.effects == 3 and "keys.refused" in rig.told


def test_a_crowd_at_once_is_no_way_around() -> None:
    """R10: of a hundred requests under way together as many run as there may, before any of them is recorded."""

    async def crowd() -> tuple[int, list[int | None]]:
        go = asyncio.Event()

        async def gone() -> None:
            await go.wait()

        rig = Rig(Policy(limits=Limits(new_keys=5)), Probe(before=gone))
        tasks = [asyncio.ensure_future(post(rig.safe, key=key(number))) for number in range(100)]
        for _ in range(1000):
            await asyncio.sleep(0)
            if sum(task.done() for task in tasks) == 95:
                break
        go.set()
        statuses = [reply.status for reply in await asyncio.gather(*tasks)]
        return rig.effects, statuses

    effects, statuses = asyncio.run(crowd())
    assert effects == 5
    assert (statuses.count(201), statuses.count(429)) == (5, 95)


class Cut(AsyncMemoryStore):
    """A store whose claims end as no store's may, as long as `ends` says so."""

    ends: BaseException | None = None

    async def claim(self, claim: Claim) -> Claimed | Existing:
        if self.ends is not None:
            raise self.ends
        return await super().claim(claim)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RuntimeError("no store's error")], ids=repr)
def test_a_claim_that_is_cut_off_gives_back_its_place(error: BaseException) -> None:
    """R12, R20: at once, and not when the garbage collector comes by: whoever comes next finds room."""
    store = Cut()
    safe = IdempotencyMiddleware(Probe(), store, scope=PUBLIC, policy=TWO)
    gc.disable()
    try:
        store.ends = error
        for number in range(5):
            with pytest.raises(type(error)):
                asyncio.run(post(safe, key=key(number)))
        store.ends = None
        assert asyncio.run(post(safe, key=key(9))).status == 201
    finally:
        gc.enable()


def test_threads_do_not_get_around_it() -> None:
    """R10: sixteen threads with two hundred keys run as many as there may."""
    rig = BlockingRig(Policy(limits=Limits(new_keys=7)))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: rig.ask(key=key(number)), range(200)))
    assert len(rig.ledger) == 7
    assert [answer.status for answer in answers].count(429) == 193


def test_what_runs_is_left_alone() -> None:
    """R11: an attempt that is under way ends as it would have, and its duplicate is told that it is in progress."""
    rig = BlockingRig(Policy(limits=Limits(new_keys=1)))
    first = rig.request(key(0))
    assert first.enter(PUBLIC, facts(b"x")) is None
    assert kind(rig.ask(key=key(1))) == "too-many-keys"
    assert kind(rig.ask(key=key(0))) == "in-progress"
    assert sent(first.answered(201, (), [b"done"])) == b"done"
    assert sent(rig.ask(key=key(0))) == b"done" and not rig.ledger


def test_all_callers_together() -> None:
    """R20: what all callers may use together is kept to, whoever they are, and newcomers get half of it."""
    rig = Rig(Policy(limits=Limits(new_keys=5, new_keys_in_all=40)), scope=who)
    statuses = [
        asyncio.run(post(rig.safe, key=key(number), headers=[(b"x-user", b"u%d" % number)])).status
        for number in range(100)
    ]
    assert rig.effects == statuses.count(201) == 20


def test_in_the_transaction_of_the_effect(tmp_path: Path) -> None:
    """R23: the transactional way is limited as the leased one, and a refused request has begun no transaction."""

    async def run() -> None:
        store = AsyncSqliteStore(tmp_path / "records.db")
        await store.apply_schema()
        rig = Rig(Policy(effects=Effects.TRANSACTIONAL, limits=Limits(new_keys=2)), store=store)
        statuses = [(await post(rig.safe, key=key(number))).status for number in (0, 1, 2, 3, 0, 1)]
        assert rig.effects == 2
        assert statuses == [201, 201, 429, 429, 201, 201]
        await store.aclose()

    asyncio.run(run())


def test_operations_share_equal_limits() -> None:
    """R20: one budget for all operations of a shell under equal limits, another for others."""
    rig = BlockingRig()
    shared = rig.shared
    assert shared.admission(Limits(new_keys=3)) is shared.admission(Limits(new_keys=3))
    assert shared.admission(Limits(new_keys=3)) is not shared.admission(Limits(new_keys=4))


def test_without_limits_nothing_is_counted() -> None:
    """R20: by default no caller is remembered and no key refused."""
    rig = Rig()
    assert [asyncio.run(post(rig.safe, key=key(number))).status for number in range(500)] == [201] * 500
    assert not rig.safe._shared.admissions


@pytest.mark.parametrize("chunks", [None, (b"one", b"two")], ids=["whole", "stream"])
@pytest.mark.parametrize("lines", [[(b"x-echo", b"e" * 40)] * 30, [(b"x-echo", b"e" * 1200)]], ids=["many", "long"])
def test_an_answer_with_too_many_header_lines(lines: Any, chunks: Any) -> None:
    """R18: its first caller gets all of it; retries are told that it is done and not kept, and where it is."""
    headers = [(b"location", b"/charges/1"), (b"content-type", b"text/plain"), *lines]
    rig = Rig(Policy(header_limit=1024), Probe(headers=headers, chunks=chunks, body=b"onetwo"))
    first, again = (asyncio.run(post(rig.safe)) for _ in range(2))
    assert rig.effects == 1
    sent_lines = [line for line in first.messages[0]["headers"] if line[0] == b"x-echo"]
    assert (first.status, first.body, sent_lines) == (201, b"onetwo", lines)
    assert (again.status, again.kind, again.header(b"location")) == (201, "result-not-kept", b"/charges/1")
    assert again.header(b"x-echo") is None


def test_pointers_that_are_too_long_are_not_kept_either() -> None:
    """R18: what points to a result counts as well."""
    rig = Rig(Policy(header_limit=100), Probe(headers=[(b"location", b"/" * 200)]))
    asyncio.run(post(rig.safe))
    again = asyncio.run(post(rig.safe))
    assert (rig.effects, again.kind, again.header(b"location")) == (1, "result-not-kept", None)


def test_over_the_limit_by_blocking_calls() -> None:
    """R18: the same where calls block."""
    rig = BlockingRig(Policy(header_limit=100))
    lines = ((b"Content-Type", b"text/plain"), (b"Content-Length", b"4"), (b"X-Echo", b"e" * 100))
    first = rig.ask((b"done",), headers=lines)
    assert (sent(first), len(rig.ledger)) == (b"done", 1)
    assert kind(rig.ask()) == "result-not-kept" and len(rig.ledger) == 1
