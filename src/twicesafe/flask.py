"""twicesafe for Flask: an operation's contract stands on its view.

    safe = Idempotency(app, store, scope=lambda: current_user.get_id())

    @app.post("/charges")
    @safe.operation(effects="transactional", required=True)
    def create_charge():
        safe.connection.execute("INSERT INTO charges ...")
        return {"id": ...}, 201

Theory of operation. The layer of blocking.contracts stands around `app.wsgi_app`. Views are wrapped, and the wrapper
claims: it is reached when Flask has routed the request and run all `before_request` functions. Error handlers,
`after_request` and teardown functions run inside of the layer, so it is what they leave that is recorded (E4, H2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from flask import Flask, Response, current_app, got_request_exception, has_request_context, request

from twicesafe.blocking.contracts import Contracts
from twicesafe.blocking.dealings import Shared
from twicesafe.blocking.environ import Environ
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.sending import Sendable
from twicesafe.blocking.serving import StartResponse, WSGIApp
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.endpoint import CHANGE_NOTHING, check_methods, name_of, order_error
from twicesafe.errors import ConfigurationError
from twicesafe.observe import Observer, log_events
from twicesafe.operations import check_blocking, check_effects, check_scope
from twicesafe.stores.contract import Store

__all__ = ["PUBLIC", "BlockingRequest", "Idempotency"]

View = TypeVar("View", bound=Callable[..., Any])


class Idempotency:
    """Makes the operations of Flask applications happen once per key. An extension: pass `app`, or call `init_app`.

    `scope` is called in the request's context and gives a stable identity of the caller as a `str` (of a user or
    tenant, never of a login session), or is PUBLIC. There is no default, because every default lets one caller see
    another's answer (R6). Where it gives None the request is refused with 403.

    `policy` is what operations that say nothing else go by. With `every_view`, each view that takes one of its methods
    and is no operation of its own is one under this policy.
    """

    def __init__(
        self,
        app: Flask | None = None,
        store: Store | None = None,
        *,
        scope: Callable[[], Any] | Scope,
        policy: Policy | None = None,
        every_view: bool = False,
        observer: Observer = log_events,
    ) -> None:
        check_scope(scope)
        if store is not None:
            check_blocking(store)
        self._store = store
        self._scope = scope
        self._every_view = every_view
        self._observer = observer
        self._contracts = Contracts(policy)
        self._views: dict[Callable[..., Any], Operation] = {}
        self._apps: list[Flask] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask, store: Store | None = None) -> None:
        """Protect this application's operations. `store` is its own; without one, that of the constructor."""
        if not isinstance(app, Flask):
            raise ConfigurationError(f"pass the Flask application, not {type(app).__name__}")
        known: list[Idempotency] = app.extensions.setdefault("twicesafe", [])
        if self in known:
            raise ConfigurationError("this application has this Idempotency already")
        chosen = self._store if store is None else store
        if chosen is None:
            raise ConfigurationError("no store: pass one to Idempotency or to init_app")
        check_blocking(chosen)
        for operation in self._contracts.operations.values():
            check_effects(operation, chosen)
        self._store = chosen
        known.append(self)
        self._apps.append(app)
        app.wsgi_app = _Layer(self, app, Shared(chosen, self._observer))  # type: ignore[method-assign]
        got_request_exception.connect(self._failed, app)

    def operation(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        rebuild: Callable[[StoredResponse], Any] | None = None,
        **settings: Any,
    ) -> Callable[[View], View]:
        """The contract of the view below it: a policy, settings of one, or both. Goes under the route's decorator.

        `name` is the view's own by default; each is used once. `rebuild` makes the answer to a duplicate anew, where
        the first one's body is not kept, or always with `duplicates="rebuilt"`: called in the duplicate's context with
        what is stored, it returns what a view may, or None for what is stored.
        """
        chosen = self._contracts.chosen(policy, settings)

        def decorate(view: View) -> View:
            operation = Operation(name or name_of(view), chosen, None if rebuild is None else _rebuilding(rebuild))
            self._contracts.check(view, operation)
            if any(view in app.view_functions.values() for app in self._apps):
                raise order_error(operation.name)
            if self._store is not None:
                check_effects(operation, self._store)
            self._views[view] = operation
            return cast("View", self._wrap(view, operation))

        return decorate

    # --- for views ----------------------------------------------------------------------------------------------------

    @property
    def current(self) -> BlockingRequest:
        """The request, for the keys of downstream calls. Its `key` is empty where none was sent."""
        return self._contracts.current(request.environ)

    @property
    def connection(self) -> Any:
        """The driver's connection of a transactional operation, inside its transaction, which is committed with the
        answer. Do not commit it. A request without a key gets one too."""
        return self.current.connection

    # --- the contract -------------------------------------------------------------------------------------------------

    def _wrap(self, view: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        self._contracts.add(operation)

        @wraps(view)
        def entering(*args: Any, **values: Any) -> Any:
            if request.method in operation.policy.methods:
                instead = self._contracts.enter(operation, request.environ, self._who, None)
                if instead is not None:
                    return _response_of(instead)
            return current_app.ensure_sync(view)(*args, **values)

        entering.twicesafe_operation = operation  # type: ignore[attr-defined]
        return entering

    def _who(self) -> object:
        return current_app.ensure_sync(self._scope)() if callable(self._scope) else self._scope

    def _see_whole(self, app: Flask) -> None:
        """Refuse what can only be seen when all routes stand."""
        policy = self._contracts.policy
        for rule in app.url_map.iter_rules():
            view, methods = app.view_functions.get(rule.endpoint), rule.methods or set()
            if view is not None and view in self._views:
                raise order_error(self._views[view].name)
            here = self._contracts.operation_of(view)
            if here is not None:
                check_methods(here, methods - CHANGE_NOTHING)
            elif (
                self._every_view
                and view is not None
                and methods & policy.methods
                and not hasattr(view, "twicesafe_operation")
            ):
                app.view_functions[rule.endpoint] = self._wrap(view, Operation(rule.endpoint, policy))

    def _failed(self, app: Flask, exception: BaseException, **_: Any) -> None:  # noqa: ARG002 - as Flask calls it
        """No error handler of the application's answers for this exception: Flask makes it a 500."""
        keyed = self._contracts.underway(request.environ) if has_request_context() else None
        if keyed is not None:
            keyed.failed(exception)


def _response_of(instead: Sendable) -> Response:
    """What `after_request` functions get to see. Sent is what is recorded, with the header lines that they add."""
    lines = [(str(name, "latin-1"), str(value, "latin-1")) for name, value in instead.headers]
    return Response(instead.pieces, instead.status, lines)


def _rebuilding(rebuild: Callable[[StoredResponse], Any]) -> Callable[[StoredResponse, Any], StoredResponse | None]:
    """`rebuild`, with what Flask makes of a view's value."""

    def rebuilding(stored: StoredResponse, _: Any) -> StoredResponse | None:
        given = current_app.ensure_sync(rebuild)(stored)
        if given is None or isinstance(given, StoredResponse):
            return given
        made = current_app.make_response(given)
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in made.headers]
        return StoredResponse(made.status_code, tuple(lines), made.get_data())

    return rebuilding


class _Layer:
    """What stands in place of an application's `wsgi_app`."""

    def __init__(self, safe: Idempotency, app: Flask, shared: Shared) -> None:
        self._safe: Idempotency | None = safe
        self._contracts = safe._contracts  # noqa: SLF001 - it is the extension's own
        self._flask = app
        self._shared = shared
        self._app = cast("WSGIApp", app.wsgi_app)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if self._safe is not None:
            self._safe._see_whole(self._flask)  # noqa: SLF001 - it is the extension's own
            self._safe = None
        return self._contracts.serve(self._app, self._shared, environ, start_response)
