"""twicesafe for Falcon on WSGI: an operation's contract stands on its responder.

    safe = Idempotency(store, scope=lambda req: req.context.user)

    class Charges:
        @safe.operation(effects="transactional", required=True)
        def on_post(self, req, resp):
            safe.current(req).connection.execute("INSERT INTO charges ...")
            resp.status = falcon.HTTP_201

    app = falcon.App(middleware=[Authentication()])
    app.add_route("/charges", Charges())
    application = safe.protect(app)  # what the server is given

Theory of operation. The layer of blocking.contracts stands around the application, for nothing inside of a Falcon
application sees the answer that leaves it. Responders are wrapped as hooks do it, and the wrapper claims: it is reached
after all middleware and after the hooks that stand above it. Error handlers answer inside of the layer (E4).

falcon.asgi.App is served by twicesafe.asgi.IdempotencyMiddleware.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, TypeVar, cast

import falcon
import falcon.inspect

from twicesafe.blocking.contracts import Contracts
from twicesafe.blocking.dealings import Shared
from twicesafe.blocking.environ import Environ
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.serving import StartResponse, WSGIApp
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.endpoint import check_methods, is_async, qualified_name_of
from twicesafe.errors import ConfigurationError
from twicesafe.observe import Observer, log_events
from twicesafe.operations import check_blocking, check_effects, check_scope
from twicesafe.stores.contract import Store

__all__ = ["PUBLIC", "BlockingRequest", "Idempotency"]

Responder = TypeVar("Responder", bound=Callable[..., Any])

RESPONDER: Final = re.compile(r"on_([a-z]+)(?:_|$)")


class Idempotency:
    """Makes the operations of a Falcon application happen once per key.

    `scope` is a function of Falcon's request that gives a stable identity of the caller as a `str` (of a user or
    tenant, never of a login session), or PUBLIC. There is no default, because every default lets one caller see
    another's answer (R6). Where it gives None the request is refused with 403.

    `policy` is what operations that say nothing else go by.
    """

    def __init__(
        self,
        store: Store,
        *,
        scope: Callable[[Any], Any] | Scope,
        policy: Policy | None = None,
        observer: Observer = log_events,
    ) -> None:
        check_scope(scope)
        check_blocking(store)
        self._scope = scope
        self._shared = Shared(store, observer)
        self._contracts = Contracts(policy)

    def protect(self, app: falcon.App[Any, Any], *, every_responder: bool = False) -> WSGIApp:
        """The application as it is to be served. Its routes may be added before or after.

        With `every_responder`, each responder for one of the policy's methods that is no operation of its own is one
        under this policy: it is entered after all middleware that the application has by now, before its hooks.
        """
        if is_async(type(app).__call__):
            raise ConfigurationError("falcon.asgi is served by twicesafe.asgi.IdempotencyMiddleware")
        handlers = getattr(app, "_error_handlers", {})
        if handlers.get(Exception) == getattr(app, "_python_error_handler", None):
            # Falcon's own last resort, and no handler of the application's.
            app.add_error_handler(Exception, self._failed)
        if every_responder:
            self._contracts.add(Operation("every responder", self._contracts.policy))
            app.add_middleware(_EveryResponder(self, app))
        inner = cast("WSGIApp", app)

        def protected(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
            return self._contracts.serve(inner, self._shared, environ, start_response)

        return protected

    def operation(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        rebuild: Callable[[StoredResponse, Any], StoredResponse | None] | None = None,
        **settings: Any,
    ) -> Callable[[Responder], Responder]:
        """The contract of the responder below it: a policy, settings of one, or both.

        Hooks above it come before the claim, hooks below it are part of the work. `name` is `Class.on_post` by default;
        each is used once. `rebuild` makes the answer to a duplicate anew, where the first one's body is not kept, or
        always with `duplicates="rebuilt"`: given what is stored and the duplicate's request, it returns an answer, or
        None for what is stored.
        """
        chosen = self._contracts.chosen(policy, settings)

        def decorate(responder: Responder) -> Responder:
            operation = Operation(name or qualified_name_of(responder), chosen, rebuild)
            self._contracts.check(responder, operation)
            check_effects(operation, self._shared.store)
            if is_async(responder):
                raise ConfigurationError(
                    f"{operation.name!r} is asynchronous: falcon.asgi is served by twicesafe.asgi.IdempotencyMiddleware"
                )
            method = RESPONDER.match(getattr(responder, "__name__", ""))
            if method is not None and method[1].upper() in falcon.HTTP_METHODS:
                check_methods(operation, {method[1].upper()})
            self._contracts.add(operation)

            @wraps(responder)
            def entering(resource: Any, req: Any, resp: Any, *args: Any, **params: Any) -> None:
                if req.method in operation.policy.methods and self._enter(operation, req, resp):
                    return
                responder(resource, req, resp, *args, **params)

            entering.twicesafe_operation = operation  # type: ignore[attr-defined]
            return cast("Responder", entering)

        return decorate

    def current(self, req: Any) -> BlockingRequest:
        """twicesafe's view of Falcon's request: its connection, and keys for downstream calls.

        Its `key` is empty where none was sent.
        """
        return self._contracts.current(req.env)

    # --- one request --------------------------------------------------------------------------------------------------

    def _enter(self, operation: Operation, req: Any, resp: Any) -> bool:
        """Claim. Whether the answer is there already."""
        scope = self._scope
        instead = self._contracts.enter(operation, req.env, lambda: scope(req) if callable(scope) else scope, req)
        if instead is None:
            return False
        resp.status, resp.data = instead.status, b"".join(instead.pieces)
        return True

    def _failed(self, req: Any, resp: Any, error: Exception, params: dict[str, Any]) -> None:  # noqa: ARG002 - as Falcon calls it
        """No error handler of the application's answers for this exception: as Falcon, log it and answer 500."""
        keyed = self._contracts.underway(req.env)
        if keyed is not None:
            keyed.failed(error)
        req.log_error(traceback.format_exc())
        raise falcon.HTTPInternalServerError


class _EveryResponder:
    """The application-wide default, as a component of Falcon's."""

    def __init__(self, safe: Idempotency, app: falcon.App[Any, Any]) -> None:
        self._safe = safe
        self._app = app
        self._names: dict[tuple[str, str], str] = {}
        """Of responders, by route and method. Empty where the one there is Falcon's own."""

    def process_resource(self, req: Any, resp: Any, resource: Any, params: dict[str, Any]) -> None:  # noqa: ARG002 - as Falcon calls it
        """Falcon calls this for every request that has a route."""
        policy = self._safe._contracts.policy  # noqa: SLF001 - it is a part of it
        if req.method not in policy.methods:
            return
        name = self._name(req.uri_template, req.method)
        # Without one, Falcon itself answers that the method is not allowed.
        if name and not hasattr(getattr(resource, name, None), "twicesafe_operation"):
            operation = Operation(req.uri_template[:200] or "/", policy)
            resp.complete = self._safe._enter(operation, req, resp)  # noqa: SLF001 - of this module

    def _name(self, template: str, method: str) -> str:
        """A responder's name has its method in it, and may have a suffix that only the route knows."""
        if (template, method) not in self._names:
            routes = falcon.inspect.inspect_routes(self._app)
            self._names |= {
                (route.path, each.method): "" if each.internal else each.function_name
                for route in routes
                for each in route.methods
            }
        return self._names.get((template, method), f"on_{method.lower()}")
