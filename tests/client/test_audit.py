"""`audit()`, put to the libraries themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import aiohttp
import aiohttp_retry
import boto3
import httpx
import httpx2
import httpx_retries
import niquests
import pytest
import requests
import stripe
import tenacity
import urllib3
from botocore.config import Config

from tests.client.bindings import NO_TLS
from twicesafe.client import RetryPolicy
from twicesafe.client.aiohttp import RetryMiddleware
from twicesafe.client.audit import Finding, audit
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport
from twicesafe.client.requests import RetryAdapter

THREE = RetryPolicy(attempts=3)
AWS: dict[str, Any] = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}


def transport(library: Any, **how: Any) -> Any:
    return library.HTTPTransport(verify=NO_TLS, **how)


def session(library: Any, retries: Any) -> Any:
    made = library.Session()
    made.mount("https://", library.adapters.HTTPAdapter(max_retries=retries))
    return made


def only(*things: Any) -> Finding:
    """The one layer that is found beside this package's, of three attempts."""
    (finding,) = audit(*things, policy=THREE)
    return finding


@pytest.mark.parametrize("library", [httpx2, httpx], ids=lambda library: library.__name__)
def test_connections_that_httpx_tries_again(library: Any) -> None:
    """R40: HTTPTransport(retries=2) is found below a client, in a mount and below a transport of this package."""
    assert audit(library.Client(transport=transport(library))) == []
    plain = only(library.Client(transport=transport(library, retries=2)))
    assert (plain.where, plain.attempts, plain.layers, plain.hits) == ("Client.transport.pool", 3, (3, 3), 9)
    assert plain.advice == "Set HTTPTransport(retries=0)"
    assert not plain.multiplies and "9 connections" in str(plain)
    mounts = {"all://x.example": transport(library, retries=1)}
    mounted = only(library.Client(transport=transport(library), mounts=mounts))
    assert (mounted.where, mounted.layers) == ("Client.mounts['all://x.example'].pool", (3, 2))
    wrapped = RetryTransport(transport(library, retries=2), RetryPolicy(attempts=5))
    assert only(library.Client(transport=wrapped)).layers == (5, 3)
    below = AsyncRetryTransport(library.AsyncHTTPTransport(verify=NO_TLS, retries=1), RetryPolicy(attempts=5))
    assert only(library.AsyncClient(transport=below)).layers == (5, 2)


def test_a_retry_transport_of_another_package() -> None:
    """R40, K: httpx-retries under three attempts makes nine, and says of which methods."""
    other = httpx_retries.RetryTransport(transport(httpx), retry=httpx_retries.Retry(total=2))
    found = only(httpx.Client(transport=other))
    assert (found.what, found.hits, found.multiplies) == ("httpx_retries.RetryTransport", 9, True)
    assert "POST" not in found.which and "PUT" in found.which
    none = httpx_retries.RetryTransport(transport(httpx), retry=httpx_retries.Retry(total=0))
    assert audit(httpx.Client(transport=none)) == []


