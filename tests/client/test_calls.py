"""Calls of operations by a bound client: one key, one charge, whatever is lost between an operation and a provider."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.client.calling import CHARGE, WAYS, WINDOW, Shop, Vendor, Way, careless
from tests.client.scripted import (
    answer,
    half_error,
    reset_after_commit,
    reset_before_reading,
    serving,
)
from twicesafe.client.calls import Provider, alook_up_at, look_up_at
from twicesafe.errors import CallRefusedError, CallRejectedError, CallUnknownError, OutcomeUnknownError, UnknownError
from twicesafe.once import Done, Unclear

VENDORS = {
    "stripe-v1": ("idempotency-key", {"method": "POST", "url": "/v1/charges", "data": {"amount": "4200"}}),
    "paypal": ("paypal-request-id", {"method": "POST", "url": "/v2/checkout/orders", "json": {"intent": "CAPTURE"}}),
    "square": ("", {"method": "POST", "url": "/v2/payments", "json": {"amount_money": {"amount": 4200}}}),
    "amazon-pay": ("x-amz-pay-idempotency-key", {"method": "POST", "url": "/v2/charges", "json": {"amount": "42"}}),
}

STRIPE = Provider.of("stripe-v1")
FORGETFUL = STRIPE.but(remembers=None)


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def way(request: pytest.FixtureRequest) -> Way:
    """Each of the four."""
    return request.param


@pytest.fixture(params=[WAYS[0], WAYS[3]], ids=lambda way: way.name)
def pair(request: pytest.FixtureRequest) -> Way:
    """Each library once, each kind once: for what depends on neither."""
    return request.param


@pytest.fixture
def shop() -> Shop:
    """A store that outlives processes."""
    return Shop()


# --- the key ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", VENDORS)
def test_the_key_goes_where_the_vendor_takes_it(way: Way, shop: Shop, profile: str) -> None:
    """R25, R5: one charge under the call's own key, in the vendor's carrier; a second run asks nobody."""
    header, request = VENDORS[profile]
    vendor = Vendor(profile)
    with serving(vendor.charge) as server:
        assert way.buy(shop, vendor.provider, server.origin, request) == "ch_1"
        assert len(vendor.charges) == len(server.hits) == 1
        assert way.buy(shop, vendor.provider, server.origin, request) == "ch_1"
    (hit,) = server.hits
    (key,) = shop.given
    assert vendor.key_of(hit) == key
    assert [name for name, value in hit.headers if value == key] == ([header] if header else [])
    assert len(key) == (32 if profile == "amazon-pay" else 36)


@pytest.mark.parametrize("profile", VENDORS)
def test_after_a_lost_answer_the_same_is_sent_again(way: Way, shop: Shop, profile: str) -> None:
    """R25, R33, B6, K: the answer is lost, another process goes on: the same key, the same bytes, one charge."""
    vendor = Vendor(profile)
    _, request = VENDORS[profile]
    with serving(vendor.charge_and_lose, vendor.charge) as server:
        with pytest.raises(way.library.TransportError):
            way.buy(shop, vendor.provider, server.origin, request)
        shop.later()
        assert way.buy(shop, vendor.provider, server.origin, request) == "ch_1"
    assert len(vendor.charges) == 1
    first, second = server.hits
    assert (first.body, vendor.key_of(first)) == (second.body, vendor.key_of(second))
    assert first.body
    assert len(set(shop.given)) == 1


def test_what_the_body_said_is_not_rewritten(pair: Way, shop: Shop) -> None:
    """R33, K: a key in a JSON body is put in front; of the caller's own bytes, numbers and blanks, none is changed."""
    vendor = Vendor("square")
    mine = b'{ "amount": 4200.10, "note": "\\u00e9", "big": 123456789012345678901234567890 }'
    request = {"method": "POST", "url": "/", "content": mine, "headers": {"Content-Type": "application/json"}}
    with serving(vendor.charge) as server:
        pair.buy(shop, vendor.provider, server.origin, request)
    assert len(vendor.charges) == 1
    assert server.hits[0].body == b'{"idempotency_key":"%b",' % shop.given[0].encode() + mine[1:]


