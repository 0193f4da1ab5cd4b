"""A caller who hangs up while the upstream works."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from twicesafe.incoming import ClientGoneError, Receive

T = TypeVar("T")


class HangUp:
    """Watches `receive` from the moment the request is whole, and ends a wait for the upstream when it says so.

    Under a key `receive` keeps a hang-up to itself as long as the work has to go on; only a wait for the upstream is
    ended, never the recording of what it said.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[Any] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._gone = False
        self._waiting = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def watch(self) -> None:
        """The request has been read to its end: from now on, look for a hang-up."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the upstream. ClientGoneError where the caller hangs up first; `work` is cancelled then."""
        if self._gone:
            work.close()
            raise ClientGoneError("the caller hung up")
        assert self._task is not None
        cancelled_before = self._task.cancelling()
        self._waiting = True
        try:
            return await work
        except asyncio.CancelledError:
            if self._gone and self._task.uncancel() <= cancelled_before:
                raise ClientGoneError("the caller hung up") from None
            raise
        finally:
            self._waiting = False

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._waiting:
            assert self._task is not None
            self._task.cancel()
