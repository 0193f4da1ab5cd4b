"""requests, niquests and aiohttp as the tests use them: in the words that they have for httpx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import aiohttp
import niquests
import requests

from tests.client.certificates import authorities, trusting
from tests.client.ways import Hours, Result
from twicesafe.client import Budgets, Contract, Intent, Outcome, RetryPolicy, Unknown, report_of
from twicesafe.client.aiohttp import Request, RetryMiddleware, asend
from twicesafe.client.requests import RetryAdapter, send


class Names(NamedTuple):
    """A library's exceptions, under the names that httpx has for them."""

    TransportError: tuple[type[BaseException], ...]
    ConnectError: tuple[type[BaseException], ...]
    RemoteProtocolError: tuple[type[BaseException], ...]
    TimeoutException: tuple[type[BaseException], ...]
    TooManyRedirects: tuple[type[BaseException], ...]


class Address(NamedTuple):
    """Compares as text."""

    text: str

    @property
    def path(self) -> str:
        return urlsplit(self.text).path

    def __eq__(self, other: object) -> bool:
        return self.text.rstrip("/") == str(other).rstrip("/")

    __hash__ = None  # type: ignore[assignment]


class Next(NamedTuple):
    """Where a redirect would lead."""

    url: Address


class Answer(NamedTuple):
    """A response of any library."""

    status_code: int
    headers: Any
    content: bytes | None
    url: Address
    history: list[Any]
    is_closed: bool
    raw: Any

    def json(self) -> Any:
        return json.loads(self.content or b"")

    @property
    def next_request(self) -> Next | None:
        location = self.headers.get("Location")
        return None if location is None else Next(Address(urljoin(self.url.text, location)))


class Asked(NamedTuple):
    """A request, in words that all libraries share."""

    method: str
    url: str
    content: Any = None
    headers: Any = ()
    files: Any = None
    timeout: float | None = None
    contract: Contract | None = None


class Asking(NamedTuple):
    """A client as far as tests make requests with it."""

    base_url: str

    def build_request(
        self,
        method: str,
        url: str,
        content: Any = None,
        headers: Any = None,
        files: Any = None,
        timeout: float | None = None,
        extensions: Any = None,
    ) -> Asked:
        contract = (extensions or {}).get("twicesafe.contract")
        lines = dict(headers or {})
        return Asked(method, urljoin(self.base_url, url), content, lines, files, timeout, contract)

    def asked(self, what: Any) -> Asked:
        """What an intent amounts to, for those who have no `send()`."""
        if not isinstance(what, Intent):
            return what
        headers = dict(what.headers)
        if what.contract not in (Contract.SAFE, Contract.NEVER):
            headers["Idempotency-Key"] = what.key
        return Asked(what.method, urljoin(self.base_url, what.url), what.body or None, headers, contract=what.contract)

    def intent(self, what: Intent) -> Intent:
        """The intent with a whole address."""
        # Its class is frozen, and has no public way to change the address.
        changed = object.__new__(Intent)
        for name in Intent.__slots__:
            object.__setattr__(changed, name, getattr(what, name))
        object.__setattr__(changed, "url", urljoin(self.base_url, what.url))
        return changed


def of_error(error: BaseException) -> Result:
    return Result(None, None, error, report_of(error))


def of_outcome(outcome: Outcome[Any], answer: Callable[[Any], Answer]) -> Result:
    error = outcome.error if isinstance(outcome, Unknown) else None
    report = report_of(outcome)
    if outcome.response is not None:
        outcome = replace(outcome, response=answer(outcome.response))
    return Result(outcome, outcome.response, error, report)


@cache
def bundle() -> str:
    """A file with the certificates that these tests trust."""
    path = Path(mkdtemp(prefix="twicesafe-")) / "trusted.pem"
    path.write_text(authorities())
    return str(path)


# --- requests and niquests -------------------------------------------------------------------------------------------


def _names_of(library: Any) -> Names:
    known = library.exceptions
    broken = (known.ChunkedEncodingError, known.ContentDecodingError)
    return Names(
        TransportError=(known.ConnectionError, known.Timeout, *broken),
        ConnectError=(known.ConnectionError,),
        RemoteProtocolError=broken,
        # For a body that does not come in time they have no other word.
        TimeoutException=(known.Timeout, known.ConnectionError),
        TooManyRedirects=(known.TooManyRedirects,),
    )


