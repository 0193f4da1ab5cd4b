"""Intents, and what carries their keys."""

from __future__ import annotations

import asyncio
import io
from dataclasses import FrozenInstanceError
from pathlib import Path
from uuid import UUID

import httpx
import httpx2
import pytest

from tests.client.bindings import NO_TLS, QUICK, Binding, Hours
from tests.client.scripted import answer, serving
from twicesafe.client import (
    BodyNotRepeatableError,
    Budgets,
    Contract,
    Intent,
    OutcomeError,
    RejectedError,
    Sent,
    Stop,
    Succeeded,
    Unknown,
    UnknownError,
    report_of,
)
from twicesafe.client.httpx import asend, send
from twicesafe.errors import ConfigurationError, InvalidKeyError

URL = "https://pay.example/charges"


def test_equal_data_are_two_intents() -> None:
    """R1, I8: two intents never share a key, however equal their data; one intent never changes its own."""
    one, other = (Intent.new("post", URL, json={"amount": 100}) for _ in range(2))
    assert UUID(one.key).version == 4 and one.key != other.key and one != other
    assert (one.method, one.body, one.contract) == ("POST", b'{"amount":100}', Contract.KEYED)
    with pytest.raises(FrozenInstanceError):
        one.key = other.key


def test_the_bytes_are_frozen_with_the_key() -> None:
    """I8, K: a cart that is edited after the intent was made changes nothing in it."""
    cart = {"items": ["hat"], "quote": 1.10}
    intent = Intent.new("POST", URL, json=cart)
    cart["items"].append("shoes")
    cart["quote"] = 1.20
    assert intent.body == b'{"items":["hat"],"quote":1.1}'


def test_a_derived_intent_is_the_same_after_a_restart() -> None:
    """R33: the key follows from the cart, so that a process that knows nothing else asks under the same one."""
    first, again = (Intent.derived("charge", "cart-17", url=URL, json={"amount": 100}) for _ in range(2))
    assert first == again
    assert first.key != Intent.derived("charge", "cart-18", url=URL, json={"amount": 100}).key
    with pytest.raises(InvalidKeyError):
        Intent.derived("charge", None, url=URL)


def test_every_way_to_give_a_body(tmp_path: Path) -> None:
    """R33: JSON, a form, text, bytes, pieces, and a file from where it stands."""
    path = tmp_path / "upload"
    path.write_bytes(b"0123456789the rest")
    with path.open("rb") as file:
        file.seek(10)
        from_file = Intent.new("POST", URL, content=file)
    bodies = {
        "json": Intent.new("POST", URL, json=None),
        "form": Intent.new("POST", URL, form={"a": ["1", "2"], "b": "ä"}),
        "text": Intent.new("POST", URL, content="ä"),
        "pieces": Intent.new("POST", URL, content=iter([b"a", b"b"])),
        "file": from_file,
        "stream": Intent.new("POST", URL, content=Unseekable(b"abc")),
        "nothing": Intent.new("POST", URL),
    }
    assert {name: intent.body for name, intent in bodies.items()} == {
        "json": b"null",
        "form": b"a=1&a=2&b=%C3%A4",
        "text": "ä".encode(),
        "pieces": b"ab",
        "file": b"the rest",
        "stream": b"abc",
        "nothing": b"",
    }
    assert bodies["json"].headers == (("Content-Type", "application/json"),)
    assert bodies["form"].headers == (("Content-Type", "application/x-www-form-urlencoded"),)
    assert bodies["text"].headers == ()
    own = Intent.new("POST", URL, json=1, headers={"content-type": "application/vnd.pay+json"})
    assert own.headers == (("content-type", "application/vnd.pay+json"),)


