"""Every switch of the demo, and their combinations, in a real browser: first what was charged, then what is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.demo.service import Demo
from tests.demo.shop import Shop

pytestmark = pytest.mark.xdist_group("demo")

CART = 84_00
EDITED = 108_00


@pytest.fixture
def shop(browser: Browser, service: Demo) -> Iterator[Shop]:
    """A visit, during which the page may not complain, nor ask anybody else for anything."""
    with Shop(browser, service) as visit:
        yield visit
        assert visit.complaints == []
        assert visit.strangers == []
        for lane in ("naive", "safe"):
            assert len({key for where, key, _ in visit.sent if where == lane}) <= 1, "one key for one cart"


def test_a_calm_day(shop: Shop) -> None:
    """Demo: without a fault both endpoints charge once, and the page says that nothing tells them apart."""
    shop.pay()
    assert shop.effects() == {"naive": [CART], "safe": [CART]}
    assert shop.results("naive") == shop.results("safe") == ["201 Created"]
    assert shop.count("naive") == shop.count("safe") == "1 charge"
    assert shop.shown_ledger("naive") == shop.shown_ledger("safe") == ["€84.00"]
    assert shop.story().startswith("Nothing went wrong")


def test_the_answer_is_lost(shop: Shop) -> None:
    """R42, A7: a connection reset after the charge is charged again in the naive lane, and replayed in the safe one."""
    shop.throw("lose").pay()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert shop.results("naive") == ["No answer: lost on the way", "201 Created"]
    assert shop.results("safe") == ["No answer: lost on the way", "201 Created, replayed"]
    assert (shop.count("naive"), shop.count("safe")) == ("2 charges", "1 charge")
    assert shop.shown_ledger("naive") == ["€84.00", "€84.00"]
    assert shop.story() == (
        "The answer was lost after the charge: the naive endpoint charged twice, €84.00 too much; "
        "the safe one charged once and replayed its first answer."
    )


def test_the_retry_sends_the_same_key_and_bytes(shop: Shop) -> None:
    """I8: both lanes get the same key and the same body, on every attempt."""
    shop.throw("lose").pay()
    assert shop.effects()["safe"] == [CART]
    assert len(shop.sent) == 4
    assert {(key, body) for _, key, body in shop.sent} == {(shop.key(), shop.sent[0][2])}


def test_the_provider_is_slow(shop: Shop) -> None:
    """I3, A7: a retry that arrives while the first attempt is at work charges again in the naive lane only."""
    shop.throw("slow").pay()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert shop.results("naive") == ["No answer: gave up waiting", "201 Created"]
    assert shop.results("safe")[0] == "No answer: gave up waiting"
    assert shop.results("safe")[-1] == "201 Created, replayed"
    # The charge that nobody waited for any more is shown, and where it came from.
    assert "all the same" in shop.attempts("naive")[0].note
    assert shop.story().startswith(
        "The provider took longer than the page would wait: the naive endpoint charged twice"
    )


def test_the_server_is_killed(shop: Shop) -> None:
    """R42, A7: SIGKILL between charge and answer; the restarted server replays what was committed with the charge."""
    pids = {lane: shop.page.locator(f"#{lane} .server").inner_text() for lane in ("naive", "safe")}
    shop.throw("kill").pay()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    for lane in ("naive", "safe"):
        assert shop.results(lane)[0] == "No answer: server killed"
        after = shop.page.locator(f"#{lane} .server").inner_text()
        assert after.startswith("server ") and after != pids[lane]
    assert shop.results("naive")[-1] == "201 Created"
    assert shop.results("safe")[-1] == "201 Created, replayed"
    assert shop.story().startswith("The server was killed between the charge and the answer")


def test_two_clicks(shop: Shop) -> None:
    """R10, C1: the second click, made while the first is running, is another charge for the naive endpoint only. The
    safe one says so, and gives it the first one's answer when it is asked again."""
    shop.throw("double").pay()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert [attempt.label for attempt in shop.attempts("naive")] == ["click 1", "click 2"]
    results = sorted(shop.results("safe"))
    assert results[:2] == ["201 Created", "201 Created, replayed"]
    assert set(results[2:]) <= {"409 In progress"}
    assert shop.story().startswith("The customer clicked twice: the naive endpoint charged twice")


def test_two_clicks_by_hand(shop: Shop) -> None:
    """Demo: a real double click on the button does what the switch does."""
    shop.page.locator("#pay").dblclick()
    shop.wait()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert shop.story().startswith("The customer clicked twice")


def test_the_cart_is_edited(shop: Shop) -> None:
    """I4: other contents under the same key are charged by the naive endpoint, and refused with 422 by the safe one."""
    shop.throw("edit").pay()
    assert shop.effects() == {"naive": [CART, EDITED], "safe": [CART]}
    assert shop.results("naive") == ["201 Created", "201 Created"]
    assert shop.results("safe") == ["201 Created", "422 Key already used"]
    assert shop.page.locator("#amount").inner_text() == "€108.00"
    assert shop.story() == (
        "The cart was edited under the same key: the naive endpoint charged twice, €108.00 too much; "
        "the safe one charged once and refused the edited cart with 422, because a key names one intent."
    )


