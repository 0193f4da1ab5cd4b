"""Intents in a file: the same key and bytes after a restart, nothing else under them, and no secrets."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.client.reserving import ONCE, WAYS, Desk, Way
from tests.client.scripted import answer, serving
from twicesafe.client import (
    Contract,
    Intent,
    IntentChangedError,
    IntentStore,
    IntentStoreError,
    RetryPolicy,
    Route,
    Routes,
    Standing,
    Succeeded,
    report_of,
)
from twicesafe.errors import ConfigurationError
from twicesafe.stores.cryptography import Keyring

URL = "https://pay.example/charges?of=cart-17"
DAY = timedelta(days=1)
CART = {"amount": 100, "card": "4242 4242"}


def charge(url: str = URL, **changes: Any) -> Intent:
    return Intent.new("POST", url, **{"json": CART, **changes})


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """Each way to send, on a file of its own."""
    way: Way = request.param
    return Desk(tmp_path / "intents.db", way)


@pytest.fixture
def desk_of_square(tmp_path: Path) -> Desk:
    """One whose policy knows a vendor that takes keys in the body."""
    routes = Routes(Route("POST", "/v2/payments", profile="square"))
    return Desk(tmp_path / "intents.db", policy=ONCE.but(routes=routes))


def test_the_same_name_is_the_same_intent_after_a_restart(desk: Desk) -> None:
    """R33, R34, I8: a process that makes a new key for what is kept gets the key and the bytes of the first one."""
    first = charge(headers={"X-Shop": "7"})
    kept = desk.reserve("cart 17", first, remembers=DAY)
    again = desk.reserve("cart 17", charge(headers={"x-shop": "7"}), remembers=DAY)
    found = desk.store.find("cart 17")
    assert found is not None
    assert kept.intent == again.intent == found.intent == first
    assert (found.standing, found.runs, found.remembers) == (Standing.RESERVED, (), DAY)


def test_equal_data_under_two_names_are_two_intents(desk: Desk) -> None:
    """R1, R33, I8: two wishes have two keys, and the server charges twice, however equal they are."""
    with serving(answer(201), answer(201)) as server:
        for name in ("cart 17", "cart 18"):
            desk.send(desk.reserve(name, charge(server.origin), remembers=DAY))
        first, second = server.hits
    assert first.body == second.body and first.key != second.key


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"body": b'{"amount":101}'}, "body"),
        ({"url": "https://pay.example/refunds"}, "address"),
        ({"method": "PUT"}, "method"),
        ({"headers": (("Content-Type", "text/plain"),)}, "headers"),
        ({"contract": Contract.NEVER}, "contract"),
        ({"body": b"", "method": "PUT"}, "method and body"),
    ],
)
def test_other_bytes_under_a_name_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """I4, I8, K: a price that was quoted anew is refused, without a word of what it was; the first bytes stay."""
    store = IntentStore(tmp_path / "intents.db")
    first = charge()
    store.reserve("cart 17", first, remembers=DAY)
    other = replace(charge(), **changes)
    with pytest.raises(IntentChangedError, match=f"another {said}[.]") as caught:
        store.reserve("cart 17", other, remembers=DAY)
    found = store.find("cart 17")
    assert found is not None and found.intent == first
    text = str(caught.value)
    assert first.key[-4:] in text
    assert [secret for secret in (first.key, other.key, "4242 4242", "amount") if secret in text] == []
    report = report_of(caught.value)
    assert report is not None and report.key == other.key


def test_one_key_has_one_name_and_one_place(tmp_path: Path) -> None:
    """I8, R33: a derived key under a second name is refused, and so is another header for it."""
    store = IntentStore(tmp_path / "intents.db")
    derived = Intent.derived("charge", "cart-17", url=URL, json=CART)
    store.reserve("cart 17", derived, remembers=DAY)
    elsewhere = IntentStore(tmp_path / "intents.db", policy=RetryPolicy(header="PayPal-Request-Id"))
    for desk, name in ((store, "cart 18"), (elsewhere, "cart 17")):
        with pytest.raises(IntentChangedError) as caught:
            desk.reserve(name, derived, remembers=DAY)
        assert derived.key not in str(caught.value)
    assert [one.name for one in store.listed()] == ["cart 17"]


def test_the_shortest_memory_of_the_server_counts(tmp_path: Path) -> None:
    """R34: whoever learns that the server forgets sooner is heard, and whoever says later is not."""
    store = IntentStore(tmp_path / "intents.db")
    intent = charge()
    told = [store.reserve("cart 17", intent, remembers=timedelta(hours=hours)).remembers for hours in (24, 1, 48)]
    assert told == [timedelta(hours=24), timedelta(hours=1), timedelta(hours=1)]


def test_secrets_in_headers_are_not_written(desk: Desk) -> None:
    """R22, R34: the values of such headers are sent and are in no file; a client that goes on brings its own."""
    secrets = {"Authorization": "Bearer aaa-1", "Cookie": "bbb-2", "X-Api-Key": "ccc-3", "X-Shop-Code": "ddd-4"}
    with serving(answer(503), answer(201)) as server:
        intent = charge(server.origin, headers=secrets | {"X-Shop": "7"})
        kept = desk.reserve("cart 17", intent, remembers=DAY, withhold=["X-Shop-Code"])
        desk.send(kept)
        found = desk.store.find("cart 17")
        assert found is not None
        desk.send(found, headers={"Authorization": "Bearer eee-5"})
        first, second = server.hits
    names = [name.lower() for name in secrets]
    assert [first.header(name) for name in names] == list(secrets.values())
    assert [second.header(name) for name in names] == ["Bearer eee-5", None, None, None]
    assert first.header("x-shop") == second.header("x-shop") == "7" and first.key == second.key
    assert sorted(found.withheld) == sorted(names)
    written = b"".join(path.read_bytes() for path in desk.file.parent.iterdir())
    assert b"4242 4242" in written
    assert [secret for secret in ("aaa-1", "bbb-2", "ccc-3", "ddd-4", "eee-5") if secret.encode() in written] == []


def test_a_sealed_file_says_nothing(tmp_path: Path) -> None:
    """R22, R34: with keys neither the key nor the address nor the body is on the disk, and they come back the same."""
    old, new = Keyring.new_key(), Keyring.new_key()
    file = tmp_path / "intents.db"
    intent = charge()
    IntentStore(file, keys=Keyring({"1": old}, "1")).reserve("cart 17", intent, remembers=DAY)
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"cart 17" in written
    assert [text for text in (intent.key, "pay.example", "4242 4242") if text.encode() in written] == []
    rotated = IntentStore(file, keys=Keyring({"1": old, "2": new}, "2"))
    assert rotated.reserve("cart 17", charge(), remembers=DAY).intent == intent
    for store in (IntentStore(file), IntentStore(file, keys=Keyring({"2": new}, "2"))):
        (listed,) = store.listed()
        assert (listed.name, listed.sealed, listed.standing) == ("cart 17", True, Standing.RESERVED)
        with pytest.raises(IntentStoreError, match="cart 17"):
            _ = listed.intent


def test_what_was_reserved_before_the_file_was_sealed_is_read(tmp_path: Path) -> None:
    """R34: keys may come later: intents from before are sent as they are."""
    file, intent = tmp_path / "intents.db", charge()
    IntentStore(file).reserve("cart 17", intent, remembers=DAY)
    sealing = IntentStore(file, keys=Keyring({"1": Keyring.new_key()}, "1"))
    found = sealing.find("cart 17")
    assert found is not None and found.intent == intent and not found.sealed


@pytest.mark.parametrize(
    ("name", "intent", "how", "said"),
    [
        ("", charge(), {}, "name"),
        ("a\nb", charge(), {}, "printable"),
        ("n" * 256, charge(), {}, "255"),
        ("n", charge("/charges"), {}, "whole address"),
        ("n", charge("ftp://pay.example/"), {}, "whole address"),
        ("n", charge("https://me:secret@pay.example/"), {}, "auth="),
        ("n", Intent.new("GET", URL), {}, "changes nothing"),
        ("n", charge(headers={"idempotency-key": "k"}), {}, "give it as key="),
        ("n", charge(contract=Contract.SAFE), {}, "changes nothing"),
        ("n", charge(), {"remembers": None}, "remembers"),
        ("n", charge(), {"remembers": timedelta(0)}, "remembers"),
    ],
)
def test_what_could_not_be_sent_later_is_not_reserved(
    tmp_path: Path, name: str, intent: Intent, how: dict[str, Any], said: str
) -> None:
    """R34: what another process could not send, or could send elsewhere, is refused before anything is written."""
    store = IntentStore(tmp_path / "intents.db")
    with pytest.raises(ConfigurationError, match=said) as caught:
        store.reserve(name, intent, **{"remembers": DAY, **how})
    assert store.listed() == () and "secret" not in str(caught.value)


def test_a_route_says_where_the_key_goes_and_for_how_long(desk_of_square: Desk) -> None:
    """R5, R34, R36: a vendor's carrier and memory are kept with the intent, for whoever sends it without them."""
    desk = desk_of_square
    with serving(answer(503), answer(503), answer(201)) as server:
        kept = desk.reserve("cart 17", charge(f"{server.origin}/v2/payments"), remembers=DAY)
        for policy in (None, ONCE, RetryPolicy(attempts=1)):
            desk.send(kept, policy=policy)
        bodies = [json.loads(hit.body) for hit in server.hits]
        assert [hit.key for hit in server.hits] == [None] * 3
    assert bodies == [{**CART, "idempotency_key": kept.intent.key}] * 3
    assert (kept.header, kept.member, kept.contract) == ("", "idempotency_key", Contract.KEYED)
    with pytest.raises(ConfigurationError, match="idempotency_key"):
        desk.send(kept, policy=RetryPolicy(header="X-Request-Id"))


