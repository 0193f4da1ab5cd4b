"""The JavaScript client in a real browser, in front of a real server that twicesafe guards."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.js.dying import dying
from tests.js.shop import Act, Shop, answer, cut, drip, shop

SEND = """async ([url, settings, options]) => {
  const { Intent, Budgets, send } = await import("/twicesafe.js");
  const intent = Intent.create("POST", url, { json: { amount: 100 }, ...options });
  const quick = { firstDelay: 1, longestDelay: 5, ...settings.policy };
  const outcome = await send(intent, { budgets: new Budgets(), ...settings, policy: quick });
  const { kind, stop, sent, replayed, attempts, response } = outcome;
  const reasons = attempts.map(({ reason }) => reason);
  const body = response && (await response.text().catch(() => null));
  return { kind, stop, sent, replayed, reasons, key: intent.key, body };
}"""

CART = """async ([storage, json, name]) => {
  const { IntentStore, IntentConflictError } = await import("/twicesafe.js");
  const store = new IntentStore(storage ? window[storage] : undefined);
  const kept = store.kept("cart")?.key ?? null;
  const policy = { firstDelay: 1, longestDelay: 5, attempts: 1 };
  try {
    if (json !== null) store.reserve("cart", "POST", "/charges", { json });
    const outcome = await Promise.all([store.send("cart", { policy }), store.send("cart", { policy })]);
    return { kept, durable: store.durable, kind: outcome[0].kind, replayed: outcome[0].replayed };
  } catch (error) {
    return { kept, error: error.name };
  }
}"""


def sent(page: Page, url: str, policy: dict[str, Any] | None = None, **options: object) -> dict[str, Any]:
    """One operation, and what came of it."""
    found: dict[str, Any] = page.evaluate(SEND, [url, {"policy": policy or {}}, options])
    return found


def paid(page: Page, json: object = 1, storage: str | None = None) -> dict[str, Any]:
    """One click on a cart's button; on two of them, to be exact."""
    found: dict[str, Any] = page.evaluate(CART, [storage, json, "cart"])
    return found


def lose_the_answers(page: Page, path: str, times: int) -> None:
    """The next answers come about, and get lost on their way."""

    def lose(route: Route) -> None:
        route.fetch(max_redirects=0)
        route.abort("connectionreset")

    page.route(f"**{path}", lose, times=times)


def test_a_lost_answer_is_asked_for_again(page: Page, store: Shop) -> None:
    """R41, I8: the work was done, the answer lost twice: one order, one key, and the first answer."""
    lose_the_answers(page, "/charges", 2)
    outcome = sent(page, "/charges")
    assert store.orders == ['{"amount":100}']
    assert store.keys() == [outcome["key"]] * 3
    assert [headers["twicesafe-attempt"] for _, headers in store.seen] == ["1", "2", "3"]
    assert (outcome["kind"], outcome["replayed"], outcome["body"]) == ("succeeded", True, '{"n":1}')
    assert outcome["reasons"] == ["network", "network", "201 replayed"]


def test_what_must_not_be_repeated_is_not(page: Page, store: Shop) -> None:
    """R35, R36, K: fetch() proves nothing, so a lost answer without a promise of the server is one hit, and unknown."""
    lose_the_answers(page, "/charges", 1)
    outcome = sent(page, "/charges", contract="never")
    assert len(store.orders) == 1
    assert (outcome["kind"], outcome["stop"], outcome["sent"]) == ("unknown", "not repeatable", "maybe")


@pytest.mark.parametrize("contract", ["keyed", "never"])
def test_what_the_browser_itself_repeats_is_the_same(tab: Page, contract: str) -> None:
    """R41, R40, K: on a connection that died Chromium sends a POST again and tells nobody: key and bytes are one."""
    with dying() as server:
        tab.goto(server.origin)
        outcome = sent(tab, "/charges", contract=contract)
    assert len(server.hits) == 2
    assert {(key, number, body) for key, number, body in server.hits} == {(outcome["key"], "1", b'{"amount":100}')}
    assert (outcome["kind"], outcome["reasons"]) == ("succeeded", ["200"])


@pytest.mark.parametrize(("act", "reason"), [(cut, "network"), (drip, "timeout")], ids=["broken", "endless"])
def test_a_body_that_does_not_arrive_is_recovered(page: Page, store: Shop, act: Act, reason: str) -> None:
    """R39, R41, K: a 201 whose body breaks, or does not end in time, is asked for again, and read to its end."""
    store.acts[:] = [act, answer(201, {"charge": 1}, idempotent_replayed="true")]
    outcome = sent(page, "/played", {"attemptTimeout": 500})
    assert len(store.seen) == 2 and store.acts == []
    assert outcome["reasons"] == [f"{reason} in the body of a 201", "201 replayed"]
    assert json.loads(outcome["body"]) == {"charge": 1}


