"""twicesafe for any ASGI application: Starlette, FastAPI, a bare callable; under any ASGI server.

Install it inside authentication and outside of whatever does the work. Requests without a key, with another method and
of other protocols pass through untouched. Where a policy lets the key stand in a body, that body is read first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Final

from twicesafe import eager, reached
from twicesafe.cancelling import ended
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.dealings import EnteredOf, Shared
from twicesafe.errors import RequestError, SchemaError, StoreError
from twicesafe.incoming import ASGIScope, ClientGoneError, Message, Receive
from twicesafe.keyed import ASGIApp, KeyedRequest, Send
from twicesafe.observe import Event, Observer, log_events, tell
from twicesafe.operations import check_async, check_effects, check_scope, given_or_named, identified
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
        entered: EnteredOf = reached.entered,
    ) -> None:
        asked: Operation | OperationOf = given_or_named(operation, policy, "http")
        check_async(store)
        check_scope(scope)
        self._operation: Operation | None = None
        self._operation_of: OperationOf | None = None
        if isinstance(asked, Operation):
            check_effects(asked, store)
            self._operation = asked
        else:
            self._operation_of = asked
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
        if operation is None or not operation.policy.takes(scope["method"]):
            await self.app(scope, receive, send)
            return
        policy = operation.policy
        request = KeyedRequest(self._shared, operation, scope, receive, send)
        try:
            key = request.key = request.plain_key() or await request.presented_key() or ""
            if key:
                asked = self._who(scope)
                who: Scope = asked if type(asked) is str else identified(await asked if isawaitable(asked) else asked)
        except RequestError as error:
            self._shared.refused(operation, error)
            await send_refusal(error, policy, send)
            return
        except ClientGoneError:
            return
        if not key:
            await self.app(scope, request.receive if request.has_begun_reading else receive, send)
            return
        scope["twicesafe"] = request
        rest = begun(request, request.serve(self.app, who), self._shared)
        if rest is not None:
            await rest

    async def drained(self) -> None:
        """Wait, up to `drain`, for work whose client is gone.

        For the lifespan of an application around one that is mounted: servers tell mounted ones of no shutdown.
        """
        await drained(self._shared, self._drain)


def current(scope: ASGIScope) -> KeyedRequest:
    """The keyed request that this ASGI scope belongs to. LookupError where the request carries no key."""
    found = scope.get("twicesafe")
    if not isinstance(found, KeyedRequest) or not found.key:
        raise LookupError("this request is not under an idempotency key")
    return found


async def send_refusal(error: RequestError, policy: Policy, send: Send) -> None:
    """Answer a request that never came as far as a claim."""
    status, headers, body = policy.problem(error.problem, detail=str(error), status=error.status)
    await send({"type": "http.response.start", "status": status, "headers": [*policy.announced, *headers]})
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
        await ended(task)
        task.result()
    except asyncio.CancelledError:
        # Also where it has ended this very moment.
        task.add_done_callback(_report)
        if not task.done():
            if request.claims:
                request.detach()
            else:
                task.cancel()
                await ended(task)
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
