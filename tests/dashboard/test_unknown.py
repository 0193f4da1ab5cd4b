"""What the dashboard is for: an unknown outcome is seen, asked about, settled, and all of it is written down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.place import KEY, PATIENCE, Place, place
from tests.dashboard.visitor import LIVE, Caller, visit
from twicesafe.core.record import StoredResponse
from twicesafe.dashboard import awaiting
from twicesafe.reconcile import Answered, Done, NotDone, Unknown

expect.set_options(timeout=PATIENCE * 1000)


def trail(shop: Place) -> list[tuple[str, str, str, str]]:
    """Who did what, why, and what came of it, oldest first."""
    (record,) = shop.asked[-1:]
    return [(one.who, one.action, one.why, one.outcome) for one in shop.store.audits(record.digest)]


def to_the_record(page: Page) -> None:
    page.locator("#open").get_by_role("link", name="create_charge").click()
    page.wait_for_url("**/records/*")


def say(page: Page, why: str, button: str) -> None:
    form = page.locator("details[open]")
    form.get_by_label("Why").fill(why)
    form.get_by_role("button", name=button).click()


def test_an_outcome_is_seen_asked_settled_and_audited(browser: Browser, shop: Place) -> None:
    """R26, I6: it appears without a reload, its reconciler is asked, a person settles it, and the retry gets that."""
    with visit(browser, shop) as page:
        page.locator(LIVE).wait_for()
        page.evaluate("window.loaded = 'once'")
        shop.unknown()
        expect(page.locator(".tile.bad")).to_contain_text("unknown")
        assert page.evaluate("window.loaded") == "once"
        to_the_record(page)
        say(page, "a customer called", "Ask")
        expect(page.get_by_role("status")).to_contain_text("cannot tell yet")
        page.get_by_text("It was done").click()
        page.get_by_label("Status").fill("201")
        page.get_by_label("Body").fill('{"charge": "ch_1"}')
        say(page, "the provider shows ch_1", "Settle as done")
        expect(page.get_by_role("status")).to_contain_text("Settled")
        assert shop.charge() == (201, b'{"charge": "ch_1"}')
        assert shop.charges == ['{"amount":100}']
        assert [one.operation for one in shop.asked] == ["create_charge"]
        assert trail(shop) == [
            ("ann", "ask the reconciler", "a customer called", "unclear"),
            ("ann", "settle as done with 201", "the provider shows ch_1", "done"),
        ]
        life = page.locator("#life")
        expect(life).to_contain_text("Replayed")
        for said in ("Claimed", "ann: ask the reconciler", "ann: settle as done with 201", "Completed"):
            expect(life).to_contain_text(said)
        shown = page.content()
        assert KEY not in shown and "ch_1" not in shown.replace("the provider shows ch_1", "")
        assert KEY[-4:] in shown
        page.get_by_role("link", name="Overview").click()
        expect(page.locator("#open")).to_contain_text("No outcome is unknown")


def test_what_the_reconciler_knows_settles_it(browser: Browser, shop: Place) -> None:
    """R26: asked from the page, a reconciler that knows ends it: done with its answer, or not done and free again."""
    with visit(browser, shop) as page:
        shop.unknown()
        shop.says = Done(StoredResponse(201, (), b"found"))
        page.reload()
        to_the_record(page)
        say(page, "asked", "Ask")
        expect(page.get_by_role("status")).to_contain_text("it was done")
        assert shop.charge() == (201, b"found")
        assert trail(shop) == [("ann", "ask the reconciler", "asked", "done")]
        other = "a-second-key-that-is-long"
        shop.unknown(other)
        shop.says = NotDone()
        page.goto(shop.url)
        to_the_record(page)
        say(page, "asked", "Ask")
        expect(page.get_by_role("status")).to_contain_text("it was not done")
        assert shop.charge(other)[0] == 201
        assert len(shop.charges) == 3


def test_a_reconciler_may_be_asynchronous_and_may_fail(tmp_path: Path) -> None:
    """R26, I6: one that is awaited runs in the server's loop; one that raises leaves it unknown, and says so."""
    loops = []

    async def find(unknown: Unknown) -> Answered:
        loops.append(asyncio.get_running_loop())
        if len(loops) == 1:
            raise ConnectionError("the provider is away")
        return NotDone()

    with place(tmp_path, reconcilers={"create_charge": find}) as shop:
        shop.unknown()
        caller = Caller(shop.url)
        caller.sign_in()
        (record,) = shop.store.outstanding().records
        address = f"/records/{record.digest.hex()}"
        came = []
        for why in ("first", "second"):
            caller.get(address)
            came.append(caller.post(f"{address}/ask", seen=caller.seen(), why=why)[1].partition("=")[2])
        assert shop.charge()[0] == 201
        assert came == ["asked-failed", "asked-not-done"]
        assert [(one.why, one.outcome) for one in shop.store.audits(record.digest)] == [
            ("first", "failed"),
            ("second", "not done"),
        ]


def test_a_reconciler_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26, I6: one that is awaited and never answers is cancelled, its thread is free again, and the page says so."""
    monkeypatch.setattr(awaiting, "ANSWERS_WITHIN", 0.05)
    ended = Event()

    async def find(unknown: Unknown) -> Answered:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return NotDone()

    with place(tmp_path, reconcilers={"create_charge": find}) as shop:
        shop.unknown()
        caller = Caller(shop.url)
        caller.sign_in()
        (record,) = shop.store.outstanding().records
        address = f"/records/{record.digest.hex()}"
        caller.get(address)
        came = caller.post(f"{address}/ask", seen=caller.seen(), why="called")[1]
        assert ended.wait(PATIENCE)
        assert len(shop.store.outstanding().records) == 1
        assert "no answer in time" in caller.get(came.removeprefix("/dashboard"))[2]
        assert [one.outcome for one in shop.store.audits(record.digest)] == ["no answer in time"]


def test_a_released_key_is_free_and_its_trail_stays(browser: Browser, shop: Place) -> None:
    """R26: released as not done, the next attempt runs; what was done about it is shown though the record is gone."""
    with visit(browser, shop) as page:
        shop.unknown()
        page.reload()
        to_the_record(page)
        page.get_by_text("It was not done").click()
        say(page, "provider never saw it", "Release")
        expect(page.locator("#life")).to_contain_text("provider never saw it")
        expect(page.locator("#standing")).to_contain_text("no record")
        assert shop.charge()[0] == 201
        assert len(shop.charges) == 2
        expect(page.locator("#standing")).to_contain_text("completed")


def test_a_form_that_is_being_filled_in_is_left_alone(browser: Browser, shop: Place) -> None:
    """R26: what somebody has typed is not drawn over while the page lives, and goes once the outcome is settled."""
    with visit(browser, shop) as page:
        shop.unknown()
        page.reload()
        to_the_record(page)
        page.locator(LIVE).wait_for()
        page.locator("details[open]").get_by_label("Why").fill("half a sent")
        shop.charge()
        expect(page.locator("#life")).to_contain_text("Told that it is unknown")
        expect(page.locator("details[open]").get_by_label("Why")).to_have_value("half a sent")
        record = shop.store.outstanding().records[0]
        shop.store.settle(record.ownership, StoredResponse(200, (), b""), 10**9, 10**9)
        expect(page.locator("#standing")).to_contain_text("completed")
        expect(page.locator("form[action$='/settle']")).to_have_count(0)
