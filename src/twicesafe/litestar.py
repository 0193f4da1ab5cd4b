"""twicesafe for Litestar: a plugin, and an operation's contract on its handler.

    safe = Idempotency(store, scope=lambda request: request.user.id)

    @post("/charges", guards=[requires_active_user])
    @safe.operation(effects="transactional", required=True)
    async def create_charge(data: Charge, connection: Connection) -> Receipt: ...

    app = Litestar([create_charge], plugins=[safe])

See `routes` for how it works. The middleware is the innermost of an operation's own, so exception handlers answer
inside of it (E4). A handler claims when middlewares and guards have let the request pass, its dependencies are there,
and it is valid. A dependency that builds on the connection claims before: what is refused after it rolls that back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial, wraps
from inspect import Parameter, isawaitable
from inspect import signature as signature_of
from typing import Any, Final, TypeVar, cast

from litestar import Litestar, Request, Response
from litestar.concurrency import sync_to_thread
from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.spec import Operation as Described
from litestar.plugins import InitPlugin, ReceiveRoutePlugin
from litestar.routes import BaseRoute, HTTPRoute

from twicesafe.asgi import DRAIN
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import Propagate
from twicesafe.endpoint import check_loop, check_methods, is_async, order_error, qualified_name_of
from twicesafe.errors import ConfigurationError
from twicesafe.incoming import ASGIScope
from twicesafe.keyed import KeyedRequest
from twicesafe.observe import Observer, log_events
from twicesafe.openapi import document
from twicesafe.routes import Contracts, SettledRequest
from twicesafe.stores.contract import AsyncStore

__all__ = ["PUBLIC", "Idempotency", "KeyedRequest"]

Handler = TypeVar("Handler", bound=Callable[..., Any])
ScopeOf = Callable[[Request[Any, Any, Any]], Scope | Awaitable[Scope | None] | None]

REQUEST: Final = "request"
"""What Litestar calls the request where a handler asks for it."""


class _AnsweredError(Exception):
    """Ends a request whose answer is settled. What it is turned into is dropped, and the answer sent instead.

    Raised, because hooks and background tasks of a handler run after whatever it returns, and ran with the first answer
    (R17).
    """


class Idempotency(Contracts, InitPlugin, ReceiveRoutePlugin):
    """Makes operations of a Litestar application happen once per key: one of its `plugins`.

    `scope` is a function of the request that gives a stable identity of the caller as a `str` (of a user or tenant,
    never of a login session), or PUBLIC. There is no default, because every default lets one caller see another's
    answer (R6). Where it gives None a request under a key is refused with 403; it may raise an HTTPException.

    `policy` is what operations that say nothing else go by. `drain` is how long a shutdown waits for work whose client
    is gone. By `connection_name` and `request_name` handlers and dependencies ask for the driver's connection of a
    transactional operation, inside its transaction, and for the KeyedRequest, whose `key` is empty where none was sent.
    The transaction is committed with the answer; do not commit it.
    """

    _request_class = SettledRequest

    def __init__(
        self,
        store: AsyncStore,
        *,
        scope: ScopeOf | Scope,
        policy: Policy | None = None,
        observer: Observer = log_events,
        drain: timedelta = DRAIN,
        connection_name: str = "connection",
        request_name: str = "keyed_request",
    ) -> None:
        super().__init__(store, policy, observer, drain)
        if not callable(scope) and scope is not PUBLIC:
            raise ConfigurationError("scope must be a function of the request that says who the caller is, or PUBLIC")
        self._who: ScopeOf = scope if callable(scope) else lambda _: PUBLIC
        self._connection_name = connection_name
        self._request_name = request_name

    def operation(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        rebuild: Callable[[StoredResponse, Any], Any] | None = None,
        **settings: Any,
    ) -> Callable[[Handler], Handler]:
        """The contract of the handler below it: a policy, settings of one, or both. Goes under the route's decorator.

        `name` is the handler's own by default, `Charges.create` for a controller's; each is used once. `rebuild` makes
        the answer to a duplicate anew, where the first one's body is not kept, or always with `duplicates="rebuilt"`:
        an `async def` that, given what is stored and the duplicate's request, returns what a handler may, or None for
        what is stored.
        """
        chosen = self._chosen(policy, settings)
        making = None if rebuild is None else _rebuilding(rebuild)

        def decorate(handler: Handler) -> Handler:
            operation = Operation(name or qualified_name_of(handler), chosen, making)
            if isinstance(handler, BaseRouteHandler):
                raise order_error(operation.name)
            self._check(handler, operation)
            check_loop(operation, handler)
            self._add(operation)
            wrapper = self._wrap(handler, operation)
            wrapper.twicesafe_operation = operation  # type: ignore[attr-defined]
            return cast("Handler", wrapper)

        return decorate

    # --- the plugin ---------------------------------------------------------------------------------------------------

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """What Litestar calls before it makes the application."""
        for name, give in ((self._connection_name, self._connection_of), (self._request_name, self._request_of)):
            if name in app_config.dependencies:
                raise ConfigurationError(
                    f"another dependency of the application is called {name!r}: choose other names"
                )
            app_config.dependencies[name] = Provide(give)
        app_config.exception_handlers[_AnsweredError] = _stand_in
        if app_config.logging_config is not None:
            app_config.logging_config.disable_stack_trace.add(_AnsweredError)
        app_config.after_exception.append(self._unhandled)
        # The application may make the tables when it starts, and close the store when it ends.
        app_config.on_startup.append(self._check_schema)
        app_config.lifespan.append(self._draining)
        return app_config

    def receive_route(self, route: BaseRoute) -> None:
        """What Litestar calls with each route that stands."""
        if not isinstance(route, HTTPRoute):
            return
        for handler in route.route_handlers:
            operation = self._operation_of(getattr(handler.fn, "func", handler.fn))
            if operation is None:
                continue
            check_methods(operation, set(handler.http_methods))
            layers = handler.middleware or ()
            if self._layer not in layers:
                handler.middleware = [*layers, self._layer]
                handler.operation_class = _documented(handler.operation_class, operation.policy)
                self._claim_on_the_loop(handler, operation)

    def _claim_on_the_loop(self, handler: HTTPRouteHandler, operation: Operation) -> None:
        """What blocks claims before it has a thread: a claim may need one itself, and there are not many."""
        blocking = getattr(handler.fn, "func", handler.fn)
        if is_async(blocking):
            return

        @wraps(blocking)
        async def claiming(**values: Any) -> Any:
            await self._claim(values[REQUEST], operation)
            return await sync_to_thread(blocking, **values) if threaded else blocking(**values)

        threaded, handler.sync_to_thread = handler.sync_to_thread, None
        handler(claiming)
        handler.has_sync_callable = False

    def _layer(self, app: Any) -> Any:
        return partial(self._serve, app)

    @asynccontextmanager
    async def _draining(self, _: Litestar) -> AsyncIterator[None]:
        yield
        await self.drained()

    # --- one request --------------------------------------------------------------------------------------------------

    def _wrap(self, handler: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        """The handler as Litestar is to see it: without what is there once it has claimed, and with the request."""
        given = signature_of(handler)
        own = given.parameters
        hidden = [] if REQUEST in own else [Parameter(REQUEST, Parameter.KEYWORD_ONLY, annotation=Request)]

        def reached(values: dict[str, Any]) -> dict[str, Any]:
            keyed = self._keyed(values[REQUEST].scope)
            keyed.entered = True
            if hidden:
                del values[REQUEST]
            if self._connection_name in own:
                values[self._connection_name] = keyed.connection
            if self._request_name in own:
                values[self._request_name] = keyed
            return values

        if is_async(handler):

            @wraps(handler)
            async def entering(*controller: Any, **values: Any) -> Any:
                await self._claim(values[REQUEST], operation)
                return await handler(*controller, **reached(values))

        else:

            @wraps(handler)
            def entering(*controller: Any, **values: Any) -> Any:
                return handler(*controller, **reached(values))

        injected = {self._connection_name, self._request_name}
        seen = [parameter for name, parameter in own.items() if name not in injected]
        entering.__signature__ = given.replace(parameters=[*seen, *hidden])  # type: ignore[attr-defined]
        entering.__annotations__ = {
            **{name: hint for name, hint in handler.__annotations__.items() if name not in injected},
            **{parameter.name: parameter.annotation for parameter in hidden},
        }
        return entering

    async def _claim(self, request: Request[Any, Any, Any], operation: Operation) -> KeyedRequest:
        """Enter, unless that is done. Raises where something else is to be answered."""
        scope = cast("ASGIScope", request.scope)
        keyed = self._keyed(scope)
        if not keyed.begun:
            who = self._who(request)
            await self._enter(keyed, operation, request, await who if isawaitable(who) else who)
        result = keyed.result
        if type(result) is Propagate:
            raise result.error
        if result is not None:
            raise _AnsweredError
        return keyed

    async def _connection_of(self, request: Request[Any, Any, Any]) -> Any:
        handler = request.route_handler.fn
        operation = self._operation_of(getattr(handler, "func", handler))
        if operation is None:
            raise ConfigurationError(f"{self._connection_name!r} is asked for where there is no @safe.operation")
        return (await self._claim(request, operation)).connection

    async def _request_of(self, request: Request[Any, Any, Any]) -> KeyedRequest:
        return self._keyed(cast("ASGIScope", request.scope))

    async def _unhandled(self, error: Exception, scope: Any) -> None:
        """An exception that no handler of the application is for ends the exchange; Litestar makes its 500 of it."""
        keyed = scope.get(self._slot)
        if keyed is None or isinstance(error, HTTPException):
            return
        handlers = scope["route_handler"].resolve_exception_handlers()
        if all(kind is Exception or kind not in handlers for kind in type(error).__mro__):
            await keyed.failed(error)


def _rebuilding(rebuild: Callable[[StoredResponse, Any], Any]) -> Callable[[StoredResponse, Any], Any]:
    if not is_async(rebuild):
        raise ConfigurationError("rebuild must be `async def`: it is called on the event loop")

    async def rebuilding(stored: StoredResponse, request: Request[Any, Any, Any]) -> StoredResponse | None:
        given = await rebuild(stored, request)
        if given is None or isinstance(given, StoredResponse):
            return given
        if not isinstance(given, Response):
            given = Response(given, status_code=stored.status)
        made = given.to_asgi_response(None, request, type_encoders=request.route_handler.resolve_type_encoders())
        return StoredResponse(made.status_code, tuple(made.encode_headers()), made.body)

    return rebuilding


def _stand_in(_: Request[Any, Any, Any], __: _AnsweredError) -> Response[None]:
    """What Litestar gets to see instead of the handler's answer where another is sent. Sending it sends nothing."""
    return Response(None, status_code=204)


def _documented(kind: type[Described], policy: Policy) -> type[Described]:
    """An operation of an OpenAPI document that also says what callers have to know."""

    class Documented(kind):  # type: ignore[misc, valid-type]
        def to_schema(self) -> dict[str, Any]:
            whole: dict[str, Any] = {"paths": {"/": {"post": super().to_schema()}}}
            document(whole, "/", "post", policy)
            # Litestar keeps no component schemas but its own.
            schemas = {
                f"#/components/schemas/{name}": schema for name, schema in whole["components"]["schemas"].items()
            }
            described: dict[str, Any] = _resolved(whole["paths"]["/"]["post"], schemas)
            return described

    return Documented


def _resolved(node: Any, schemas: dict[str, Any]) -> Any:
    """With these schemas in the place of references to them."""
    if isinstance(node, list):
        return [_resolved(inner, schemas) for inner in node]
    if not isinstance(node, dict):
        return node
    known = schemas.get(node.get("$ref", ""))
    return known if known is not None else {name: _resolved(inner, schemas) for name, inner in node.items()}
