"""twicesafe for Starlette: an operation's contract stands on its endpoint.

    safe = Idempotency(store, scope=current_user)

    @safe.operation(effects="transactional", required=True)
    async def create_charge(request: Request) -> Response: ...

    app = Starlette(routes=[Route("/charges", create_charge, methods=["POST"])], middleware=[safe.middleware])

See `routes` for how it works. Starlette's exception handlers answer inside of the middleware, so it is their answer
that is recorded (E4). What checks the caller by a decorator, `@requires` say, goes above the contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial, wraps
from inspect import isawaitable
from typing import Any, Final, TypeVar, cast

from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from twicesafe.asgi import DRAIN
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import Answer, Propagate, Result
from twicesafe.endpoint import check_loop, check_methods, is_async, qualified_name_of, served_by
from twicesafe.errors import ConfigurationError
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, KeyedRequest, Send
from twicesafe.observe import Observer, log_events
from twicesafe.routes import Contracts
from twicesafe.stores.contract import AsyncStore

__all__ = ["PUBLIC", "Idempotency", "KeyedRequest"]

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
CHANGING: Final = ("POST", "PUT", "PATCH", "DELETE")
"""Methods that a class may have functions for."""
ScopeOf = Callable[[Request], Scope | Awaitable[Scope | None] | None]


class Idempotency(Contracts):
    """Makes operations of Starlette applications happen once per key.

    `scope` is a function of the request that gives a stable identity of the caller as a `str` (of a user or tenant,
    never of a login session), or PUBLIC. There is no default, because every default lets one caller see another's
    answer (R6). Where it gives None a request under a key is refused with 403; it may raise an HTTPException.

    `policy` is what operations that say nothing else go by. `drain` is how long a shutdown waits for work whose client
    is gone.
    """

    def __init__(
        self,
        store: AsyncStore,
        *,
        scope: ScopeOf | Scope,
        policy: Policy | None = None,
        observer: Observer = log_events,
        drain: timedelta = DRAIN,
    ) -> None:
        super().__init__(store, policy, observer, drain)
        if not callable(scope) and scope is not PUBLIC:
            raise ConfigurationError("scope must be a function of the request that says who the caller is, or PUBLIC")
        self._who: ScopeOf = scope if callable(scope) else lambda _: PUBLIC
        self._app: object = None
        self.middleware = Middleware(lambda app: partial(self._serve, app))
        """For the application that has the routes, or has them mounted: the last of its `middleware`."""

    def operation(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        rebuild: Callable[[StoredResponse, Request], Any] | None = None,
        **settings: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        """The contract of the endpoint below it, a function or a method of an HTTPEndpoint: a policy, settings of one,
        or both. Requests by a method that the policy does not take keys with go through.

        `name` is the endpoint's own by default, `Charges.post` for a method; each is used once. `rebuild` makes the
        answer to a duplicate anew, where the first one's body is not kept, or always with `duplicates="rebuilt"`: `def`
        or `async def`, given what is stored and the duplicate's request, it returns a response, or None for what is
        stored.
        """
        chosen = self._chosen(policy, settings)
        making = None if rebuild is None else _rebuilding(rebuild)

        def decorate(endpoint: Endpoint) -> Endpoint:
            if isinstance(endpoint, type):
                raise ConfigurationError(f"put the contract on the methods of {endpoint.__name__}, not on the class")
            operation = Operation(name or qualified_name_of(endpoint), chosen, making)
            self._check(endpoint, operation)
            check_loop(operation, endpoint)
            self._add(operation)
            wrapper = self._wrap(endpoint, operation)
            wrapper.twicesafe_operation = operation  # type: ignore[attr-defined]
            return cast("Endpoint", wrapper)

        return decorate

    def connection(self, request: Request) -> Any:
        """The driver's connection of a transactional operation, inside its transaction, which is committed with the
        answer. Do not commit it. A request without a key gets one too."""
        return self._keyed(request.scope).connection

    def current(self, request: Request) -> KeyedRequest:
        """The KeyedRequest, for the keys of downstream calls. Its `key` is empty where none was sent."""
        return self._keyed(request.scope)

    async def _serve(self, app: ASGIApp, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if not self._seen_whole:
            self._app = scope.get("app")
        await super()._serve(app, scope, receive, send)

    def _see_whole(self) -> None:
        for route in _each_route(self._app):
            endpoint = getattr(route, "endpoint", None)
            its_class = endpoint if isinstance(endpoint, type) else None
            for operation, served in served_by(endpoint, its_class, getattr(route, "methods", None) or CHANGING):
                if self._operations.get(operation.name) is operation:
                    check_methods(operation, served)
        super()._see_whole()

    def _wrap(self, endpoint: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        call = endpoint if is_async(endpoint) else partial(run_in_threadpool, endpoint)
        takes = operation.policy.takes

        @wraps(endpoint)
        async def entering(*values: Any, **named: Any) -> Any:
            request = next(value for value in (*values, *named.values()) if isinstance(value, Request))
            if takes(request.method):
                keyed = self._keyed(request.scope)
                who = self._who(request)
                result = await self._enter(keyed, operation, request, await who if isawaitable(who) else who)
                if result is not None:
                    return _stand_in(result)
                keyed.entered = True
            return await call(*values, **named)

        return entering


def _each_route(routed: Any) -> Iterator[Any]:
    for route in getattr(routed, "routes", None) or ():
        yield route
        yield from _each_route(route)


def _rebuilding(rebuild: Callable[[StoredResponse, Request], Any]) -> Callable[[StoredResponse, Request], Any]:
    made: Callable[..., Any] = rebuild
    call = made if is_async(made) else partial(run_in_threadpool, made)

    async def rebuilding(stored: StoredResponse, request: Request) -> StoredResponse | None:
        given = await call(stored, request)
        if isinstance(given, Response):
            return StoredResponse(given.status_code, tuple(given.raw_headers), bytes(given.body))
        assert given is None or isinstance(given, StoredResponse), given
        return given

    return rebuilding


def _stand_in(result: Result) -> Response:
    """What Starlette gets to see instead of the endpoint's answer where another is sent. Sending it sends nothing."""
    if type(result) is Propagate:
        raise result.error
    assert type(result) is Answer, result
    response = Response(result.body, result.status)
    response.raw_headers = list(result.headers)
    return response