def test_a_large_answer_is_there_to_be_read(page: Page, store: Shop) -> None:
    """R41: what was read to know that it arrived can still be read by its caller, however long it is."""
    store.acts[:] = [answer(200, "x" * 3_000_000)]
    assert len(sent(page, "/played")["body"]) == 3_000_002


@pytest.mark.parametrize("status", [302, 303, 307, 308])
def test_no_redirect_takes_the_key_away(page: Page, store: Shop, status: int) -> None:
    """R41, K: what redirects to another origin is not followed there; and a browser does not say what it was."""
    with shop() as other:
        store.acts[:] = [answer(status, location=f"{other.origin}/charges")]
        outcome = sent(page, "/played")
        assert (other.seen, other.asked, other.orders) == ([], [], [])
    assert len(store.seen) == 1
    assert (outcome["kind"], outcome["reasons"]) == ("unknown", ["a redirect that the browser hides"])


def test_another_origin_that_allows_the_key_is_enough(page: Page, store: Shop) -> None:
    """R41, G8: the preflight asks for the key and the body's type, no more; what is exposed can be read."""
    with shop() as other:
        first, again = (
            sent(page, f"{other.origin}/charges", key="k-1"),
            sent(page, f"{other.origin}/charges", key="k-1"),
        )
        assert other.orders == ['{"amount":100}']
        other.acts[:] = [answer(503, retry_after="0"), cut, answer(500, idempotent_replayed="true")]
        played = sent(page, f"{other.origin}/played")
        assert set(other.asked) == {"content-type", "idempotency-key"}
    assert store.seen == []
    assert [outcome["replayed"] for outcome in (first, again, played)] == [False, True, True]
    assert (played["kind"], played["reasons"]) == ("rejected", ["503", "network in the body of a 201", "500 replayed"])


def test_a_reloaded_page_asks_by_the_same_key(page: Page, store: Shop) -> None:
    """R34, R41, I8: reloaded without an answer, the page has key and bytes; two clicks later there is one order."""
    lose_the_answers(page, "/charges", 1)
    assert paid(page)["kind"] == "unknown"
    page.reload()
    again = paid(page, json=None)
    assert store.orders == ["1"]
    assert (again["kind"], again["replayed"], again["durable"]) == ("succeeded", True, True)
    assert store.keys() == [again["kept"]] * 2
    assert page.evaluate("sessionStorage.length") == 0
    assert paid(page, json=None) == {"kept": None, "error": "TypeError"}


def test_an_edited_cart_waits_for_the_outcome_of_the_first(page: Page, store: Shop) -> None:
    """I8: other bytes are not sent under the name, nor under another key, before the first outcome is known."""
    lose_the_answers(page, "/charges", 1)
    paid(page)
    page.reload()
    assert paid(page, json=2)["error"] == "IntentConflictError"
    assert store.orders == ["1"]
    assert paid(page, json=1)["replayed"]
    assert paid(page, json=2)["kind"] == "succeeded"
    assert store.orders == ["1", "2"]


def test_two_tabs_of_one_cart_order_once(page: Page, store: Shop) -> None:
    """R41: with a storage that tabs share, what one has sent without an answer the other asks for by the same key."""
    lose_the_answers(page, "/charges", 1)
    assert paid(page, storage="localStorage")["kind"] == "unknown"
    tab = page.context.new_page()
    tab.goto(store.origin)
    assert paid(tab, json=2, storage="localStorage")["error"] == "IntentConflictError"
    assert paid(tab, storage="localStorage")["replayed"]
    tab.close()
    assert store.orders == ["1"] and len(set(store.keys())) == 1


FRAME = """async (code) => {
  const frame = Object.assign(document.createElement("iframe"), { sandbox: "allow-scripts", srcdoc: code });
  const said = new Promise((hear) => addEventListener("message", (event) => hear(event.data), { once: true }));
  document.body.append(frame);
  return said;
}"""


def test_a_frame_without_storage_keeps_intents_in_memory(page: Page, store: Shop) -> None:
    """R41: where the browser denies the storage, what is kept is kept in memory, and said to be; forms work, too."""
    code = f"""<form id=order><input name=item></form><script type=module>
      import {{ IntentStore, protectForm }} from "{store.origin}/twicesafe.js";
      const store = new IntentStore();
      const key = store.key("cart");
      const guard = protectForm(document.querySelector("form"));
      parent.postMessage([store.durable, store.key("cart") === key, guard.key.length], "*");
    </script>"""
    assert page.evaluate(FRAME, code) == [False, True, 36]