@pytest.mark.parametrize(
    ("switches", "naive"),
    [
        (("lose", "double"), [[CART] * 3]),
        (("lose", "edit"), [[CART, CART, EDITED]]),
        (("lose", "kill"), [[CART] * 3]),
        (("slow", "kill"), [[CART] * 2]),
        # The second click may have charged, too, before the server is dead.
        (("double", "kill"), [[CART] * 3, [CART] * 4]),
        (("slow", "lose"), [[CART] * 3]),
        (("slow", "double"), [[CART] * 3]),
        (("kill", "edit"), [[CART, CART, EDITED]]),
    ],
)
def test_two_switches(shop: Shop, switches: tuple[str, str], naive: list[list[int]]) -> None:
    """R42: two faults at once cost the naive endpoint what the story says, and the safe one nothing."""
    shop.throw(*switches).pay()
    effects = shop.effects()
    assert effects["safe"] == [CART]
    assert effects["naive"] in naive
    assert shop.count("safe") == "1 charge"
    assert shop.count("naive") == f"{len(effects['naive'])} charges"
    assert "the safe one charged once" in shop.story()


def test_everything_at_once(shop: Shop) -> None:
    """R42: all switches on; the safe lane still charges once."""
    shop.throw("lose", "slow", "kill", "double", "edit").pay()
    effects = shop.effects()
    assert effects["safe"] == [CART]
    assert len(effects["naive"]) >= 4
    assert "the safe one charged once" in shop.story()
    assert shop.results("safe")[-1] == "422 Key already used"


def test_paying_again_with_the_same_key(shop: Shop) -> None:
    """R11: a settled cart that is paid again under its key is charged again by the naive endpoint only."""
    shop.pay()
    shop.page.get_by_role("button", name="Pay again, same key").click()
    shop.wait()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert shop.results("safe") == ["201 Created, replayed"]
    assert shop.story().startswith("The same cart was paid again")


def test_a_reload_in_the_middle_keeps_the_key(shop: Shop) -> None:
    """R34: a page that is reloaded before its answer came asks again with the key and the bytes that it kept."""
    key = shop.key()
    shop.throw("slow")
    shop.page.locator("#pay").click()
    shop.page.locator("#safe .attempt").first.wait_for()
    shop.page.reload()
    assert shop.key() == key
    assert "The key and the bytes are still here" in shop.story()
    assert shop.page.locator("#more").is_disabled(), "a changed cart would be another intent"
    shop.page.get_by_role("button", name="Ask again").click()
    shop.wait()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert shop.results("safe")[-1] == "201 Created, replayed"
    assert shop.story().startswith("The page was reloaded before it had an answer")
    assert len({body for _, _, body in shop.sent}) == 1


def test_a_new_cart_is_a_new_intent(shop: Shop) -> None:
    """R1: two carts with the same contents have two keys and are two charges."""
    with Shop(shop.page.context.browser, shop.service) as other:  # type: ignore[arg-type]
        first = other.key()
        other.pay()
        other.page.get_by_role("button", name="New cart").click()
        second = other.key()
        other.pay()
        assert other.effects() == {"naive": [CART, CART], "safe": [CART, CART]}
        assert first != second
        assert other.count("safe") == "1 charge", "the cart on the table has one"
        assert other.page.locator("#safe .session").inner_text() == "2 charges for 2 carts so far"


def test_a_changed_cart_is_a_new_intent(shop: Shop) -> None:
    """R33: changing the quantity before paying makes a new key with the new cart."""
    key = shop.key()
    shop.page.locator("#more").click()
    changed = shop.key()
    shop.pay()
    assert changed != key
    assert shop.effects() == {"naive": [EDITED], "safe": [EDITED]}


def test_by_keyboard_alone(shop: Shop) -> None:
    """Demo: every control is reached and used without a mouse, in the order in which it is read."""
    press = shop.page.keyboard.press

    def focused() -> str:
        return str(shop.page.evaluate("() => document.activeElement.value || document.activeElement.id"))

    reached = []
    for _ in range(8):
        press("Tab")
        reached.append(focused())
    assert reached == ["fewer", "more", "pay", "lose", "slow", "kill", "double", "edit"]
    for _ in range(4):
        press("Shift+Tab")
    assert focused() == "lose"
    press("Space")
    assert shop.page.locator("input[value=lose]").is_checked()
    press("Shift+Tab")
    press("Enter")
    shop.wait()
    assert shop.effects() == {"naive": [CART, CART], "safe": [CART]}
    assert focused() == "pay", "the next step is where the last one was"
    press("Enter")
    assert shop.page.locator("#safe .attempt").count() == 0, "a new cart"
