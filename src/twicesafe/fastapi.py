"""twicesafe for FastAPI: an operation's contract stands on its route.

    safe = Idempotency(app, store, scope=current_user)

    @app.post("/charges", status_code=201)
    @safe.operation(effects="transactional", required=True)
    async def create_charge(body: Charge, db: Annotated[Connection, Depends(safe.connection)]) -> dict: ...

Theory of operation. A middleware, the innermost of the application's, stands between the routes and everything around
them, and lets everything through. Who claims is the route itself: the endpoint is wrapped, and the wrapper is reached
when FastAPI has run all dependencies and validated the request. So authentication and validation come first, on a
replay as on a first run (R22), and what they refuse leaves no record (E1). From the claim on the middleware holds the
answer back until it is recorded; exception handlers answer inside of it, so it is their answer that is recorded (E4).

A dependency that asks for the connection of a transaction needs the claim before the endpoint is reached. Such
dependencies are resolved last, and what is refused after them rolls the claim back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial, wraps
from inspect import Parameter
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import fastapi.routing
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant, get_typed_return_annotation, get_typed_signature
from fastapi.encoders import jsonable_encoder
from fastapi.middleware import Middleware
from fastapi.params import Depends as Dependency
from fastapi.responses import JSONResponse

from twicesafe.asgi import DRAIN
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects, StoredResponse
from twicesafe.core.steps import Answer, Propagate, Result
from twicesafe.endpoint import (
    check_gives_text,
    check_loop,
    check_methods,
    is_async,
    left_late,
    name_of,
    order_error,
    reaches,
    signature,
    yields,
)
from twicesafe.errors import BodyIncompleteError, ConfigurationError, RequestError
from twicesafe.incoming import ClientGoneError
from twicesafe.keyed import KeyedRequest
from twicesafe.lookup import asked, looking
from twicesafe.observe import Observer, log_events
from twicesafe.openapi import document, document_lookup
from twicesafe.operations import identified
from twicesafe.routes import Contracts
from twicesafe.stores.contract import AsyncStore

__all__ = ["PUBLIC", "Idempotency", "KeyedRequest"]

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

REQUEST: Final = "twicesafe_request"
CALLER: Final = "twicesafe_caller"
ENTRY: Final = "twicesafe_entry"
"""Parameters that FastAPI sees on an operation's endpoint beside the endpoint's own."""

_SCOPES: Final = ("oauth_scopes", "security_scopes")
"""What a dependency is asked for with besides; two that are asked for differently may give different values."""

_route_contexts: Final[Callable[[Any], Iterator[Any]]] = getattr(fastapi.routing, "iter_route_contexts", iter)
"""Routes with those of included routers; FastAPI used to copy these into the application's own list."""


