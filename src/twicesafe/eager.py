"""A task whose first step runs at once.

A keyed request runs in a task of its own, so that a caller's cancellation cannot tear it out of its work (R14). An
ordinary task costs two turns of the event loop, some 13 us; one that is started eagerly and finishes without waiting
costs 2. Python 3.12 has that as `eager_start`. Python 3.11 receives security fixes only, so what is done below to its
pure-Python Task cannot change under us; it is what 3.12's own `Task.__eager_start` does.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

if sys.version_info >= (3, 12):

    def start(
        coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> asyncio.Task[T]:
        """A task that has already run up to its first wait, or to its end."""
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:
    from asyncio import tasks

    _Future = asyncio.futures._PyFuture  # type: ignore[attr-defined]  # noqa: SLF001
    _Task = tasks._PyTask  # type: ignore[attr-defined]  # noqa: SLF001

    class _EagerTask(_Task):  # type: ignore[misc,valid-type]
        def __init__(
            self, coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop, context: contextvars.Context
        ) -> None:
            _Future.__init__(self, loop=loop)
            self._name = "twicesafe"
            self._num_cancels_requested = 0
            self._must_cancel = False
            self._fut_waiter = None
            self._coro = coroutine
            self._context = context
            outer = tasks.current_task(loop)
            if outer is not None:
                tasks._leave_task(loop, outer)  # noqa: SLF001
            try:
                context.run(self._Task__step)
            finally:
                if outer is not None:
                    tasks._enter_task(loop, outer)  # noqa: SLF001
            if not self.done():
                self._log_destroy_pending = True
                tasks._register_task(self)  # noqa: SLF001

    def start(
        coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, context: contextvars.Context
    ) -> asyncio.Task[T]:
        """A task that has already run up to its first wait, or to its end."""
        return _EagerTask(coroutine, loop, context)