def test_a_page_without_tls_makes_keys(page: Page) -> None:
    """R41: where a page has no randomUUID, its keys are as good."""
    keys = page.evaluate("""async () => {
      const { newKey } = await import("/twicesafe.js");
      Object.defineProperty(crypto, "randomUUID", { value: undefined });
      return Array.from({ length: 50 }, newKey);
    }""")
    assert len(set(keys)) == 50
    assert all(len(key) == 36 and key[14] == "4" and key[19] in "89ab" for key in keys)


# --- forms ----------------------------------------------------------------------------------------------------------

DRAWN = pytest.mark.parametrize("query", ["", "?bare"], ids=["drawn by the server", "made by the script"])


def visit(page: Page, store: Shop, query: str = "") -> str:
    """The form, fetched anew. Its key."""
    page.goto(f"{store.origin}/form{query}")
    return key_of(page)


def key_of(page: Page) -> str:
    page.wait_for_function("window.guard !== undefined")
    key: str = page.locator("[name=idempotency_key]").input_value()
    assert page.evaluate("window.guard.key") == key
    return key


def order(page: Page) -> str:
    """Click, and see which page comes."""
    page.get_by_role("button").click()
    page.wait_for_url("**/orders/*")
    return urlsplit(page.url).path


@DRAWN
def test_two_clicks_are_one(page: Page, store: Shop, query: str) -> None:
    """R41, I8: a double click sends one request, with the key in it, and one order comes of it."""
    key = visit(page, store, query)
    assert len(key) == 36
    page.get_by_role("button").dblclick(no_wait_after=True)
    page.wait_for_url("**/orders/1")
    assert store.orders == ["espresso"]
    assert [path for path, _ in store.seen] == ["/orders"]


@DRAWN
def test_whoever_goes_back_orders_nothing_new(page: Page, store: Shop, query: str) -> None:
    """R41: back by the cache or by a reload, the form has its key and its button; fetched anew, it has another."""
    key = visit(page, store, query)
    page.evaluate("addEventListener('pageshow', (event) => (window.cached = event.persisted))")
    assert order(page) == "/orders/1"
    # A page that was kept is not loaded.
    page.go_back(wait_until="commit")
    page.wait_for_function("window.cached")
    assert (key_of(page), order(page)) == (key, "/orders/1")
    page.go_back(wait_until="commit")
    page.reload()
    assert (key_of(page), order(page)) == (key, "/orders/1")
    assert store.orders == ["espresso"]
    assert visit(page, store, query) != key
    assert order(page) == "/orders/2"
    assert store.orders == ["espresso"] * 2


def test_a_button_rests_while_the_form_is_under_way(browser: Browser, store: Shop) -> None:
    """R41: disabled at once, and usable again after a while without an answer: to ask again by the same key."""
    page = browser.new_page()
    page.clock.install()
    key = visit(page, store)
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    page.route("**/orders", lambda route: route.fulfill(status=204))
    page.get_by_role("button").click()
    page.clock.run_for(9_999)
    assert page.get_by_role("button").is_disabled()
    assert page.locator("form").get_attribute("aria-busy") == "true"
    page.clock.run_for(2)
    assert page.get_by_role("button").is_enabled()
    assert page.locator("form").get_attribute("aria-busy") is None
    page.unroute("**/orders")
    page.clock.resume()
    assert (key_of(page), order(page), store.orders) == (key, "/orders/1", ["espresso"])
    page.close()


def test_a_form_that_somebody_else_keeps_back_does_not_rest(page: Page, store: Shop) -> None:
    """R41: where the page's own check refuses the form, before or after this one looks, it can be sent again."""
    visit(page, store)
    for capture in ("true", "false"):
        page.evaluate(f"""() => document.querySelector("form").addEventListener(
            "submit", (event) => event.preventDefault(), {{ capture: {capture}, once: true }})""")
        page.get_by_role("button").click()
        page.wait_for_function("new Promise((wake) => setTimeout(wake, 20, true))")
        assert page.locator("button").is_enabled()
    assert store.seen == []
    assert order(page) == "/orders/1"


def test_a_new_wish_has_a_new_key(page: Page, store: Shop) -> None:
    """R41: `renew()` makes another intent of the same form, and protecting a form twice is protecting it once."""
    key = visit(page, store)
    same = page.evaluate("""async () => {
      const { protectForm } = await import("/twicesafe.js");
      return protectForm(document.querySelector("form")) === window.guard;
    }""")
    assert same is True
    page.evaluate("window.guard.renew()")
    assert key_of(page) != key
    page.reload()
    assert key_of(page) != key
    assert page.locator("[name=idempotency_key]").count() == 1
