"""Unknown outcomes: whoever knows is asked, and the record is settled once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.killing import killed
from tests.functions.shop import K, Shop
from tests.functions.ways import Ledger
from twicesafe.core.policy import Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.turns import pause_before
from twicesafe.errors import ConfigurationError, DefinitionChangedError, OutcomeUnknownError
from twicesafe.once import AsyncOnce, Once, current
from twicesafe.reconcile import AsyncReconcilers, Done, NotDone, Reconcilers, Unclear, Unknown
from twicesafe.stores.contract import Outstanding
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.testing import ManualClock


class Rig:
    """A function whose outcome is unknown, and somebody who may know."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.events: list[Any] = []
        self.once = Once(self.store, scope="jobs", policy=Policy(unknown_on_error=True), observer=lambda event: None)
        self.ledger = Ledger()
        self.sent: list[str] = []
        self.reconcilers = Reconcilers(self.store, observer=self.events.append)
        self.asked: list[Unknown] = []
        self.answer: Any = Unclear()
        self.fails = True

        def charge(customer: str) -> int:
            self.ledger.charge(customer)
            self.sent.append(current().derived_key("charge"))
            if self.fails:
                raise TimeoutError
            return len(self.ledger.rows)

        self.charge = self.once.operation(key=lambda customer: K, name="charge")(charge)
        self.reconcilers.of("charge")(self.find)
        with pytest.raises(TimeoutError):
            self.charge("ann")
        self.fails = False

    def find(self, unknown: Unknown) -> Any:
        self.asked.append(unknown)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_what_was_done_is_settled_with_its_result() -> None:
    """R26: every retry gets the result that was found out, and nothing runs again."""
    rig = Rig()
    rig.answer = Done(7)
    assert rig.reconcilers.run_once()[:2] == (1, 0)
    assert rig.charge("ann") == 7
    assert len(rig.ledger.rows) == 1
    assert rig.reconcilers.run_once()[:4] == (0, 0, 0, 0)
    assert len(rig.asked) == 1


def test_what_was_not_done_is_released() -> None:
    """R26: the key is free, and the next attempt runs."""
    rig = Rig()
    rig.answer = NotDone()
    assert rig.reconcilers.run_once()[:2] == (0, 1)
    assert rig.charge("ann") == 2


def test_what_nobody_knows_yet_is_asked_about_later_and_stays_unknown() -> None:
    """R26, I6: with growing pauses; until then every retry is told that it is unknown."""
    rig = Rig()
    for times in range(1, 6):
        assert rig.reconcilers.run_once().unclear == 1
        with pytest.raises(OutcomeUnknownError):
            rig.charge("ann")
        assert rig.reconcilers.run_once().unclear == 0, "not yet"
        rig.clock.advance(timedelta(microseconds=pause_before(times)))
    assert len(rig.asked) == 5
    assert len(rig.ledger.rows) == 1


def test_a_reconciler_that_fails_settles_nothing() -> None:
    """R26, I6: its exception is told, and the question is asked again."""
    rig = Rig()
    for wrong in (ConnectionError("provider away"), "done"):
        rig.answer = wrong
        assert rig.reconcilers.run_once().failed == 1
        rig.clock.advance(timedelta(hours=1))
    assert [event.name for event in rig.events] == ["reconcile.failed"] * 2
    with pytest.raises(OutcomeUnknownError):
        rig.charge("ann")


def test_whoever_asks_knows_the_downstream_key() -> None:
    """R25: the key that went with the call is the one to ask about."""
    rig = Rig()
    rig.reconcilers.run_once()
    (unknown,) = rig.asked
    assert (unknown.operation, unknown.scope, unknown.call) == ("charge", "jobs", None)
    assert [unknown.derived_key("charge")] == rig.sent
    assert K not in repr(unknown)


def test_an_answer_of_an_http_operation_is_given_whole() -> None:
    """R26: status, header lines and body are what a retry is sent."""
    rig = Rig()
    response = StoredResponse(201, ((b"content-type", b"application/json"),), b'{"id": 1}')
    rig.answer = Done(response)
    rig.reconcilers.run_once()
    record = rig.store.read(rig.asked[0].digest).record
    assert record is not None
    assert record.response == response


def test_a_settlement_and_an_owner_never_both_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """I3, I5: whoever is second changes nothing."""
    rig = Rig()
    rig.answer = Done(7)
    (found,) = rig.store.outstanding().records
    rig.store.complete(found.ownership, StoredResponse(200, (), b"8"), 10**9, 10**9)
    monkeypatch.setattr(rig.store, "outstanding", lambda *what: _of(found, rig))
    assert rig.reconcilers.run_once()[:2] == (0, 0)
    assert rig.charge("ann") == 8


