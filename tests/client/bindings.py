"""Everything that can send: httpx2 and httpx, sync and async, by `send()` and through a retry transport."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import httpx
import httpx2

from twicesafe.client import (
    Ambient,
    AsyncAmbient,
    Budgets,
    Contract,
    Intent,
    Outcome,
    Report,
    RetryPolicy,
    Unknown,
    report_of,
)
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Made once: reading the machine's certificates is most of the cost of a client."""


class Hours:
    """Time in which waiting takes none: `waits` are recorded, and the clock jumps. `asleep` is called at each."""

    def __init__(self, fraction: float = 0.5, asleep: Callable[[], object] = lambda: None) -> None:
        self.waits: list[float] = []
        self._fraction = fraction
        self._asleep = asleep

    def clock(self) -> float:
        return time.monotonic() + sum(self.waits)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._asleep()

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    @property
    def ambient(self) -> Ambient:
        return Ambient(clock=self.clock, sleep=self.sleep, fraction=lambda: self._fraction)

    @property
    def async_ambient(self) -> AsyncAmbient:
        return AsyncAmbient(clock=self.clock, sleep=self.asleep, fraction=lambda: self._fraction)


class Result(NamedTuple):
    """What came of it. `outcome` is None through a transport, which has no place for one."""

    outcome: Outcome[Any] | None
    response: Any
    error: BaseException | None
    report: Report | None


QUICK = RetryPolicy(deadline=timedelta(seconds=20), attempt_timeout=timedelta(seconds=5))


class Binding(NamedTuple):
    """One way to send."""

    library: Any
    asynchronous: bool
    typed: bool

    @property
    def name(self) -> str:
        return "-".join(
            [
                self.library.__name__,
                "async" if self.asynchronous else "sync",
                "send" if self.typed else "transport",
            ]
        )

    def perform(self, call: Callable[[Any], Intent | Any], hours: Hours, policy: RetryPolicy, **client: Any) -> Result:
        """Open a client, let `call` make an intent or a request with it, send that, and close the client."""
        how = {"policy": policy, "budgets": Budgets()}
        if self.asynchronous:
            return asyncio.run(self._aperform(call, {**how, "ambient": hours.async_ambient}, client))
        return self._perform(call, {**how, "ambient": hours.ambient}, client)

    def _perform(self, call: Callable[[Any], Any], how: dict[str, Any], options: dict[str, Any]) -> Result:
        transport = self.library.HTTPTransport(verify=NO_TLS)
        wrapped = transport if self.typed else RetryTransport(transport, **how)
        with self.library.Client(transport=wrapped, **options) as client:
            what = call(client)
            try:
                if self.typed:
                    return of_outcome(send(client, what, **how))
                return of_response(client.send(as_request(client, what)))
            except Exception as error:
                return of_error(error)

    async def _aperform(self, call: Callable[[Any], Any], how: dict[str, Any], options: dict[str, Any]) -> Result:
        transport = self.library.AsyncHTTPTransport(verify=NO_TLS)
        wrapped = transport if self.typed else AsyncRetryTransport(transport, **how)
        async with self.library.AsyncClient(transport=wrapped, **options) as client:
            what = call(client)
            try:
                if self.typed:
                    return of_outcome(await asend(client, what, **how))
                return of_response(await client.send(as_request(client, what)))
            except Exception as error:
                return of_error(error)


def as_request(client: Any, what: Intent | Any) -> Any:
    """The request that an intent amounts to, for those who have no `send()`."""
    if not isinstance(what, Intent):
        return what
    headers = list(what.headers)
    if what.contract not in (Contract.SAFE, Contract.NEVER):
        headers.append(("Idempotency-Key", what.key))
    extensions = {"twicesafe.contract": what.contract}
    return client.build_request(
        what.method, what.url, content=what.body or None, headers=headers, extensions=extensions
    )


def of_outcome(outcome: Outcome[Any]) -> Result:
    error = outcome.error if isinstance(outcome, Unknown) else None
    return Result(outcome, outcome.response, error, report_of(outcome))


def of_response(response: Any) -> Result:
    return Result(None, response, None, report_of(response))


def of_error(error: BaseException) -> Result:
    return Result(None, None, error, report_of(error))


BINDINGS = [
    Binding(library, asynchronous, typed)
    for library in (httpx2, httpx)
    for asynchronous in (False, True)
    for typed in (True, False)
]
TYPED = [binding for binding in BINDINGS if binding.typed]
TRANSPORTS = [binding for binding in BINDINGS if not binding.typed]
