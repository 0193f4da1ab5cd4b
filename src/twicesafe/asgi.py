"""twicesafe for any ASGI application: Starlette, FastAPI, a bare callable; under any ASGI server.

Install it inside authentication and outside of whatever does the work. Requests without a key, with another method and
of other protocols pass through untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Final

from twicesafe import eager, starlette
from twicesafe.core.keys import PUBLIC, Scope, parse_key
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.problems import problem
from twicesafe.core.record import Effects
from twicesafe.dealings import EnteredOf, Shared
from twicesafe.errors import (
    ConfigurationError,
    MissingKeyError,
    RequestError,
    SchemaError,
    ScopeError,
    StoreError,
)
from twicesafe.incoming import ASGIScope, Message, Receive
from twicesafe.keyed import ASGIApp, KeyedRequest, Send, current
from twicesafe.observe import Event, Observer, log_events, tell
from twicesafe.stores.contract import AsyncStore

__all__ = ["PUBLIC", "ASGIApp", "ASGIScope", "IdempotencyMiddleware", "KeyedRequest", "current"]

ScopeOf = Callable[[ASGIScope], Scope | Awaitable[Scope | None] | None]
OperationOf = Callable[[ASGIScope], Operation | None]

DRAIN: Final = timedelta(seconds=20)
"""How long a shutdown waits for work whose client is gone: under the 30 s after which most supervisors kill."""


class IdempotencyMiddleware:
    """Makes every keyed request happen once.

    `scope` says who the caller is: a function of the ASGI scope returning a stable identity that the server knows (from
    its own authentication, never from a header the client may choose), or PUBLIC. There is no default, because every
    default lets one caller see another's answer (R6). Where it returns None the request is refused with 403.

    `operation` names what is done: an Operation for all requests, or a function of the ASGI scope; None from it means
    that this request takes no key. `policy` is short for one operation called "http".

    A request that has begun to run goes on when its client hangs up or its task is cancelled; on shutdown such work is
    waited for, up to `drain`.

    `entered` tells whether the handler proper was reached, so that what a router refuses leaves no record; the default
    can tell it of Starlette's routers and those made like them.
    """

    def __init__(
        self,
        app: ASGIApp,
        store: AsyncStore,
        *,
        scope: ScopeOf | Scope,
        policy: Policy | None = None,
        operation: Operation | OperationOf | None = None,
        observer: Observer = log_events,
        drain: timedelta = DRAIN,
        entered: EnteredOf = starlette.entered,
    ) -> None:
        if policy is not None and operation is not None:
            raise ConfigurationError("pass either policy or operation: an operation brings its own policy")
        check_store(store)
        if not callable(scope) and scope is not PUBLIC:
            raise ConfigurationError("scope must be a function that says who the caller is, or PUBLIC")
        if operation is None:
            operation = Operation("http", policy or Policy())
        self._operation: Operation | None = None
        self._operation_of: OperationOf | None = None
        if isinstance(operation, Operation):
            check_effects(operation, store)
            self._operation = operation
        else:
            self._operation_of = operation
        self.app = app
        self._who: ScopeOf = scope if callable(scope) else lambda _: PUBLIC
        self._shared = Shared(store, observer, entered)
        self._drain = drain

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "twicesafe" in scope:
            # Mounted twice, the outer one does the work.
            if scope["type"] == "lifespan":
                receive, send = draining(receive, self.drained), checked(send, self._shared)
            await self.app(scope, receive, send)
            return
        operation = self._operation
        if operation is None and self._operation_of is not None:
            operation = self._operation_of(scope)
        if operation is None or scope["method"] not in operation.policy.methods:
            await self.app(scope, receive, send)
            return
        policy = operation.policy
        try:
            headers = scope["headers"]
            lines = dict(headers)
            line = lines.get(policy.header_name)
            alone = len(lines) == len(headers)
            if line is not None and alone and policy.plain_key(line):
                key = str(line, "ascii")
            else:
                found = read_key(scope, policy)
                if found is None:
                    await self.app(scope, receive, send)
                    return
                key = found
            who = self._who(scope)
            if type(who) is not str:
                who = identified(await who if isawaitable(who) else who)
        except RequestError as error:
            await send_refusal(error, policy, send)
            return
        request = scope["twicesafe"] = KeyedRequest(self._shared, operation, key, scope, receive, send)
        rest = begun(request, request.serve(self.app, who, lines if alone else None), self._shared)
        if rest is not None:
            await rest

    async def drained(self) -> None:
        """Wait, up to `drain`, for work whose client is gone.

        For the lifespan of an application around one that is mounted: servers tell mounted ones of no shutdown.
        """
        await drained(self._shared, self._drain)


def check_store(store: AsyncStore) -> None:
    """ConfigurationError for a store of blocking calls."""
    if not hasattr(store, "aclose"):
        raise ConfigurationError(f"an ASGI application needs an asynchronous store, not {type(store).__name__}")


def check_effects(operation: Operation, store: AsyncStore) -> None:
    """ConfigurationError where `store` cannot do what `operation` declares."""
    if operation.policy.effects is Effects.TRANSACTIONAL and not store.transactional:
        raise ConfigurationError(
            f"operation {operation.name!r} is transactional, but {type(store).__name__} has no transactions: "
            "use the store of the database that holds the effects"
        )


def identified(who: object) -> Scope:
    """Who the caller is. ScopeError for nobody; ConfigurationError for what can be no identity, the server's fault."""
    if isinstance(who, str) or who is PUBLIC:
        return who
    if who is None:
        raise ScopeError("the caller could not be identified, and no key is shared by everybody")
    raise ConfigurationError(f"the scope must give a str that identifies the caller, not {type(who).__name__}")