def test_a_route_can_say_that_nothing_is_sent_twice(tmp_path: Path) -> None:
    """R36: where the server takes no keys the contract is never, and the vendor's published memory needs no saying."""
    table = Routes(
        Route("POST", "/v1/messages", profile="anthropic"), Route("POST", "/v1/charges", profile="stripe-v1")
    )
    store = IntentStore(tmp_path / "intents.db", policy=RetryPolicy(routes=table))
    asked = store.reserve("a question", charge("https://api.anthropic.com/v1/messages"))
    paid = store.reserve("a charge", charge("https://api.stripe.com:443/v1/charges"))
    assert (asked.contract, asked.remembers) == (Contract.NEVER, None)
    longer = store.reserve("another", charge("https://api.stripe.com/v1/charges"), remembers=2 * DAY)
    assert (paid.contract, paid.remembers, longer.remembers) == (Contract.KEYED, DAY, DAY)


def test_the_body_comes_back_byte_for_byte(desk: Desk) -> None:
    """I8: whatever is in a body, a header or an address, what is sent after a restart is what was reserved."""
    body = bytes(range(256)) * 300
    with serving(answer(201)) as server:
        intent = Intent.new("PATCH", f"{server.origin}/a%2Fb?q=%20x", content=body, headers=[("A", "1"), ("A", '"2"')])
        desk.reserve("all bytes", intent, remembers=DAY)
        found = desk.store.find("all bytes")
        assert found is not None and found.intent == intent
        assert isinstance(desk.send(found), Succeeded)
        (hit,) = server.hits
    assert (hit.method, hit.target, hit.body, hit.key) == ("PATCH", "/a%2Fb?q=%20x", body, intent.key)


def test_nothing_printed_holds_a_whole_key(tmp_path: Path) -> None:
    """R22: what a log may hold of an intent names it and shows neither its key nor its body."""
    store = IntentStore(tmp_path / "intents.db")
    reserved = store.reserve("cart 17", charge(), remembers=DAY)
    text = repr(reserved)
    assert "cart 17" in text and reserved.key_hint in text
    assert reserved.intent.key not in text and json.dumps(CART["card"]) not in text