class Unseekable(io.BytesIO):
    """A pipe, say."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")

    def seek(self, *where: int) -> int:
        raise io.UnsupportedOperation("seek")


def test_a_body_that_is_too_large_is_refused_when_it_is_given() -> None:
    """R33: what cannot be held cannot be sent twice; the file is left as it was found."""
    file = io.BytesIO(b"x" * 100)
    file.seek(10)
    with pytest.raises(BodyNotRepeatableError):
        Intent.new("POST", URL, content=file, body_limit=89)
    assert file.tell() == 10
    assert len(Intent.new("POST", URL, content=file, body_limit=90).body) == 90
    for content in (b"x" * 100, "x" * 100, iter([b"x"] * 100), Unseekable(b"x" * 100)):
        with pytest.raises(BodyNotRepeatableError):
            Intent.new("POST", URL, content=content, body_limit=99)
    with pytest.raises(BodyNotRepeatableError):
        Intent.new("POST", URL, json="x" * 100, body_limit=99)


def test_what_makes_no_intent_is_refused() -> None:
    """R4, R33: two bodies, numbers that are none, text files, and keys that no server takes."""
    for wrong in ({"json": 1, "content": b"1"}, {"form": {}, "json": 1}, {"content": io.StringIO("text")}):
        with pytest.raises(ConfigurationError):
            Intent.new("POST", URL, **wrong)
    with pytest.raises(ValueError, match="JSON"):
        Intent.new("POST", URL, json=float("nan"))
    for key in ("", " ", "k\n", "ä", "k" * 256):
        with pytest.raises(InvalidKeyError):
            Intent.new("POST", URL, key=key)


def test_nothing_printed_holds_a_whole_key() -> None:
    """R22: the key is on every result and every exception, and in no text that is made of them."""
    intent = Intent.new("POST", URL, json={"card": "4242-4242-4242-4242"})
    with serving(listening=False) as server:
        lost = Intent.new("POST", server.origin, key=intent.key)
        with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
            outcome = send(client, lost, budgets=Budgets(), ambient=Hours().ambient)
    assert isinstance(outcome, Unknown)
    with pytest.raises(UnknownError) as caught:
        outcome.raise_for_outcome()
    assert outcome.key == caught.value.key == report_of(outcome).key == intent.key
    texts = [repr(thing) for thing in (intent, outcome, report_of(outcome), caught.value)] + [str(caught.value)]
    assert [text for text in texts if intent.key in text or "4242-4242-4242-4242" in text] == []
    assert intent.key[-4:] in repr(intent)


def test_what_an_address_holds_in_confidence_is_not_shown() -> None:
    """R22: a password, a query and a key in the path stay out of what ends in logs."""
    key = "k-123456789-123456789"
    intent = Intent.new("POST", f"https://shop:pa@ss@pay.example/once/{key}?token=abc#d", key=key)
    assert repr(intent).startswith("Intent(POST https://pay.example/once/…6789 key=…6789 ")
    assert [secret for secret in ("pa@ss", "token", key) if secret in repr(intent)] == []


def test_a_success_is_its_response() -> None:
    """R35: `raise_for_outcome()` gives the response of a success and raises whatever is not one."""
    transport = httpx.HTTPTransport(verify=NO_TLS)
    with serving(answer(201), answer(402)) as server, httpx.Client(transport=transport) as client:
        paid = send(client, Intent.new("POST", server.origin), budgets=Budgets())
        declined = send(client, Intent.new("POST", server.origin), budgets=Budgets())
    assert paid.raise_for_outcome().status_code == 201
    with pytest.raises(RejectedError) as caught:
        declined.raise_for_outcome()
    assert isinstance(caught.value, OutcomeError)
    assert caught.value.outcome is declined and caught.value.key == declined.key


def test_the_key_is_on_what_the_callers_own_code_raises(httpx_typed: Binding) -> None:
    """I8: an exception that is no outcome passes through, with the key and the attempts so far on it."""

    def broken(request: object) -> None:
        raise LookupError("the caller's own")

    async def abroken(request: object) -> None:
        broken(request)

    intent = Intent.new("POST", "http://127.0.0.1:9", json=1)
    hook = abroken if httpx_typed.asynchronous else broken
    result = httpx_typed.perform(lambda client: intent, Hours(), QUICK, event_hooks={"request": [hook]})
    assert isinstance(result.error, LookupError)
    assert result.report.key == intent.key and result.report.attempts == ()


def test_the_key_is_on_what_cannot_even_be_built() -> None:
    """I8: an address that is none raises the library's own error, and the key is on it."""
    intent = Intent.new("POST", "http://[::1", json=1)
    with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        with pytest.raises(httpx2.InvalidURL) as caught:
            send(client, intent)
        with pytest.raises(httpx2.UnsupportedProtocol) as also:
            send(client, Intent.new("POST", "ftp://pay.example", key=intent.key))
    assert report_of(caught.value).key == report_of(also.value).key == intent.key