class SessionBinding:
    """requests or niquests, by `send()` or through an adapter."""

    asynchronous = False

    def __init__(self, package: Any, *, typed: bool) -> None:
        self.package = package
        self.typed = typed
        self.library = _names_of(package)
        # niquests would keep a thread that watches idle connections.
        self._options: dict[str, Any] = {"keepalive_delay": None} if package is niquests else {}
        self.name = f"{package.__name__}-{'send' if typed else 'adapter'}"

    def perform(
        self,
        call: Callable[[Any], Any],
        hours: Hours,
        policy: RetryPolicy,
        budgets: Budgets | None = None,
        *,
        base_url: str = "",
        follow_redirects: bool = False,
        max_redirects: int = 20,
        timeout: float | None = None,
    ) -> Result:
        how: dict[str, Any] = {"budgets": Budgets() if budgets is None else budgets, "ambient": hours.ambient}
        with self.package.Session(**self._options) as session:
            session.trust_env = False
            session.verify = bundle()
            session.max_redirects = max_redirects
            asking = Asking(base_url)
            what = call(asking)
            try:
                if not self.typed:
                    asked = asking.asked(what)
                    inner = self.package.adapters.HTTPAdapter(**self._options)
                    adapter = RetryAdapter(inner, policy, contract=asked.contract, **how)
                    session.mount("https://", adapter)
                    session.mount("http://", adapter)
                    prepared = self._prepared(session, asked)
                    rest = {"timeout": asked.timeout or timeout, "allow_redirects": follow_redirects, "stream": True}
                    response = session.send(prepared, verify=session.verify, **rest)
                    return Result(None, self._answer(response), None, report_of(response))
                how |= {"policy": policy, "follow_redirects": follow_redirects, "timeout": timeout}
                if isinstance(what, Intent):
                    return of_outcome(send(session, asking.intent(what), **how), self._answer)
                how["timeout"] = what.timeout or timeout
                prepared = self._prepared(session, what)
                return of_outcome(send(session, prepared, contract=what.contract, **how), self._answer)
            except Exception as error:
                return of_error(error)

    def _prepared(self, session: Any, asked: Asked) -> Any:
        request = self.package.Request(
            asked.method, asked.url, data=asked.content, files=asked.files, headers=asked.headers
        )
        return session.prepare_request(request)

    def _answer(self, response: Any) -> Answer:
        content = None
        with suppress(OSError):
            content = response.content
        return Answer(
            response.status_code,
            response.headers,
            content,
            Address(response.url),
            response.history,
            response.raw.closed,
            response,
        )


# --- aiohttp ---------------------------------------------------------------------------------------------------------

_AIOHTTP = Names(
    TransportError=(aiohttp.ClientError,),
    ConnectError=(aiohttp.ClientConnectorError,),
    RemoteProtocolError=(aiohttp.ClientPayloadError,),
    TimeoutException=(TimeoutError,),
    TooManyRedirects=(aiohttp.TooManyRedirects,),
)


class AiohttpBinding:
    """aiohttp, by `asend()` or through a middleware."""

    asynchronous = True
    package = aiohttp
    library = _AIOHTTP

    def __init__(self, *, typed: bool) -> None:
        self.typed = typed
        self.name = f"aiohttp-{'send' if typed else 'middleware'}"

    def perform(
        self,
        call: Callable[[Any], Any],
        hours: Hours,
        policy: RetryPolicy,
        budgets: Budgets | None = None,
        **options: Any,
    ) -> Result:
        how: dict[str, Any] = {
            "policy": policy,
            "budgets": Budgets() if budgets is None else budgets,
            "ambient": hours.async_ambient,
        }
        return asyncio.run(self._perform(call, how, **options))

    async def _perform(
        self,
        call: Callable[[Any], Any],
        how: dict[str, Any],
        base_url: str = "",
        follow_redirects: bool = False,
        max_redirects: int = 20,
        timeout: float | None = None,  # noqa: ASYNC109 - what a client is made with
    ) -> Result:
        asking = Asking(base_url)
        what = call(asking)
        rest: dict[str, Any] = {"max_redirects": max_redirects + 1}  # It counts those that it does not follow.
        times = aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting()), timeout=times) as session:
            try:
                if self.typed:
                    if isinstance(what, Intent):
                        what = asking.intent(what)
                    else:
                        what = Request(what.method, what.url, contract=what.contract, **self._given(what))
                    outcome = await asend(session, what, follow_redirects=follow_redirects, **rest, **how)
                    return of_outcome(outcome, await self._answer(outcome.response))
                asked = asking.asked(what)
                rest |= {"allow_redirects": follow_redirects, **self._given(asked)}
                middleware = RetryMiddleware(contract=asked.contract, **how)
                response = await session.request(asked.method, asked.url, middlewares=[middleware], **rest)
                answer = await self._answer(response)
                return Result(None, answer(response), None, report_of(response))
            except Exception as error:
                return of_error(error)

    def _given(self, asked: Asked) -> dict[str, Any]:
        given: dict[str, Any] = {"headers": asked.headers, "data": asked.content}
        if asked.timeout is not None:
            given["timeout"] = aiohttp.ClientTimeout(sock_read=asked.timeout)
        if asked.files is not None:
            given["data"] = aiohttp.FormData()
            for name, file in asked.files.items():
                given["data"].add_field(name, file)
        return given

    async def _answer(self, response: Any) -> Callable[[Any], Answer]:
        content = None
        if response is not None:
            with suppress(aiohttp.ClientError):
                content = await response.read()

        def answer(response: Any) -> Answer:
            return Answer(
                response.status,
                response.headers,
                content,
                Address(str(response.url)),
                [
                    Answer(hop.status, hop.headers, None, Address(str(hop.url)), [], True, hop)
                    for hop in response.history
                ],
                response.closed,
                response,
            )

        return answer


def _head(hop: Any) -> Answer:
    return Answer(hop.status, hop.headers, None, Address(str(hop.url)), [], True, hop)


SESSION_BINDINGS = [
    *[SessionBinding(package, typed=typed) for package in (requests, niquests) for typed in (True, False)],
    *[AiohttpBinding(typed=typed) for typed in (True, False)],
]
