"""What a bound client does not send: whatever could not be sent a second time under the key of its call."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK, Hours
from tests.client.calling import CHARGE, WAYS, Shop, Vendor, Way, careless, id_of
from tests.client.scripted import Act, answer, redirect, reset_after_commit, serving
from twicesafe.client import Budgets, Intent
from twicesafe.client.calls import AsyncCallTransport, CallTransport, Provider, calling
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, send
from twicesafe.errors import (
    BodyNotRepeatableError,
    CallRefusedError,
    CallRejectedError,
    CallUnknownError,
    ConfigurationError,
)
from twicesafe.once import Once, current

STRIPE = Provider.of("stripe-v1")
FORGETFUL = STRIPE.but(remembers=None)
SQUARE = Provider.of("square", remembers=timedelta(hours=1))
FEE = {"method": "POST", "url": "/fees", "json": {"cents": 4200}}
"""What differs from CHARGE by its address alone."""


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


def outside(way: Way, origin: str, *requests: dict[str, Any]) -> None:
    """Make requests by a bound client, in no call."""

    async def main() -> None:
        transport = AsyncCallTransport(way.library.AsyncHTTPTransport(verify=NO_TLS), STRIPE)
        async with way.library.AsyncClient(transport=transport, base_url=origin) as client:
            for request in requests:
                await client.request(**request)

    if way.asynchronous:
        asyncio.run(main())
        return
    with way.library.Client(
        transport=CallTransport(way.library.HTTPTransport(verify=NO_TLS), STRIPE), base_url=origin
    ) as client:
        for request in requests:
            client.request(**request)


def test_outside_of_a_call_nothing_is_changed(way: Way) -> None:
    """R33, R25: what could not be sent twice is refused where no call gives it a key; what is safe goes out."""
    with serving(answer(200)) as server:
        for method in ("POST", "PATCH", "PUT", "DELETE"):
            with pytest.raises(CallRefusedError, match="not made in a call"):
                outside(way, server.origin, {**CHARGE, "method": method})
        assert server.hits == []
        outside(way, server.origin, {"method": "GET", "url": "/"})
    assert [(hit.method, hit.key) for hit in server.hits] == [("GET", None)]


@pytest.mark.parametrize("contract", ["never", "idempotent", "safe"])
def test_who_answers_for_it_may_send_it(pair: Way, contract: str) -> None:
    """R36: a request that says itself what it may bear goes out as it is, in a call or outside of one."""
    told = {**CHARGE, "extensions": {"twicesafe.contract": contract}}
    with serving(answer(200)) as server:
        outside(pair, server.origin, told)
    assert [hit.key for hit in server.hits] == [None]


def test_credentials_are_fetched_beside_the_call(pair: Way, shop: Shop) -> None:
    """R25: in a call, a request that is told to be another matter has no key and is not what the call asks for."""
    vendor = Vendor("stripe-v1")
    fetch = {"method": "POST", "url": "/token", "extensions": {"twicesafe.contract": "never"}}
    with serving(answer(200), vendor.charge) as server:
        assert pair.buy(shop, STRIPE, server.origin, fetch, CHARGE) == "ch_1"
    assert [(hit.target, hit.key) for hit in server.hits] == [("/token", None), ("/charges", shop.given[0])]


def test_a_contract_that_does_not_exist_is_refused(pair: Way) -> None:
    """R36: a word nobody knows is no permission."""
    with serving() as server, pytest.raises(ConfigurationError, match="twice"):
        outside(pair, server.origin, {**CHARGE, "extensions": {"twicesafe.contract": "twice"}})
    assert server.hits == []


# --- keys of others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["Idempotency-Key", "idempotency-key"])
def test_another_key_is_not_overwritten(way: Way, shop: Shop, header: str) -> None:
    """R33, K: a request that was given a key elsewhere is refused; neither of the two keys reaches the provider."""
    with serving(answer(201, json_={"id": "ch_1"})) as server:
        with pytest.raises(CallRefusedError, match="key of its own"):
            way.buy(shop, FORGETFUL, server.origin, {**CHARGE, "headers": {header: "mine"}})
        assert server.hits == []
        shop.later()
        assert way.buy(shop, FORGETFUL, server.origin) == "ch_1"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"json": {"cents": 1, "idempotency_key": "mine"}}, "another key"),
        ({"json": {"cents": 1, "idempotency_key": ""}}, "another key"),
        ({"json": [1]}, "no JSON object"),
        ({"data": {"cents": "1"}}, "no JSON object"),
        ({"content": b"\x1f\x8b", "headers": {"Content-Encoding": "gzip"}}, "encoded"),
        ({"method": "PATCH", "json": {}}, "no keys with PATCH"),
    ],
)
def test_a_body_that_takes_no_key_is_refused(shop: Shop, request_: dict[str, Any], why: str) -> None:
    """R5, R25: where the provider wants the key in the body, a request without it would be one without any."""
    for way in WAYS[:2]:
        with serving() as server, pytest.raises(CallRefusedError, match=why):
            way.buy(shop, SQUARE, server.origin, {"method": "POST", "url": "/", **request_})
        assert server.hits == []
        shop.later()


def test_what_may_be_repeated_anyway_needs_no_key(pair: Way, shop: Shop) -> None:
    """R36: DELETE to a provider that takes keys in bodies only goes out without one, and is the call's request."""
    delete = {"method": "DELETE", "url": "/cards/1"}
    with serving(answer(200)) as server:
        assert pair.buy(shop, SQUARE, server.origin, delete, read=careless) == "got 200"
    assert [(hit.method, hit.body) for hit in server.hits] == [("DELETE", b"")]