def read_key(scope: ASGIScope, policy: Policy) -> str | None:
    """The request's key, None where it may go without one. RequestError otherwise."""
    wanted = policy.header_name
    lines = [line for name, line in scope["headers"] if name == wanted]
    if lines:
        return parse_key(lines, policy.key)
    if policy.required:
        raise MissingKeyError(f"this operation requires the header {policy.header}: send a new UUID for every intent")
    return None


async def send_refusal(error: RequestError, policy: Policy, send: Send) -> None:
    """Answer a request that never came as far as a claim."""
    status, headers, body = problem(
        error.problem, header=policy.header, base=policy.problem_base, detail=str(error), status=error.status
    )
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def drained(shared: Shared, drain: timedelta) -> None:
    """Wait, up to `drain`, for work whose client is gone."""
    if shared.running:
        await asyncio.wait(shared.running, timeout=drain.total_seconds())


def draining(receive: Receive, drained: Callable[[], Awaitable[None]]) -> Receive:
    """A lifespan's `receive` that lets a shutdown wait for work whose client is gone."""

    async def waiting() -> Message:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await drained()
        return message

    return waiting


def checked(send: Send, shared: Shared) -> Send:
    """A lifespan's `send` that lets no application start without its store's tables.

    They are looked for when the application says that it has started, for it may make them. A store that cannot be
    reached then is told to the observer and prevents nothing: it may be back before the first request.
    """
    failed = False

    async def checking(message: Message) -> None:
        nonlocal failed
        if message["type"] == "lifespan.startup.complete":
            try:
                await shared.store.check_schema()
            except SchemaError as error:
                failed = True
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                # Through the application, so that it closes what it has opened.
                raise
            except StoreError as error:
                tell(shared.observer, Event("store.unavailable", "", "", loud=True, error=error))
        if not failed:
            await send(message)

    return checking


def begun(request: KeyedRequest, work: Coroutine[Any, Any, None], shared: Shared) -> Awaitable[None] | None:
    """Run `work` up to its first wait. None: it is over. Otherwise the rest is to be awaited: `work` goes on in a task
    of its own that the cancellation of this one does not reach (R14), once it has claimed.

    Context variables that the application sets are seen by the layers around, as if there were no task.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()
    try:
        task = eager.start(work, loop, context)
    except BaseException:
        _show(context)
        raise
    if task is None:
        if context:
            _show(context)
        return None
    request.waits(loop)
    return _seen_through(request, task, shared, context)


async def _seen_through(request: KeyedRequest, task: asyncio.Task[None], shared: Shared, context: Context) -> None:
    shared.running.add(task)
    task.add_done_callback(shared.running.discard)
    try:
        await asyncio.wait([task])
        task.result()
    except asyncio.CancelledError:
        if not task.done():
            task.add_done_callback(_report)
            if request.claims:
                request.detach()
            else:
                task.cancel()
                await asyncio.wait([task])
        raise
    finally:
        _show(context)


def _show(context: Context) -> None:
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)


def _report(task: asyncio.Task[None]) -> None:
    """Nobody waits for this task any more: what it raised goes where the loop's owner looks for it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "a request failed after its client had gone", "exception": error, "task": task}
        )