def test_the_next_life_of_a_key_has_its_own_turn_and_its_own_settlement(monkeypatch: pytest.MonkeyPatch) -> None:
    """I3, R26: settled as not done and claimed anew, a key counts from the same epoch; what was found out about its
    earlier life settles nothing, and its earlier life's pause is not its own."""
    rig = Rig()
    assert rig.reconcilers.run_once().unclear == 1
    (found,) = rig.store.outstanding().records
    assert rig.store.settle(found.ownership, None, 0, 0)
    rig.fails = True
    with pytest.raises(TimeoutError):
        rig.charge("ann")
    assert len(rig.ledger.rows) == 2
    assert rig.reconcilers.run_once().unclear == 1, "asked about at once"
    rig.clock.advance(timedelta(hours=1))
    rig.answer = NotDone()
    with monkeypatch.context() as late:
        late.setattr(rig.store, "outstanding", lambda *what: _of(found, rig))
        assert rig.reconcilers.run_once()[:2] == (0, 0)
    with pytest.raises(OutcomeUnknownError):
        rig.charge("ann")
    assert len(rig.ledger.rows) == 2


def _of(record: Any, rig: Rig) -> Any:
    return Outstanding((record,), rig.store.now(), None)


# --- operations of several steps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False])
def test_an_open_call_is_settled_and_its_operation_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    """R24, R26: held past the window; once somebody knows, a worker ends it, charged once. What was done it goes on
    behind at once, however often it was tried; what is sent again has its turn."""
    killed(shop, monkeypatch, 6 if done else 5, performed=True)
    worker = shop.another()
    buy = shop.operation(worker)
    shop.clock.advance(timedelta(seconds=1))
    assert worker.resume().held == 1
    asked: list[Unknown] = []
    reconcilers = Reconcilers(shop.store, observer=shop.events.append)

    @reconcilers.of("buy")
    def find(unknown: Unknown) -> Any:
        asked.append(unknown)
        charged = unknown.derived_key("charge") in shop.provider.charges
        return Done("found out") if charged else NotDone()

    assert reconcilers.run_once()[:2] == ((1, 0) if done else (0, 1))
    assert asked[0].call == "charge"
    if not done:
        assert worker.resume().done == 0
        shop.clock.advance(timedelta(seconds=4))
    assert worker.resume().done == 1
    assert buy(K, 100) == ("found out ch_2" if done else "ch_1 ch_2")
    assert len(shop.provider.charges) == len(shop.provider.asked) == 2


def test_an_operation_that_is_held_for_another_reason_stays_held(shop: Shop) -> None:
    """R24, R26: a changed definition has no open call, so no reconciler can settle it."""

    def steps(once: Once, name: str) -> Any:
        @once.operation(key=lambda: K, effects="resumable", name="op")
        def op() -> None:
            current().phase(name, lambda connection: None)
            raise RuntimeError

        return op

    with pytest.raises(RuntimeError):
        steps(shop.another(), "a")()
    shop.clock.advance(timedelta(seconds=1))
    with pytest.raises(DefinitionChangedError):
        steps(shop.another(), "b")()
    reconcilers = Reconcilers(shop.store, observer=shop.events.append)
    reconcilers.of("op")(lambda unknown: Done(None))
    assert reconcilers.run_once().failed == 1
    assert shop.store.outstanding().records[0].state == "unknown"


# --- asyncio, and misuse ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_asynchronous_reconcilers(tmp_path: Any, kind: str) -> None:
    """R26: the same, awaited."""

    async def trial() -> None:
        store: Any = AsyncMemoryStore() if kind == "memory" else AsyncSqliteStore(tmp_path / "r.db")
        await store.apply_schema()
        once = AsyncOnce(store, scope="s", policy=Policy(unknown_on_error=True), observer=lambda event: None)

        async def fails() -> int:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            await once(K, fails)
        reconcilers = AsyncReconcilers(store, observer=lambda event: None)

        @reconcilers.of(f"{__name__}.{fails.__qualname__}")
        async def find(unknown: Unknown) -> Any:
            return Done(9)

        assert (await reconcilers.run_once()).done == 1
        assert await once(K, fails) == 9
        await store.aclose()

    asyncio.run(trial())


def test_misuse_is_refused_where_it_is_made() -> None:
    """R26: two reconcilers for one operation, or a store of the other kind."""
    reconcilers = Reconcilers(MemoryStore())
    reconcilers.of("a")(lambda unknown: Unclear())
    with pytest.raises(ConfigurationError, match="already"):
        reconcilers.of("a")(lambda unknown: Unclear())
    with pytest.raises(ConfigurationError, match="AsyncReconcilers"):
        Reconcilers(AsyncMemoryStore())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="for Reconcilers"):
        AsyncReconcilers(MemoryStore())  # type: ignore[arg-type]