def test_another_provider_is_not_asked_under_the_calls_key(pair: Way, shop: Shop) -> None:
    """R25: a call to Stripe sends nothing to PayPal."""
    with serving() as server, pytest.raises(CallRefusedError, match="goes to stripe-v1, and the call is to paypal"):
        pair.buy(shop, STRIPE, server.origin, to=Provider.of("paypal"))
    assert server.hits == []


# --- a second request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [FEE, {**CHARGE, "json": {"cents": 1}}, {**CHARGE, "headers": {"Account": "b"}}])
def test_a_call_asks_for_one_thing(pair: Way, shop: Shop, change: dict[str, Any]) -> None:
    """R25, R1: a second request that differs is refused: under one key one of the two would be lost, or done twice."""
    vendor = Vendor("stripe-v1")
    with serving(vendor.charge, vendor.charge) as server:
        with pytest.raises(CallRefusedError, match="differs from what the call has sent"):
            pair.buy(shop, STRIPE, server.origin, CHARGE, change)
        assert len(vendor.charges) == len(server.hits) == 1
        shop.later()
        assert pair.buy(shop, STRIPE, server.origin, CHARGE) == "ch_1"
    assert len(vendor.charges) == 1


def test_the_same_may_be_sent_again_within_a_call(pair: Way, shop: Shop) -> None:
    """R25, K: a loop in the caller's own code repeats one intent: one key, the same bytes, one charge."""
    vendor = Vendor("stripe-v1")
    with serving(answer(503), vendor.charge, vendor.charge) as server:
        assert pair.buy(shop, STRIPE, server.origin, CHARGE, CHARGE, CHARGE) == "ch_1"
    assert len(vendor.charges) == 1
    assert {(hit.key, hit.body) for hit in server.hits} == {(shop.given[0], server.hits[0].body)}


@pytest.mark.parametrize(("status", "sent"), [(401, 2), (500, 1)])
def test_keys_belong_to_accounts(pair: Way, shop: Shop, status: int, sent: int) -> None:
    """R25: under other credentials the same key can be another account's: only what was not done is sent so again."""
    vendor = Vendor("stripe-v1")
    again = [{**CHARGE, "headers": {"Authorization": f"Bearer {number}"}} for number in (1, 2)]
    acts: list[Act] = [answer(status), vendor.charge][:sent]
    with serving(*acts) as server:
        if sent == 2:
            assert pair.buy(shop, STRIPE, server.origin, *again) == "ch_1"
        else:
            with pytest.raises(CallRefusedError, match="credentials differ"):
                pair.buy(shop, STRIPE, server.origin, *again)
    assert len(server.hits) == sent