def test_a_body_that_can_be_read_once_is_frozen(way: Way, shop: Shop) -> None:
    """R33, K: what is read from a file or a generator leaves as bytes of a known length, to be sent again."""

    def pieces() -> Any:
        yield b"cents="
        yield b"4200"

    async def apieces() -> Any:
        yield b"cents="
        yield b"4200"

    vendor = Vendor("stripe-v1")
    content = apieces() if way.asynchronous else pieces()
    with serving(vendor.charge) as server:
        assert way.buy(shop, STRIPE, server.origin, {"method": "POST", "url": "/", "content": content}) == "ch_1"
    assert list(vendor.charges.values()) == [b"cents=4200"]


# --- for how long ----------------------------------------------------------------------------------------------------


def test_past_the_published_window_nothing_is_sent(pair: Way, shop: Shop) -> None:
    """R25, I6, K: `remembers` comes from the profile; later than that nobody is asked."""
    vendor = Vendor("qonto")
    qonto = Provider.of("qonto")
    with serving(vendor.charge_and_lose) as server:
        with pytest.raises(pair.library.TransportError):
            pair.buy(shop, qonto, server.origin)
        shop.later(timedelta(minutes=30))
        with pytest.raises(CallUnknownError, match="no longer remember"):
            pair.buy(shop, qonto, server.origin)
        with pytest.raises(OutcomeUnknownError):
            pair.buy(shop, qonto, server.origin)
    assert (len(vendor.charges), len(server.hits)) == (1, 1)


def test_a_window_that_nobody_publishes_is_none(pair: Way, shop: Shop) -> None:
    """R25: Square publishes no window: without one of the caller's own, what may have been sent is not sent again."""
    vendor = Vendor("square")
    with serving(vendor.charge_and_lose) as server:
        with pytest.raises(pair.library.TransportError):
            pair.buy(shop, Provider.of("square"), server.origin)
        shop.later()
        with pytest.raises(CallUnknownError, match="remembers no keys"):
            pair.buy(shop, Provider.of("square"), server.origin)
    assert (len(vendor.charges), len(server.hits)) == (1, 1)


@pytest.mark.parametrize("found", [True, False])
def test_it_is_looked_up_by_its_key(way: Way, shop: Shop, *, found: bool) -> None:
    """R25, R26: past the window the provider is asked by key; what it tells is the outcome, and silence is unknown."""
    vendor = Vendor("increase")
    at = alook_up_at if way.asynchronous else look_up_at

    def read(response: Any) -> Done | Unclear:
        listed = response.json()["data"]
        return Done(listed[0]["id"]) if listed else Unclear()

    how = {"look_up": lambda client: at(client, "/transfers?idempotency_key={key}", read)}
    listing = answer(200, json_={"data": [{"id": "ch_1"}] if found else []})
    with serving(vendor.charge_and_lose, listing) as server:
        with pytest.raises(way.library.TransportError):
            way.buy(shop, vendor.provider, server.origin, **how)
        shop.later(2 * WINDOW)
        if found:
            assert way.buy(shop, vendor.provider, server.origin, **how) == "ch_1"
        else:
            with pytest.raises(CallUnknownError):
                way.buy(shop, vendor.provider, server.origin, **how)
    assert len(vendor.charges) == 1
    assert [(hit.method, hit.key) for hit in server.hits] == [("POST", shop.given[0]), ("GET", None)]
    assert server.hits[1].target == f"/transfers?idempotency_key={shop.given[0]}"


@pytest.mark.parametrize("act", [answer(503), answer(401), reset_after_commit], ids=["503", "401", "reset"])
def test_a_look_up_without_an_answer_tells_nothing(pair: Way, shop: Shop, act: Any) -> None:
    """R26: a provider that cannot be asked is unclear; within the window the same is then sent again."""
    vendor = Vendor("increase")
    at = alook_up_at if pair.asynchronous else look_up_at
    how = {"look_up": lambda client: at(client, "/transfers?idempotency_key={key}", lambda response: Done("wrong"))}
    with serving(vendor.charge_and_lose, act, vendor.charge) as server:
        with pytest.raises(pair.library.TransportError):
            pair.buy(shop, vendor.provider, server.origin, **how)
        shop.later()
        assert pair.buy(shop, vendor.provider, server.origin, **how) == "ch_1"
    assert len(vendor.charges) == 1
    assert len(server.hits) == 3


