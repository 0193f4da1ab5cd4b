"""Blocking work of an asynchronous request: in a thread of its own, and seen through when its client is gone.

Theory of operation. Under ASGI, Django gives each request a thread for what blocks, the ORM's work among it, and takes
it away when the client hangs up. A transaction lives in the thread that began it. So a request that may be claimed gets
a task and a thread of twicesafe's: the request waits for them, and may be cancelled; the work ends when it is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from asgiref.sync import (
    AsyncToSync,
    SyncToAsync,
    ThreadSensitiveContext,
    async_to_sync,
    iscoroutinefunction,
    markcoroutinefunction,
    sync_to_async,
)
from django.db import connections  # type: ignore[import-untyped]

from twicesafe.asgi import DRAIN
from twicesafe.blocking.sending import LINGER, ReaderGoneError
from twicesafe.incoming import ASGIScope, Receive
from twicesafe.keyed import ASGIApp, Send

__all__ = ["draining", "in_thread", "iscoroutinefunction", "markcoroutinefunction", "seen_through"]

R = TypeVar("R")

_END: Final = object()
_running: Final[set[asyncio.Task[None]]] = set()
"""The loop itself holds its tasks weakly only."""


async def in_thread(call: Callable[[], R]) -> R:
    """Call it where the ORM works for this request."""
    return await sync_to_async(call, thread_sensitive=True)()


async def seen_through(visit: Any, respond: Callable[[], Awaitable[Any]]) -> Any:
    """The response of the layers inside, recorded. Once something is claimed, cancelling this cancels nothing."""
    loop = asyncio.get_running_loop()
    context = copy_context()
    work = _Work(visit, respond, loop)
    task = loop.create_task(work.run(), context=context)
    _running.add(task)
    task.add_done_callback(_running.discard)
    try:
        await asyncio.wait([work.answer])
    except asyncio.CancelledError:
        work.leave()
        if not visit.begun:
            task.cancel()
        raise
    finally:
        _show(context)
    return work.taken()


def draining(application: ASGIApp, drain: timedelta = DRAIN) -> ASGIApp:
    """Django's ASGI application, with a shutdown that waits for work whose client is gone, up to `drain`.

    Django itself knows no lifespan: without this such work ends with the process, and its claim with its lease.
    """

    async def serving(scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await application(scope, receive, send)
            return
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        if _running:
            await asyncio.wait(set(_running), timeout=drain.total_seconds())
        await send({"type": "lifespan.shutdown.complete"})

    return serving


class _Work:
    """The task of one request."""

    def __init__(self, visit: Any, respond: Callable[[], Awaitable[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self._visit = visit
        self._respond = respond
        self._loop = loop
        self.answer: asyncio.Future[Any] = loop.create_future()
        self._wanted = asyncio.Event()
        """Set when the next piece is asked for, and when none will be."""
        self._came = asyncio.Event()
        self._piece: Any = None
        self._pieces: Any = None
        """The view's own, where it streams."""
        self._gone = False
        self._giving_up: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        own = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(own)
        with suppress(AttributeError):
            # Behind a middleware that blocks, asgiref would have that one's thread, which ends with its client.
            del AsyncToSync.executors.current
        try:
            await self._answer()
        except BaseException as error:  # noqa: BLE001 - whoever waits has to hear of it
            self._fail(error)
        finally:
            if self._giving_up is not None:
                self._giving_up.cancel()
            await _closed(own)

    async def _answer(self) -> None:
        visit = self._visit
        try:
            response = await self._respond()
        except BaseException as error:
            await in_thread(partial(visit.broke, error))
            raise
        pieces = self._pieces = _blocking(response) if response.streaming else None
        close = getattr(pieces, "close", None)
        settled = await in_thread(partial(visit.settle, response, pieces, close))
        visit.part()
        if visit.flow is None:
            self.answer.set_result(settled)
            return
        flowing, end = visit.flow
        closers = settled._resource_closers  # noqa: SLF001 - there is no other way
        if end is not None:
            # It blocks: it is for this task to call, when the flow is over.
            closers.remove(end)
        closers.insert(0, self.leave_soon)
        settled.streaming_content = _Reader(self)
        self.answer.set_result(settled)
        # Whoever waits has it now. Held here, it could not be lost, and its loss not noticed.
        del response, settled, closers
        if self._gone:
            self._linger()
        try:
            await self._let_flow(flowing)
        finally:
            if end is not None:
                await in_thread(end)

    def taken(self) -> Any:
        """The answer, for the one who waits for it."""
        answer, self.answer = self.answer, self._loop.create_future()
        self.answer.set_result(None)
        return answer.result()

    def leave(self) -> None:
        """Nobody waits for the answer, or for more of it."""
        if not self._gone:
            self._gone = True
            self._wanted.set()
            self._linger()
            if self.answer.done() and not self.answer.cancelled() and (error := self.answer.exception()) is not None:
                self._report(error)

    def leave_soon(self) -> None:
        """`leave`, from any thread; of no use once the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.leave)

    def _linger(self) -> None:
        """An answer that flows is read on for a while, for the record's sake."""
        if self._visit.flow is not None:
            self._giving_up = self._loop.call_later(LINGER, self._give_up)

    def _give_up(self) -> None:
        """The view may wait for ever for something to stream, as Django would have it do until its client is gone."""
        if isinstance(self._pieces, _Asked):
            self._pieces.give_up()

    async def _let_flow(self, flowing: Iterator[bytes]) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._gone:
                return
            try:
                self._piece = await in_thread(lambda: next(flowing, _END))
            except ReaderGoneError:
                return
            self._came.set()
            if self._piece is _END:
                return

    async def read(self) -> bytes:
        """The next piece of what flows."""
        self._wanted.set()
        await self._came.wait()
        self._came.clear()
        if isinstance(self._piece, BaseException):
            raise self._piece
        if self._piece is _END:
            raise StopAsyncIteration
        piece: bytes = self._piece
        return piece

    def _fail(self, error: BaseException) -> None:
        if not self.answer.done() and not self._gone:
            if isinstance(error, asyncio.CancelledError):
                self.answer.cancel()
            else:
                self.answer.set_exception(error)
        elif self.answer.done() and not self._gone:
            self._piece = error
            self._came.set()
        elif not isinstance(error, asyncio.CancelledError):
            self._report(error)

    def _report(self, error: BaseException) -> None:
        """Nobody waits for it any more: it goes where the loop's owner looks for it."""
        self._loop.call_exception_handler({"message": "a request failed after its client had gone", "exception": error})