# --- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
def test_on_one_origin_the_key_goes_along(way: Way, shop: Shop, status: int) -> None:
    """I8, R33: redirected on the same origin, the request is the same: one key, the same bytes."""
    for vendor, named in ((Vendor("stripe-v1"), STRIPE), (Vendor("square"), SQUARE)):
        fresh = Shop()
        with serving(redirect(status, "/v2"), vendor.charge) as server:
            assert way.buy(fresh, named, server.origin, client={"follow_redirects": True}) == "ch_1"
        assert len(vendor.charges) == 1
        assert [hit.target for hit in server.hits] == ["/charges", "/v2"]
        assert server.hits[0].body == server.hits[1].body
        assert [vendor.key_of(hit) for hit in server.hits] == fresh.given * 2


@pytest.mark.parametrize("status", [307, 308])
def test_to_another_origin_nothing_goes(way: Way, shop: Shop, status: int) -> None:
    """I8, K: elsewhere the key means nothing and is nobody's business: neither it nor the request is sent there."""
    for named in (STRIPE, SQUARE):
        with (
            serving() as elsewhere,
            serving(redirect(status, f"{elsewhere.origin}/in")) as server,
            pytest.raises(CallRefusedError, match="another origin"),
        ):
            way.buy(Shop(), named, server.origin, client={"follow_redirects": True})
        assert elsewhere.hits == []
        assert len(server.hits) == 1


def test_what_was_done_is_looked_at_without_the_key(way: Way, shop: Shop) -> None:
    """I8, K: 303 after a charge is followed by a GET, wherever it leads; the key stays behind."""
    with serving(answer(200)) as elsewhere, serving(redirect(303, f"{elsewhere.origin}/done")) as server:
        how = {"client": {"follow_redirects": True}, "read": careless}
        assert way.buy(shop, STRIPE, server.origin, **how) == "got 200"
    assert [(hit.method, hit.key, hit.body) for hit in elsewhere.hits] == [("GET", None, b"")]
    assert [hit.key for hit in server.hits] == shop.given


def test_a_page_is_no_result(pair: Way, shop: Shop) -> None:
    """R35, I6: a charge that is redirected to a log-in page was not answered, however well the page is."""
    with serving(redirect(302, "/login"), answer(200)) as server:
        how = {"client": {"follow_redirects": True}, "read": careless}
        with pytest.raises(Exception, match="may have been carried out"):
            pair.buy(shop, FORGETFUL, server.origin, **how)
        shop.later()
        with pytest.raises(CallUnknownError):
            pair.buy(shop, FORGETFUL, server.origin, **how)
    assert [hit.key for hit in server.hits] == [*shop.given, None]


# --- layers and times ------------------------------------------------------------------------------------------------


def retrying(way: Way, hours: Hours) -> Any:
    """A retry transport, to go below the bound one."""
    if way.asynchronous:
        return lambda below: AsyncRetryTransport(below, QUICK, budgets=Budgets(), ambient=hours.async_ambient)
    return lambda below: RetryTransport(below, QUICK, budgets=Budgets(), ambient=hours.ambient)


def test_a_retry_layer_below_repeats_the_same(way: Way, shop: Shop) -> None:
    """R40, R33: it finds the key in place: one key and the same bytes for every attempt, one charge."""
    vendor = Vendor("stripe-v1")
    with serving(vendor.charge_and_lose, vendor.charge) as server:
        assert way.buy(shop, STRIPE, server.origin, below=retrying(way, Hours())) == "ch_1"
    assert len(vendor.charges) == 1
    assert {(hit.key, hit.body) for hit in server.hits} == {(shop.given[0], server.hits[0].body)}


def test_what_a_retry_layer_hides_is_remembered(pair: Way, shop: Shop) -> None:
    """R37, I6: it gives a 404 whose first attempt was lost: that is no refusal, and is not recorded as one."""
    with serving(reset_after_commit, answer(404)) as server:
        with pytest.raises(pair.library.HTTPStatusError):
            pair.buy(shop, FORGETFUL, server.origin, below=retrying(pair, Hours()))
        shop.later()
        with pytest.raises(CallUnknownError):
            pair.buy(shop, FORGETFUL, server.origin)
    assert len(server.hits) == 2


def test_what_a_retry_layer_was_refused_is_no_attempt(pair: Way, shop: Shop) -> None:
    """R35: what was turned away at first and declined then was never carried out: that is a refusal, and final."""
    with serving(answer(429), answer(402)) as server:
        for _ in range(2):
            with pytest.raises(CallRejectedError, match="402"):
                pair.buy(shop, FORGETFUL, server.origin, below=retrying(pair, Hours()))
            shop.later()
    assert [hit.attempt for hit in server.hits] == ["1", "2"]


