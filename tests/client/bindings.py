"""Everything that can send, by `send()` and under or within a client: httpx2 and httpx, sync and async; requests and
niquests; aiohttp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import anyio
import httpx
import httpx2

from tests.client.certificates import trusting
from tests.client.session_bindings import SESSION_BINDINGS
from tests.client.ways import NO_TLS, QUICK, WALL, Hours, Result
from twicesafe.client import Budgets, Contract, Intent, Outcome, RetryPolicy, Unknown, report_of
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send

__all__ = ["BINDINGS", "HTTPX", "NO_TLS", "QUICK", "TRANSPORTS", "TRIO", "TYPED", "WALL", "Binding", "Hours", "Result"]


class Binding(NamedTuple):
    """One way to send. Those of other libraries have the same members."""

    library: Any
    asynchronous: bool
    typed: bool
    loop: str = "asyncio"

    @property
    def name(self) -> str:
        return "-".join(
            [
                self.library.__name__,
                "trio" if self.loop == "trio" else "async" if self.asynchronous else "sync",
                "send" if self.typed else "transport",
            ]
        )

    def perform(
        self,
        call: Callable[[Any], Intent | Any],
        hours: Hours,
        policy: RetryPolicy,
        budgets: Budgets | None = None,
        **client: Any,
    ) -> Result:
        """Open a client, let `call` make an intent or a request with it, send that, and close the client.

        The client trusts `certificates.authorities()`.
        """
        how = {"policy": policy, "budgets": Budgets() if budgets is None else budgets}
        if self.asynchronous:
            story = partial(self._aperform, call, {**how, "ambient": hours.async_ambient}, client)
            return anyio.run(story, backend=self.loop)
        return self._perform(call, {**how, "ambient": hours.ambient}, client)

    def _perform(self, call: Callable[[Any], Any], how: dict[str, Any], options: dict[str, Any]) -> Result:
        transport = self.library.HTTPTransport(verify=trusting())
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
        transport = self.library.AsyncHTTPTransport(verify=trusting())
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


HTTPX = [
    Binding(library, asynchronous, typed)
    for library in (httpx2, httpx)
    for asynchronous in (False, True)
    for typed in (True, False)
]
TRIO = [Binding(httpx2, asynchronous=True, typed=typed, loop="trio") for typed in (True, False)]
"""For the cases: what else is not the same under trio has tests of its own."""

BINDINGS: list[Any] = [*HTTPX, *SESSION_BINDINGS]
TYPED = [binding for binding in BINDINGS if binding.typed]
TRANSPORTS = [binding for binding in BINDINGS if not binding.typed]