class _Reader:
    """What Django iterates over. Layers around that lose it, unread and unclosed, must not leave the view waiting."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await self._work.read()

    def __del__(self) -> None:
        self._work.leave_soon()


def _blocking(response: Any) -> Iterator[bytes]:
    """The pieces of a stream, for a thread to ask for."""
    return _Asked(aiter(response.streaming_content)) if response.is_async else iter(response.streaming_content)


class _Asked:
    """An asynchronous iterator as a blocking one: the loop's turn for each piece."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._step: asyncio.Task[Any] | None = None
        self._given_up = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = async_to_sync(self._next)()
        if piece is _END:
            raise StopIteration
        assert isinstance(piece, bytes)
        return piece

    async def _next(self) -> object:
        if self._given_up:
            raise ReaderGoneError("nobody is there to read on")
        self._step = asyncio.current_task()
        try:
            return await anext(self._pieces, _END)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
            raise ReaderGoneError("nobody was there to read on") from None
        finally:
            self._step = None

    def give_up(self) -> None:
        """Wait no longer for a piece, now or later."""
        self._given_up = True
        if self._step is not None:
            self._step.cancel()

    def close(self) -> None:
        """Let go of it, wherever it stands."""
        async_to_sync(self._close)()

    async def _close(self) -> None:
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()


async def _closed(own: ThreadSensitiveContext) -> None:
    """End the thread, and what was opened in it: nobody else would."""
    executor = SyncToAsync.context_to_thread_executor.pop(own, None)
    if executor is not None:
        closed = executor.submit(connections.close_all)
        executor.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closed))


def _show(context: Context) -> None:
    """What the view set of context variables is seen outside, as if there were no task."""
    for variable, value in context.items():
        if variable is not SyncToAsync.thread_sensitive_context and variable.get(None) is not value:
            variable.set(value)