def test_an_intent_under_the_calls_key_is_its_request(shop: Shop) -> None:
    """R33, R40: `send()` in a call, with the key that it was given: its attempts are the call's, and charge once."""
    vendor = Vendor("stripe-v1")
    hours = Hours()
    once = Once(shop.records, scope="shop", observer=lambda event: None)

    def charge(key: str) -> str:
        with httpx2.Client(transport=CallTransport(httpx2.HTTPTransport(verify=NO_TLS), STRIPE)) as client:
            intent = Intent.new("POST", server.origin, json={"cents": 4200}, key=key)
            outcome = send(client, intent, policy=QUICK, budgets=Budgets(), ambient=hours.ambient)
            return id_of(outcome.raise_for_outcome())

    @once.operation(key=lambda: "order-1", name="buy", effects="resumable")
    def buy() -> str:
        return current().call("charge", charge, to=STRIPE)

    with serving(vendor.charge_and_lose, vendor.charge) as server:
        assert buy() == "ch_1"
    assert len(vendor.charges) == 1
    assert [hit.attempt for hit in server.hits] == ["1", "2"]
    assert len({hit.key for hit in server.hits}) == 1


def test_a_provider_is_no_name(shop: Shop) -> None:
    """R25: the name of a profile is not taken for the provider, and nothing is sent."""
    with serving() as server, pytest.raises(ConfigurationError, match="not str"):
        WAYS[0].buy(shop, STRIPE, server.origin, to="stripe-v1")
    assert server.hits == []


def test_a_body_that_is_too_large_is_not_sent(pair: Way, shop: Shop) -> None:
    """R33: what cannot be held in memory cannot be repeated; nothing left, so that it may be sent in another form."""
    vendor = Vendor("stripe-v1")

    def pieces() -> Any:
        yield from [b"x" * 1024] * 12 * 1024

    async def apieces() -> Any:
        for piece in pieces():
            yield piece

    content = apieces() if pair.asynchronous else pieces()
    with serving(vendor.charge) as server:
        with pytest.raises(BodyNotRepeatableError):
            pair.buy(shop, FORGETFUL, server.origin, {"method": "POST", "url": "/", "content": content})
        shop.later()
        assert pair.buy(shop, FORGETFUL, server.origin) == "ch_1"
    assert len(server.hits) == 1


class _Derives:
    """A call of its own."""

    def derived_key(self, call: str) -> str:
        return "00000000-0000-8000-8000-0000000000" + call


def test_when_the_call_is_over_nothing_more_is_sent() -> None:
    """R25, I6: a thread that outlives its call sends nothing under its key: nobody would know what came of it."""
    with (
        serving(answer(200)) as server,
        httpx2.Client(
            transport=CallTransport(httpx2.HTTPTransport(verify=NO_TLS), STRIPE), base_url=server.origin
        ) as client,
    ):
        with calling(_Derives(), "01") as key:
            assert careless(client.request(**CHARGE)) == "got 200"
            context = contextvars.copy_context()
        met: list[BaseException] = []

        def late() -> None:
            try:
                context.run(client.request, **CHARGE)
            except CallRefusedError as error:
                met.append(error)

        thread = threading.Thread(target=late)
        thread.start()
        thread.join(10)
        assert [str(error).partition("because ")[2] for error in met] == ["the call is over (call '01')"]
    assert [hit.key for hit in server.hits] == [key]


def test_two_calls_at_once_keep_their_keys() -> None:
    """R25: tasks of one process make calls at the same time, and each request has the key of its own."""

    async def charge(client: Any, name: str) -> str:
        with calling(_Derives(), name, to=STRIPE) as key:
            id_of(await client.request(**CHARGE))
            return key

    async def main(origin: str) -> list[str]:
        transport = AsyncCallTransport(httpx2.AsyncHTTPTransport(verify=NO_TLS), STRIPE)
        async with httpx2.AsyncClient(transport=transport, base_url=origin) as client:
            return await asyncio.gather(*[charge(client, f"{number:02}") for number in range(8)])

    with serving(*[answer(201, json_={"id": "ch_1"})] * 8) as server:
        keys = asyncio.run(main(server.origin))
    assert len(set(keys)) == 8
    assert sorted(hit.key or "" for hit in server.hits) == sorted(keys)