# --- what an answer proves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [402, 404])
@pytest.mark.parametrize("looks", [True, False], ids=["raises", "careless"])
def test_a_refusal_is_recorded(pair: Way, shop: Shop, status: int, *, looks: bool) -> None:
    """R25, E1: no for good is an answer, whether or not the caller looks at the status: recorded, and asked once."""
    with serving(answer(status, json_={"error": {"type": "card_error"}})) as server:
        for _ in range(2):
            with pytest.raises(CallRejectedError, match=str(status)):
                pair.buy(shop, FORGETFUL, server.origin, **({} if looks else {"read": careless}))
            shop.later()
    assert len(server.hits) == 1


@pytest.mark.parametrize("status", [503, 409])
@pytest.mark.parametrize("looks", [True, False], ids=["raises", "careless"])
def test_what_leaves_things_open_is_no_result(pair: Way, shop: Shop, status: int, *, looks: bool) -> None:
    """I6, A7, B5: after a failure that may hide a charge, the operation does not end; the same key is sent again."""
    vendor = Vendor("stripe-v1")
    with serving(answer(status, "Retry-After: 1"), vendor.charge) as server:
        with pytest.raises(pair.library.HTTPStatusError if looks else UnknownError):
            pair.buy(shop, STRIPE, server.origin, **({} if looks else {"read": careless}))
        shop.later()
        assert pair.buy(shop, STRIPE, server.origin) == "ch_1"
    assert len(vendor.charges) == 1
    assert [hit.key for hit in server.hits] == [shop.given[0]] * 2


def test_without_a_memory_a_failure_is_never_sent_again(pair: Way, shop: Shop) -> None:
    """R25, I6: a 500 of a provider that remembers no keys may hide a charge: it is held."""
    with serving(answer(500)) as server:
        with pytest.raises(pair.library.HTTPStatusError):
            pair.buy(shop, FORGETFUL, server.origin)
        shop.later()
        with pytest.raises(CallUnknownError):
            pair.buy(shop, FORGETFUL, server.origin)
    assert len(server.hits) == 1


@pytest.mark.parametrize("status", [401])
def test_who_is_turned_away_comes_back(pair: Way, shop: Shop, status: int) -> None:
    """R25: not now is not no, and nothing was done: it is sent again, to a provider that remembers nothing as well."""
    vendor = Vendor("stripe-v1")
    with serving(answer(status), vendor.charge) as server:
        with pytest.raises(UnknownError, match="was not carried out"):
            pair.buy(shop, FORGETFUL, server.origin, read=careless)
        shop.later(2 * WINDOW)
        assert pair.buy(shop, FORGETFUL, server.origin) == "ch_1"
    assert len(vendor.charges) == 1
    assert len(server.hits) == 2


def test_what_never_left_is_sent_later(way: Way, shop: Shop) -> None:
    """R35, R25: a refused connection proves that nothing was sent, whatever the provider remembers."""
    vendor = Vendor("stripe-v1")
    with serving(vendor.charge, listening=False) as server:
        with pytest.raises(way.library.ConnectError):
            way.buy(shop, FORGETFUL, server.origin)
        server.listen()
        shop.later(2 * WINDOW)
        assert way.buy(shop, FORGETFUL, server.origin) == "ch_1"
    assert len(vendor.charges) == len(server.hits) == 1


def test_what_stands_still_while_it_connects_does_not_send(
    way: Way, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25, R35: the clock is looked at again before the first byte leaves, and what is late proves that none did."""
    stands_still, seconds = [timedelta(hours=1)], [1000.0]
    monkeypatch.setattr("twicesafe.called.elapsed", lambda: seconds[0])
    monkeypatch.setattr("twicesafe.resuming.elapsed", lambda: seconds[0])

    class Slow:
        """Is slow once, when the call has let the request go."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def passes(self) -> None:
            seconds[0] += stands_still.pop().total_seconds() if stands_still else 0

        def handle_request(self, request: Any) -> Any:
            self.passes()
            return self.inner.handle_request(request)

        async def handle_async_request(self, request: Any) -> Any:
            self.passes()
            return await self.inner.handle_async_request(request)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __enter__(self) -> None: ...

        def __exit__(self, *exc: object) -> None:
            self.inner.close()

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *exc: object) -> None:
            await self.inner.aclose()

    vendor = Vendor("stripe-v1")
    with serving(vendor.charge) as server:
        with pytest.raises(CallRefusedError, match="stood still"):
            way.buy(shop, FORGETFUL, server.origin, below=Slow)
        assert server.hits == []
        shop.later(2 * WINDOW)
        assert way.buy(shop, FORGETFUL, server.origin) == "ch_1"
    assert len(vendor.charges) == len(server.hits) == 1