def test_the_wrong_client_is_told_apart() -> None:
    """R35: an async client for `send()`, a sync one for `asend()`, and what is no client at all."""
    intent = Intent.new("POST", URL)
    with pytest.raises(ConfigurationError, match="asend"):
        send(httpx2.AsyncClient(verify=NO_TLS), intent)
    with httpx2.Client(verify=NO_TLS) as client, pytest.raises(ConfigurationError, match=r"send\(\)"):
        asyncio.run(asend(client, intent))
    with pytest.raises(ConfigurationError, match="httpx"):
        send(object(), intent)


def test_a_client_may_be_a_subclass() -> None:
    """R35: the library is found through what a client's class descends from, as frameworks' test clients do."""

    class Ours(httpx2.Client):
        pass

    with serving(answer(201)) as server, Ours(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        assert isinstance(send(client, Intent.new("POST", server.origin), budgets=Budgets()), Succeeded)


def test_the_key_has_one_place() -> None:
    """I8: a key among the headers beside the intent's own is refused, and another carrier's name is the policy's."""
    with serving(answer(201)) as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        intent = Intent.new("POST", server.origin, headers={"idempotency-key": "other"})
        with pytest.raises(ConfigurationError):
            send(client, intent)
        policy = QUICK.but(header="PayPal-Request-Id")
        named = Intent.new("POST", server.origin, key="k-1")
        outcome = send(client, named, policy=policy, budgets=Budgets())
        assert server.hits[0].header("paypal-request-id") == "k-1" and server.hits[0].key is None
    assert outcome.key == "k-1"


def test_a_get_needs_no_key() -> None:
    """R36: a safe operation is repeated without one, and none is sent."""
    with serving(answer(503), answer(200)) as server:
        with httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
            outcome = send(client, Intent.new("GET", server.origin), budgets=Budgets(), ambient=Hours().ambient)
        assert [hit.key for hit in server.hits] == [None, None]
    assert isinstance(outcome, Succeeded) and outcome.key is None


@pytest.mark.parametrize("key", ["", "  ", "a\x7f"])
def test_a_request_with_a_key_that_no_server_takes_is_not_sent(key: str) -> None:
    """R4, G6: an empty key is a mistake and never "no key": nothing is sent."""
    with serving() as server, httpx2.Client(transport=httpx2.HTTPTransport(verify=NO_TLS)) as client:
        request = client.build_request("POST", server.origin, headers={"Idempotency-Key": key})
        with pytest.raises(InvalidKeyError):
            send(client, request)
        assert server.hits == []


def test_a_failure_without_an_answer_has_no_response() -> None:
    """R35: what the library raised last is the outcome's error, and the cause of what is raised for it."""
    with serving(listening=False) as server, httpx.Client(transport=httpx.HTTPTransport(verify=NO_TLS)) as client:
        outcome = send(client, Intent.new("POST", server.origin), budgets=Budgets(), ambient=Hours().ambient)
    assert isinstance(outcome, Unknown) and outcome.response is None
    assert (outcome.sent, outcome.stop) == (Sent.NO, Stop.ATTEMPTS)
    with pytest.raises(UnknownError) as caught:
        outcome.raise_for_outcome()
    assert isinstance(caught.value.__cause__, httpx.ConnectError)
    assert caught.value.__cause__.request.url == server.origin
