"""twicesafe for Quart: an operation's contract stands on its view.

    safe = Idempotency(app, store, scope=current_user)

    @app.post("/charges")
    @safe.operation(effects="transactional", required=True)
    async def create_charge(): ...

See `routes` for how it works. Functions before the request have run when a view claims, so authentication among them
comes first; error handlers and functions after the request answer inside, so it is their answer that is recorded (E4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial, wraps
from inspect import isawaitable
from typing import Any, TypeVar, cast

from quart import Quart, Response, current_app, got_request_exception, request

from twicesafe.asgi import DRAIN
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import Answer, Propagate, Result
from twicesafe.endpoint import check_loop, check_methods, order_error, qualified_name_of, served_by
from twicesafe.errors import BodyTooLargeError, ConfigurationError
from twicesafe.incoming import Message
from twicesafe.keyed import ASGIApp, KeyedRequest
from twicesafe.observe import Observer, log_events
from twicesafe.operations import check_scope
from twicesafe.routes import Contracts, SettledRequest
from twicesafe.stores.contract import AsyncStore

__all__ = ["PUBLIC", "Idempotency", "KeyedRequest"]

View = TypeVar("View", bound=Callable[..., Any])
ScopeOf = Callable[[], Scope | Awaitable[Scope | None] | None]


class _QuartRequest(SettledRequest):
    """A KeyedRequest whose application asks for messages without a pause, beside its view and whoever else asks."""

    _arrived: asyncio.Event | None = None
    """Set once the body is whole, or over the limit. Where it never will be, Quart ends the view."""

    async def receive(self) -> Message:
        if self.claims or self.result is not None:
            return await super().receive()
        message = await super().receive()
        if message["type"] == "http.disconnect":
            if self.claims:
                # It was asked for before the claim: what comes of it is as if it had been asked for after.
                self.detach()
                return await super().receive()
        elif self._arrived is not None and (self._whole or self._size > self.operation.policy.body_limit):
            self._arrived.set()
        return message

    async def _whole_body(self) -> bytes:
        limit = self.operation.policy.body_limit
        if not self._whole and self._size <= limit:
            self._arrived = asyncio.Event()
            await self._arrived.wait()
        if self._size > limit:
            raise BodyTooLargeError(f"the body of this operation may have at most {limit} bytes")
        return b"".join(self._parts or ())

    async def send(self, message: Message) -> None:
        """Header lines that functions after the request add to what stands in for an answer are sent with it: for other
        origins, say. Its own stay as they are."""
        result = self._result
        if type(result) is Answer and message["type"] == "http.response.start":
            known = {name for name, _ in result.headers}
            added = [line for line in message["headers"] if line[0] not in known and line[0][:8] != b"content-"]
            self._result = result._replace(headers=(*result.headers, *added))
        await super().send(message)

    async def _watch_client(self) -> None:
        """`receive` does."""


class Idempotency(Contracts):
    """Makes operations of Quart applications happen once per key.

    `scope` is a function that gives a stable identity of the caller of the current request as a `str` (of a user or
    tenant, never of a login session), or PUBLIC. There is no default, because every default lets one caller see
    another's answer (R6). Where it gives None a request under a key is refused with 403; it may abort.

    `policy` is what operations that say nothing else go by. `drain` is how long a shutdown waits for work whose client
    is gone. Without `app`, call `init_app` with each application that has operations.
    """

    _request_class = _QuartRequest

    def __init__(
        self,
        app: Quart | None = None,
        store: AsyncStore | None = None,
        *,
        scope: ScopeOf | Scope,
        policy: Policy | None = None,
        observer: Observer = log_events,
        drain: timedelta = DRAIN,
    ) -> None:
        if store is None:
            raise ConfigurationError("say where records are kept: pass store=")
        super().__init__(store, policy, observer, drain)
        check_scope(scope)
        self._who: ScopeOf = scope if callable(scope) else lambda: PUBLIC
        self._apps: list[Quart] = []
        self._bare: list[tuple[Callable[..., Any], Operation]] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Quart) -> None:
        """Stand around `app`, before it serves."""
        if not isinstance(app, Quart):
            raise ConfigurationError(f"pass the Quart application, not {type(app).__name__}")
        self._apps.append(app)
        self._seen_whole = False
        around: Any = partial(self._serve, cast("ASGIApp", app.asgi_app))
        app.asgi_app = around  # type: ignore[method-assign]
        got_request_exception.connect(self._unhandled, app, weak=False)

    def operation(
        self,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        rebuild: Callable[[StoredResponse], Any] | None = None,
        **settings: Any,
    ) -> Callable[[View], View]:
        """The contract of the view below it, a function or a method of a MethodView: a policy, settings of one, or
        both. Goes under the route's decorator. Requests by a method that the policy takes no keys with go through.

        `name` is the view's own by default, `Charges.post` for a method; each is used once. `rebuild` makes the answer
        to a duplicate anew, where the first one's body is not kept, or always with `duplicates="rebuilt"`: `def` or
        `async def`, given what is stored, it returns what a view may, or None for what is stored.
        """
        chosen = self._chosen(policy, settings)
        making = None if rebuild is None else _rebuilding(rebuild)

        def decorate(view: View) -> View:
            if isinstance(view, type):
                raise ConfigurationError(f"put the contract on the methods of {view.__name__}, not on the class")
            operation = Operation(name or qualified_name_of(view), chosen, making)
            self._check(view, operation)
            check_loop(operation, view)
            self._add(operation)
            self._bare.append((view, operation))
            wrapper = self._wrap(view, operation)
            wrapper.twicesafe_operation = operation  # type: ignore[attr-defined]
            return cast("View", wrapper)

        return decorate

    @property
    def connection(self) -> Any:
        """The driver's connection of the current request's transactional operation, inside its transaction, which is
        committed with the answer. Do not commit it. A request without a key gets one too."""
        return self.current.connection

    @property
    def current(self) -> KeyedRequest:
        """The current request's KeyedRequest, for the keys of downstream calls. Its `key` is empty where none was
        sent."""
        return self._keyed(_scope())

    def _wrap(self, view: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        takes = operation.policy.takes

        @wraps(view)
        async def entering(*values: Any, **named: Any) -> Any:
            scope = _scope()
            if takes(scope["method"]):
                keyed = self._keyed(scope)
                who = self._who()
                result = await self._enter(keyed, operation, request, await who if isawaitable(who) else who)
                if result is not None:
                    return _stand_in(result)
                keyed.entered = True
            return await current_app.ensure_async(view)(*values, **named)

        return entering

    def _check(self, endpoint: object, operation: Operation) -> None:
        if any(endpoint is view for app in self._apps for view in app.view_functions.values()):
            raise order_error(operation.name)
        super()._check(endpoint, operation)

    def _see_whole(self) -> None:
        for app in self._apps:
            for rule in app.url_map.iter_rules():
                view = app.view_functions.get(rule.endpoint)
                for bare, operation in self._bare:
                    if view is bare:
                        raise order_error(operation.name)
                methods = rule.methods or set()
                for operation, served in served_by(view, getattr(view, "view_class", None), methods):
                    if self._operations.get(operation.name) is operation:
                        check_methods(operation, served)
        super()._see_whole()

    async def _unhandled(self, _: Quart, *, exception: Exception, **__: Any) -> None:
        keyed = _scope().get(self._slot)
        if keyed is not None:
            await keyed.failed(exception)


def _scope() -> Any:
    return request.scope


def _rebuilding(rebuild: Callable[[StoredResponse], Any]) -> Callable[[StoredResponse, Any], Any]:
    async def rebuilding(stored: StoredResponse, _: Any) -> StoredResponse | None:
        given = await current_app.ensure_async(rebuild)(stored)
        if given is None or isinstance(given, StoredResponse):
            return given
        made: Any = await current_app.make_response(given)
        body = await made.get_data(as_text=False)
        lines = [(name.lower().encode("latin-1"), line.encode("latin-1")) for name, line in made.headers]
        return StoredResponse(made.status_code, tuple(lines), body)

    return rebuilding


def _stand_in(result: Result) -> Response:
    """What Quart gets to see instead of the view's answer where another one is sent. Sending it sends nothing."""
    if type(result) is Propagate:
        raise result.error
    assert type(result) is Answer, result
    response = Response(result.body, result.status)
    response.headers.clear()
    response.headers.extend((name.decode("latin-1"), line.decode("latin-1")) for name, line in result.headers)
    return response