@pytest.mark.parametrize("act", [reset_before_reading, half_error], ids=["reset", "broken answer"])
def test_what_may_have_left_is_not(pair: Way, shop: Shop, act: Any) -> None:
    """R35: once a byte has left, no failure proves anything, a broken answer of 503 neither."""
    with serving(act) as server:
        with pytest.raises(pair.library.TransportError):
            pair.buy(shop, FORGETFUL, server.origin)
        shop.later()
        with pytest.raises(CallUnknownError):
            pair.buy(shop, FORGETFUL, server.origin)
    assert len(server.hits) <= 1


def test_a_refusal_does_not_undo_an_earlier_attempt(pair: Way, shop: Shop) -> None:
    """R37, I6: after a lost answer a 404 tells nothing; only an answer that is marked as the recorded one does."""
    refused = {"error": {"type": "card_error"}}
    marked = answer(402, "Idempotent-Replayed: true", json_=refused)
    with serving(reset_after_commit, answer(404), answer(402, json_=refused), marked) as server:
        for error in (pair.library.TransportError, pair.library.HTTPStatusError, pair.library.HTTPStatusError):
            with pytest.raises(error):
                pair.buy(shop, STRIPE, server.origin)
            shop.later()
        for _ in range(2):
            with pytest.raises(CallRejectedError, match="402"):
                pair.buy(shop, STRIPE, server.origin)
            shop.later()
    assert len(server.hits) == 4


@pytest.mark.parametrize(
    ("profile", "status", "error"),
    [
        ("stripe-v1", 400, {"error": {"type": "idempotency_error"}}),
        ("stripe-v1", 409, {"error": {"code": "idempotency_key_in_use"}}),
        ("paypal", 422, {"details": [{"issue": "DUPLICATE_REQUEST_ID"}]}),
        ("square", 400, {"errors": [{"code": "IDEMPOTENCY_KEY_REUSED"}]}),
        ("ietf", 422, {"type": "urn:twicesafe:problem:key-reused"}),
    ],
)
def test_an_error_about_the_key_is_no_refusal(
    pair: Way, shop: Shop, profile: str, status: int, error: dict[str, Any]
) -> None:
    """R37, I6: the key names something already: that is anything but proof that nothing was done under it."""
    provider = Provider.of(profile, remembers=None)
    with serving(answer(status, json_=error)) as server:
        with pytest.raises(UnknownError):
            pair.buy(shop, provider, server.origin, read=careless)
        shop.later()
        with pytest.raises(CallUnknownError):
            pair.buy(shop, provider, server.origin)
    assert len(server.hits) == 1


def test_the_callers_own_word_counts_where_the_answer_agrees(pair: Way, shop: Shop) -> None:
    """R25: `rejected` names what the provider says in words of its own; over a 500 it has no say."""

    class DeclinedError(Exception):
        pass

    def decline(response: Any) -> str:
        raise DeclinedError(response.json()["error"])

    how = {"read": decline, "rejected": (DeclinedError,)}
    with serving(answer(500, json_={"error": "?"}), answer(402, json_={"error": "no money"})) as server:
        with pytest.raises(DeclinedError):
            pair.buy(shop, STRIPE, server.origin, **how)
        shop.later()
        with pytest.raises(CallRejectedError, match="no money"):
            pair.buy(shop, STRIPE, server.origin, **how)
    assert len(server.hits) == 2


def test_a_result_that_cannot_be_read_is_sent_for_again(pair: Way, shop: Shop) -> None:
    """A6, R25: the provider charged and the caller stumbled over its answer: the same key gets it again."""
    vendor = Vendor("stripe-v1")

    def stumble(response: Any) -> str:
        raise KeyError("charge")

    with serving(vendor.charge, vendor.charge) as server:
        with pytest.raises(KeyError):
            pair.buy(shop, STRIPE, server.origin, read=stumble)
        shop.later()
        assert pair.buy(shop, STRIPE, server.origin) == "ch_1"
    assert len(vendor.charges) == 1
    assert json.loads(server.hits[0].body) == json.loads(server.hits[1].body) == CHARGE["json"]
