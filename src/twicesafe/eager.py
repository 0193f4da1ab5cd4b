"""A task whose first step runs at once.

A keyed request runs in a task of its own, so that a caller's cancellation cannot tear it out of its work (R14). An
ordinary task costs two turns of the event loop, some 13 us; one that is started eagerly and ends without waiting costs
1 or 2. Python 3.12 has that as `eager_start`. Python 3.11 receives security fixes only, so what is done below to its
pure-Python Task cannot change under us.
"""

# ruff: noqa: SLF001 - what asyncio's tasks are made of has no public names
from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

if sys.version_info >= (3, 12):

    def start(
        coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> asyncio.Task[None] | None:
        """Run up to the first wait. None where there was none: it is over, and what it raised was raised here."""
        task = asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)
        if task.done():
            task.result()
            return None
        return task

else:
    from asyncio import tasks

    _current: dict[asyncio.AbstractEventLoop, Any] = tasks._current_tasks  # type: ignore[attr-defined]  # not in typeshed
    """What asyncio itself goes by; its functions to enter and to leave a task are four calls."""
    _Future = asyncio.futures._PyFuture  # type: ignore[attr-defined]  # not in typeshed
    _Task = tasks._PyTask  # type: ignore[attr-defined]  # not in typeshed

    class _Begun:
        """A coroutine that has made its first step: gives what that step awaits once more, then goes on."""

        __slots__ = ("_awaited", "_coroutine", "close", "send", "throw")

        def __init__(self, awaited: Any, coroutine: Coroutine[Any, Any, None]) -> None:
            self._awaited = awaited
            self._coroutine = coroutine
            self.throw = coroutine.throw
            self.close = coroutine.close
            self.send: Callable[[Any], Any] = self._first

        def _first(self, _: None) -> Any:
            awaited, self._awaited = self._awaited, None
            self.send = self._coroutine.send
            return awaited

    class _EagerTask(_Task):  # type: ignore[misc,valid-type]  # what typeshed lacks is Any
        _name = "twicesafe"
        _num_cancels_requested = 0
        _must_cancel = False
        _fut_waiter = None
        _log_destroy_pending = False

        def __init__(
            self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: contextvars.Context
        ) -> None:
            self._loop = loop
            self._callbacks: list[Any] = []
            self._coro: Any = coroutine
            self._context = context

        def __repr__(self) -> str:
            # Task's own insists on a coroutine, and _Begun is none: it would hide the error that it is to describe.
            return f"<Task {self._state.lower()} name={self._name!r} coro={self._coro!r}>"

        def __del__(self) -> None:
            # Most are over at once and have nothing to complain of.
            if self._log_destroy_pending:
                super().__del__()

        def _go_on(self, awaited: Any) -> None:
            coroutine = self._coro
            self._coro = _Begun(awaited, coroutine)
            self._log_destroy_pending = True
            tasks._register_task(self)
            # Cancelled by its own first step, it is what that step awaits that has to be cancelled.
            cancelled, self._must_cancel = self._must_cancel, False
            self._context.run(self._Task__step)
            self._coro = coroutine
            if cancelled:
                self._num_cancels_requested -= 1
                self.cancel()

        def _end(self, error: BaseException | None) -> None:
            """For whoever has got hold of it by current_task(), and waits for its end."""
            if self.done():
                return
            if error is None:
                _Future.set_result(self, None)
            elif isinstance(error, asyncio.CancelledError):
                _Future.cancel(self)
            else:
                _Future.set_exception(self, error)
                self._log_traceback = False

    def start(
        coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> asyncio.Task[None] | None:
        """Run up to the first wait. None where there was none: it is over, and what it raised was raised here."""
        outer = _current.pop(loop, None)
        task = _current[loop] = _EagerTask(coroutine, loop, context)
        try:
            awaited = context.run(coroutine.send, None)
            del _current[loop]
            task._go_on(awaited)
        except StopIteration:
            if task._must_cancel:
                task._end(asyncio.CancelledError())
                raise asyncio.CancelledError from None
            if task._callbacks:
                task._end(None)
            else:
                task._state = "FINISHED"
            return None
        except BaseException as error:
            task._end(error)
            raise
        finally:
            if outer is not None:
                _current[loop] = outer
            else:
                _current.pop(loop, None)
        return task