class Idempotency(Contracts):
    """Makes the operations of one FastAPI application happen once per key.

    `scope` is a dependency that gives a stable identity of the caller as a `str` (of a user or tenant, never of a login
    session), or PUBLIC. There is no default, because every default lets one caller see another's answer (R6). Where it
    gives None the request is refused with 403. An application with two kinds of callers makes two of these.

    `policy` is what operations that say nothing else go by. `drain` is how long a shutdown waits for work whose client
    is gone. Make it before the application serves, on the application whose routes it is for, a mounted one included.
    """

    def __init__(
        self,
        app: FastAPI,
        store: AsyncStore,
        *,
        scope: Callable[..., Any] | Dependency | Scope,
        policy: Policy | None = None,
        observer: Observer = log_events,
        drain: timedelta = DRAIN,
    ) -> None:
        if not isinstance(app, FastAPI):
            raise ConfigurationError(f"pass the FastAPI application, not {type(app).__name__}")
        if app.middleware_stack is not None:
            raise ConfigurationError("this application serves already: make Idempotency before it does")
        super().__init__(store, policy, observer, drain)
        self._app = app
        self._caller = _caller(scope)
        self._endpoints: list[tuple[Callable[..., Any], Operation]] = []
        self._lookups: dict[Any, Policy] = {}
        self._openapi: Callable[[], dict[str, Any]] | None = None

        async def current(request: Request) -> KeyedRequest:
            return self._keyed(request.scope)

        self.connection = self._early(attrgetter("connection"))
        """A dependency: the driver's connection of a transactional operation, inside its transaction, which is
        committed with the answer. Do not commit it. A request without a key gets one too."""
        self.current = current
        """A dependency: the KeyedRequest, for the keys of downstream calls. Its `key` is empty where none was sent."""
        app.user_middleware.append(Middleware(lambda app: partial(self._serve, app)))
        self._document_app()

    def operation(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        rebuild: Callable[[StoredResponse, Request], Any] | None = None,
        **settings: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        """The contract of the endpoint below it: a policy, settings of one, or both. Goes under the route's decorator.

        `name` is the endpoint's own by default; each is used once. `rebuild` makes the answer to a duplicate anew,
        where the first one's body is not kept, or always with `duplicates="rebuilt"`: `def` or `async def`, given what
        is stored and the duplicate's request, it returns what an endpoint may, or None for what is stored.
        """
        chosen = self._chosen(policy, settings)
        making = None if rebuild is None else _rebuilding(rebuild)

        def decorate(endpoint: Endpoint) -> Endpoint:
            operation = Operation(name or name_of(endpoint), chosen, making)
            self._check(endpoint, operation)
            wrapper = self._wrap(endpoint, operation)
            self._add(operation)
            self._endpoints.append((endpoint, operation))
            wrapper.twicesafe_operation = operation  # type: ignore[attr-defined]
            return cast("Endpoint", wrapper)

        return decorate

    def lookup(self, name: str | None = None, *, closes: bool = False) -> Callable[..., Any]:
        """An endpoint that tells callers what became of their keys: see `twicesafe.lookup`.

            app.get("/keys")(safe.lookup())

        It goes by this Idempotency's policy, or by that of the operation called `name`, which is needed where keys
        belong to one. With `closes`, give it to `app.delete` as well.
        """
        if name is not None and name not in self._operations:
            raise ConfigurationError(f"no operation is called {name!r} yet: make its look-up after it")
        operation = looking(Operation("lookup", self._policy) if name is None else self._operations[name])

        async def looked_up(**values: Any) -> Response:
            request = values[REQUEST]
            keyed = KeyedRequest(self._shared, operation, request.scope, request.receive, request.receive)
            try:
                keyed.key = await keyed.presented_key() or ""
                who = identified(values.get(CALLER, PUBLIC))
                if request.method == "DELETE" and not closes:
                    raise HTTPException(405, headers={"Allow": "GET"})
                result = await keyed.enter_by(*asked(operation, who, keyed.key, request.method))
            except RequestError as error:
                result = keyed.refuse(error)
            except ClientGoneError:
                result = keyed.refuse(BodyIncompleteError("the body ended before its end"))
            assert result is not None
            response = _stand_in(result)
            response.raw_headers[:0] = operation.policy.announcements(keyed.key, response.raw_headers)
            return response

        looked_up.__signature__ = signature(_REQUEST, *self._caller, returns=Response)  # type: ignore[attr-defined]
        self._lookups[looked_up] = operation.policy
        return looked_up

    def document(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Add what operations answer to an OpenAPI document of their routes, in place. `app.openapi()` has it already.

        For documents that are made without it, such as that of an application with its own `openapi` which is asked
        before it serves.
        """
        for route in _route_contexts(self._app.routes):
            endpoint = getattr(route, "endpoint", None)
            operation = self._operation_of(endpoint)
            asked_for = self._lookups.get(endpoint) if operation is None else operation.policy
            if asked_for is not None:
                describe = document_lookup if operation is None else document
                for method in route.methods:
                    describe(schema, route.path_format, method, asked_for)
        return schema

    # --- the contract -------------------------------------------------------------------------------------------------

    def _check(self, endpoint: object, operation: Operation) -> None:
        if any(getattr(route, "endpoint", None) is endpoint for route in _each_route(self._app.routes)):
            raise order_error(operation.name)
        super()._check(endpoint, operation)

    def _wrap(self, endpoint: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        """The endpoint as FastAPI is to see it: more parameters, and a claim before its first line."""
        own = get_dependant(path="/", call=endpoint)
        injected = [str(needed.name) for needed in own.dependencies if needed.call is self.connection]
        early = [
            str(needed.name)
            for needed in own.dependencies
            if needed.call is not self.connection and reaches(needed, self.connection)
        ]
        self._check_connection(endpoint, operation, own, asked=bool(injected or early))
        request_name = own.request_param_name or REQUEST
        who = self._asked_for_by(own)
        hidden = [*([] if own.request_param_name else [_REQUEST]), *([] if who else self._caller)]
        names = [parameter.name for parameter in hidden]

        def reached(values: dict[str, Any], keyed: KeyedRequest) -> None:
            keyed.entered = True
            for name in names:
                values.pop(name, None)
            for name in injected:
                values[name] = keyed.connection

        if yields(endpoint):
            # Its head is sent before its first line runs, so the claim has to be made before that.
            hidden.append(Parameter(ENTRY, Parameter.KEYWORD_ONLY, default=Depends(self._early(lambda keyed: keyed))))

            @wraps(endpoint)
            def entering(**values: Any) -> Any:
                reached(values, values.pop(ENTRY))
                return endpoint(**values)

        else:
            call = endpoint if is_async(endpoint) else partial(run_in_threadpool, endpoint)

            @wraps(endpoint)
            async def entering(**values: Any) -> Any:
                request = values[request_name]
                keyed = self._keyed(request.scope)
                result = await self._enter(keyed, operation, request, values.get(who or CALLER, PUBLIC))
                if result is not None:
                    return _stand_in(result)
                reached(values, keyed)
                return await call(**values)

        typed = get_typed_signature(endpoint).parameters.values()
        first = [parameter for parameter in typed if parameter.name not in (*injected, *early)]
        last = [parameter for parameter in typed if parameter.name in early]
        entering.__signature__ = signature(  # type: ignore[attr-defined]
            *first, *hidden, *last, returns=get_typed_return_annotation(endpoint)
        )
        return entering

    def _asked_for_by(self, own: Dependant) -> str | None:
        """The endpoint's own parameter that says who the caller is, if it has one. Resolving a dependency twice takes
        longer than all that is done with it, though FastAPI remembers what it gave."""
        for parameter in self._caller:
            asked_for = parameter.default
            if type(asked_for) is Dependency and asked_for.use_cache:
                for needed in own.dependencies:
                    scopes = any(getattr(needed, name, None) for name in _SCOPES)
                    if needed.call is asked_for.dependency and needed.use_cache and not scopes:
                        return needed.name
        return None

    def _check_connection(
        self, endpoint: Callable[..., Any], operation: Operation, own: Dependant, *, asked: bool
    ) -> None:
        name = operation.name
        check_loop(operation, endpoint)
        late = left_late(own, self.connection)
        if late is not None:
            raise ConfigurationError(
                f"{late!r} builds on the connection and yields, but it is left after the answer was sent, when the "
                f'transaction has ended: write Depends({late}, scope="function")'
            )
        if operation.policy.effects is not Effects.TRANSACTIONAL:
            if asked:
                raise ConfigurationError(f'{name!r} asks for the connection: declare it effects="transactional"')
        elif not (asked or own.request_param_name or reaches(own, self.current)):
            raise ConfigurationError(
                f"{name!r} is transactional and never asks for the connection, so its effects would not be in the "
                "transaction: take it with Depends(safe.connection)"
            )

    # --- one request --------------------------------------------------------------------------------------------------

    def _early(self, give: Callable[[KeyedRequest], Any]) -> Callable[..., Any]:
        """A dependency that enters before the endpoint is reached."""

        async def entering(**values: Any) -> Any:
            request = values[REQUEST]
            keyed = self._keyed(request.scope)
            operation = self._operation_of(request.scope["endpoint"])
            if operation is None:
                raise ConfigurationError("the connection is asked for on a route that has no @safe.operation")
            result = await self._enter(keyed, operation, request, values.get(CALLER, PUBLIC))
            if result is not None:
                raise _AnsweredError(result.status if type(result) is Answer else 500)
            return give(keyed)

        entering.__signature__ = signature(_REQUEST, *self._caller)  # type: ignore[attr-defined]
        return entering

    # --- the application ----------------------------------------------------------------------------------------------

    def _see_whole(self) -> None:
        """Refuse what can only be seen when all routes stand."""
        for route in _each_route(self._app.routes):
            endpoint = getattr(route, "endpoint", None)
            for bare, operation in self._endpoints:
                if endpoint is bare:
                    raise order_error(operation.name)
            here = self._operation_of(endpoint)
            if here is not None:
                check_methods(here, getattr(route, "methods", None) or set())
            transactional = here is not None and here.policy.effects is Effects.TRANSACTIONAL
            if not transactional and reaches(getattr(route, "dependant", None), self.connection):
                raise ConfigurationError(f"{route.path} asks for the connection and is no transactional operation")
        self._document_app()
        super()._see_whole()

    def _document_app(self) -> None:
        described = self._app.openapi
        if described is not self._openapi:

            def openapi() -> dict[str, Any]:
                return self.document(described())

            self._openapi = openapi
            self._app.openapi = openapi  # type: ignore[method-assign]


class _AnsweredError(HTTPException):
    """Ends a request whose answer is settled. What it is turned into is dropped, and the answer sent instead.

    An HTTPException, so that nobody takes it for a fault of the application.
    """


_REQUEST: Final = Parameter(REQUEST, Parameter.KEYWORD_ONLY, annotation=Request)


def _caller(scope: object) -> tuple[Parameter, ...]:
    """The parameter by which FastAPI finds out who the caller is; none where everybody is the same."""
    if scope is PUBLIC:
        return ()
    found = scope if isinstance(scope, Dependency) else Depends(scope) if callable(scope) else None
    if found is None or found.dependency is None:
        raise ConfigurationError("scope must be a dependency that says who the caller is, or PUBLIC")
    check_gives_text(get_typed_return_annotation(found.dependency))
    return (Parameter(CALLER, Parameter.KEYWORD_ONLY, default=found),)


def _rebuilding(rebuild: Callable[[StoredResponse, Request], Any]) -> Callable[[StoredResponse, Request], Any]:
    """`rebuild`, with what FastAPI makes of an endpoint's value."""
    waits = is_async(rebuild)

    async def rebuilding(stored: StoredResponse, request: Request) -> StoredResponse | None:
        given = await (rebuild(stored, request) if waits else run_in_threadpool(rebuild, stored, request))
        if given is None or isinstance(given, StoredResponse):
            return given
        if not isinstance(given, Response):
            given = JSONResponse(jsonable_encoder(given), stored.status)
        return StoredResponse(given.status_code, tuple(given.raw_headers), bytes(given.body))

    return rebuilding


def _each_route(routes: Iterable[Any]) -> Iterator[Any]:
    for route in _route_contexts(routes):
        yield route
        yield from _each_route(getattr(route, "routes", None) or ())


def _stand_in(result: Result) -> Response:
    """What FastAPI gets to see instead of the endpoint's answer where another one is sent. Sending it sends nothing."""
    if type(result) is Propagate:
        raise result.error
    assert type(result) is Answer, result
    response = Response(result.body, result.status)
    response.raw_headers = list(result.headers)
    # Not None, or the tasks that dependencies asked for would be hung on it: they ran with the first answer (R17).
    response.background = BackgroundTasks()
    return response