class Signing:
    """A transport as people write them, around another."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def handle_request(self, request: Any) -> Any:
        return self.inner.handle_request(request)

    def close(self) -> None:
        self.inner.close()


def test_what_a_transport_of_your_own_sends_through() -> None:
    """R40: a transport that nobody knows is looked into."""
    found = only(httpx2.Client(transport=Signing(transport(httpx2, retries=1))))
    assert found.where == "Client.transport.inner.pool"


@pytest.mark.parametrize("library", [requests, niquests], ids=lambda library: library.__name__)
def test_adapters_of_requests_and_niquests(library: Any) -> None:
    """R40: HTTPAdapter(max_retries=3) is three more, by its own rule of methods; 0 and the default are none."""
    assert audit(library.Session()) == []
    assert audit(session(library, 0)) == []
    found = only(session(library, 3))
    assert (found.what, found.where) == (f"{library.__name__}.HTTPAdapter", "Session.adapters['https://']")
    assert (found.layers, found.hits, found.advice) == ((3, 4), 12, "Set HTTPAdapter(max_retries=0)")
    assert "PUT" in found.which and "POST" not in found.which
    wrapped = library.Session()
    wrapped.mount("https://", RetryAdapter(library.adapters.HTTPAdapter(max_retries=3), THREE))
    assert audit(wrapped) == []


@pytest.mark.parametrize(
    ("retry", "attempts", "multiplies"),
    [
        pytest.param({"total": 2, "allowed_methods": None, "status_forcelist": [503]}, 3, True, id="every method"),
        pytest.param({"total": None, "connect": 2, "read": 0, "status": 0, "other": 0}, 3, False, id="connections"),
        pytest.param({"total": None, "connect": 1, "read": 1, "status": 1, "other": 0}, 4, True, id="each kind"),
        pytest.param({"total": None, "connect": 1}, None, True, id="no limit"),
    ],
)
def test_a_retry_of_urllib3(retry: dict[str, Any], attempts: int | None, multiplies: bool) -> None:
    """R40: whichever way the number is said, it is read."""
    found = only(session(requests, urllib3.Retry(**retry)))
    assert (found.attempts, found.multiplies) == (attempts, multiplies)


@pytest.mark.parametrize(
    "retry", [{"total": 0}, {"total": False}, {"total": 3, "connect": 0, "read": 0, "status": 0, "other": 0}], ids=str
)
def test_a_retry_of_urllib3_that_does_not(retry: dict[str, Any]) -> None:
    """R40: and where there is none, nothing is found."""
    assert audit(session(requests, urllib3.Retry(**retry))) == []


def test_urllib3_itself() -> None:
    """R40: a PoolManager that was told nothing tries four times."""
    assert only(urllib3.PoolManager()).attempts == 4
    assert only(urllib3.PoolManager(retries=2)).layers == (3, 3)
    assert only(urllib3.HTTPConnectionPool("x.example")).attempts == 4
    assert audit(urllib3.PoolManager(retries=False)) == []
    assert audit(urllib3.HTTPConnectionPool("x.example", retries=False)) == []


def test_aiohttp() -> None:
    """R40, K: a session tries broken connections twice, and aiohttp-retry three times around that."""

    async def main() -> None:
        async with aiohttp.ClientSession() as plain:
            hidden = only(plain)
            assert (hidden.attempts, hidden.hits) == (2, 6)
            outer, inner = audit(aiohttp_retry.RetryClient(plain), policy=THREE)
            assert (outer.layers, inner.layers) == ((3, 3), (3, 3, 2))
        async with aiohttp.ClientSession(middlewares=[RetryMiddleware(THREE)]) as retrying:
            assert audit(retrying) == []
            assert only(aiohttp_retry.RetryClient(retrying)).layers == (3, 3)

    asyncio.run(main())


def test_botocore() -> None:
    """R40: each mode has its number; one attempt in all is found by nobody."""
    found = only(boto3.client("sqs", **AWS))
    assert (found.what, found.layers) == ("botocore.SQS", (3, 5))
    assert found.advice == 'Set Config(retries={"total_max_attempts": 1})'
    standard = Config(retries={"mode": "standard"})
    assert only(boto3.client("sqs", config=standard, **AWS)).attempts == 3
    assert only(boto3.client("sqs", config=Config(retries={"max_attempts": 1}), **AWS)).attempts == 2
    assert audit(boto3.client("sqs", config=Config(retries={"total_max_attempts": 1}), **AWS)) == []
    resource = only(boto3.resource("dynamodb", **AWS))
    assert (resource.attempts, resource.where) == (10, "dynamodb.ServiceResource.meta.client")


def test_stripe(monkeypatch: pytest.MonkeyPatch) -> None:
    """R40: a client's own setting, and the module's for the process."""
    assert only(stripe.StripeClient("sk_test_x", max_network_retries=2)).layers == (3, 3)
    assert audit(stripe.StripeClient("sk_test_x", max_network_retries=0)) == []
    monkeypatch.setattr(stripe, "max_network_retries", 2)
    assert only(stripe).advice == "Set stripe.max_network_retries = 0"
    monkeypatch.setattr(stripe, "max_network_retries", 0)
    assert audit(stripe) == []


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_generated_sdks(package: str) -> None:
    """R40: what a generator's SDKs keep is found, and the client that they send through is looked into."""
    above = type("BaseClient", (), {"__module__": f"{package}._base_client"})
    sdk: Any = type("Client", (above,), {"__module__": f"{package}._client"})()
    sdk._client, sdk.max_retries = httpx.Client(transport=transport(httpx, retries=1)), 2
    outer, inner = audit(sdk, policy=THREE)
    assert (outer.what, outer.layers, outer.advice) == (f"{package}.Client", (3, 3), "Set Client(max_retries=0)")
    assert inner.layers == (3, 3, 2)
    sdk._client, sdk.max_retries = httpx.Client(transport=RetryTransport(transport(httpx), RetryPolicy(attempts=4))), 2
    assert only(sdk).layers == (3, 4)
    sdk.max_retries = 0
    assert audit(sdk) == []


def test_a_decorator_of_tenacity() -> None:
    """R40, K: three rounds around three attempts are nine; around what retries below, they multiply on."""

    @tenacity.retry(stop=tenacity.stop_after_attempt(3))
    def pay() -> None: ...

    @tenacity.retry(stop=tenacity.stop_after_delay(9) | tenacity.stop_after_attempt(2))
    async def apay() -> None: ...

    @tenacity.retry
    def forever() -> None: ...

    def plain() -> None: ...

    assert str(only(pay)) == (
        "tenacity at pay makes 3 attempts of its own: 3 x 3 = 9. "
        "Make the intent outside of the function, and take the decorator off."
    )
    assert only(apay).layers == (2, 3)
    assert only(forever).hits is None and "any number" in str(only(forever))
    assert audit(plain) == []
    outer, inner = audit(pay, session(requests, 1), policy=THREE)
    assert (outer.layers, inner.layers, inner.hits) == ((3, 3), (3, 3, 2), 18)


def test_a_version_that_tells_nothing_is_a_finding() -> None:
    """R40: where a library keeps its retries elsewhere than it did, that is said, and not taken for none."""
    unknown = type("RetryTransport", (), {"__module__": "httpx_retries.transport"})()
    found = only(unknown)
    assert found.attempts is None and found.advice.startswith("See for yourself")


def test_nothing_is_imported_for_it() -> None:
    """R40, House: auditing a thing that no library knows brings in none of them."""
    libraries = ("httpx", "httpx2", "requests", "niquests", "urllib3", "aiohttp", "botocore", "stripe", "tenacity")
    code = (
        "import sys; from twicesafe.client.audit import audit; assert audit(object(), print) == [];"
        f"found = [name for name in {libraries} if name in sys.modules]; assert not found, found"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
