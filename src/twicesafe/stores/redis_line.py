"""One connection for any number of tasks, which pipelines by itself.

Theory of operation. A task leaves its command in a list and waits for its own answer. A writer takes whatever is in the
list when it gets its turn and sends it in one piece, so the more tasks ask at once, the fewer system calls and round
trips each costs; a reader hands out the answers in the order of the commands. One timer looks after all that wait. When
anything goes wrong with the connection everybody is told at once, and whether their command had been sent.

With `replicas` every piece that holds a write ends in a WAIT, and its answers are handed out when that is answered: one
wait for all who wrote together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

from twicesafe.stores.redis_errors import lost, unconfirmed
from twicesafe.stores.redis_scripts import request

PIECE: Final = 256
"""Commands sent in one piece at most: beyond, the first would wait for the last."""


class NotSentError(Exception):
    """The connection failed before the command had been sent: ask on another."""


@final
class _Waiting:
    """A command's future, and what its loss would mean."""

    __slots__ = ("answer", "future", "held", "writes")

    def __init__(self, future: asyncio.Future[Any], *, writes: bool) -> None:
        self.future = future
        self.writes = writes
        self.held = False
        self.answer: Any = None


@final
class _Confirmation:
    """The WAIT at the end of a piece."""

    __slots__ = ("piece",)

    def __init__(self, piece: list[_Waiting]) -> None:
        self.piece = piece


class Line:
    """A connected redis-py connection, in this line's hands from now on.

    `refused` tells an error that the server answered from one of the connection's.
    """

    def __init__(
        self, connection: Any, timeout: float, replicas: int, refused: Callable[[BaseException], object]
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._replicas = replicas
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._out: list[tuple[bytes, _Waiting]] = []
        self._in: deque[_Waiting | _Confirmation] = deque()
        self._something = asyncio.Event()
        self._progress = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.broken = False
        """Nothing is sent on it any more."""
        self._ended = False
        self._tasks = [self._loop.create_task(self._write()), self._loop.create_task(self._read())]

    def put(self, command: bytes, *, writes: bool) -> asyncio.Future[Any]:
        """Send it with whatever else is to be sent. To come: its answer, NotSentError, StoreError, or what the server
        raised."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.broken:
            future.set_exception(NotSentError())
            return future
        self._out.append((command, _Waiting(future, writes=writes)))
        self._something.set()
        if self._watch is None:
            self._progress = self._loop.time()
            self._watch = self._loop.call_later(self._timeout / 2, self._look)
        return future

    async def _write(self) -> None:
        wait = request(b"WAIT", b"%d" % self._replicas, b"%d" % int(self._timeout * 500))
        try:
            while True:
                await self._something.wait()
                piece, self._out = self._out[:PIECE], self._out[PIECE:]
                if not self._out:
                    self._something.clear()
                out = [command for command, _ in piece]
                waiting = [one for _, one in piece]
                self._in.extend(waiting)
                if self._replicas and any(one.writes for one in waiting):
                    self._in.append(_Confirmation(waiting))
                    for one in waiting:
                        one.held = True
                    out.append(wait)
                await self._connection.send_packed_command(b"".join(out), check_health=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing can be sent any more
            self._break(error)

    async def _read(self) -> None:
        read = self._connection.read_response
        waiting = self._in
        try:
            while True:
                try:
                    answer = await read(disable_decoding=True, disconnect_on_error=False)
                except Exception as error:
                    if self._refused(error) is None:
                        raise
                    answer = error
                self._progress = self._loop.time()
                one = waiting.popleft()
                if type(one) is _Confirmation:
                    self._confirm(one, answer)
                elif one.held:
                    one.answer = answer
                else:
                    _hand_out(one.future, answer)
                if self.broken:
                    self._end_if_idle()
                if self._ended:
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, no answer can be told from another any more
            self._break(error)
        finally:
            await self._connection.disconnect(nowait=True)

    def _confirm(self, confirmation: _Confirmation, count: Any) -> None:
        enough = type(count) is int and count >= self._replicas
        for one in confirmation.piece:
            if enough or not one.writes or isinstance(one.answer, Exception):
                _hand_out(one.future, one.answer)
            elif not one.future.done():
                one.future.set_exception(unconfirmed(count if type(count) is int else 0, self._replicas))

    def _look(self) -> None:
        """Break off where the server has been silent for too long."""
        if not self._in and not self._out:
            self._watch = None
            return
        silent = self._loop.time() - self._progress
        if silent >= self._timeout:
            self._watch = None
            self._break(TimeoutError(f"no answer within {self._timeout:g} s"))
        else:
            self._watch = self._loop.call_later(max(self._timeout - silent, self._timeout / 10), self._look)

    def retire(self, ended: Callable[[Line], object]) -> None:
        """Let those who wait have their answers, and then end, and tell."""
        self.broken = True
        self._tasks[-1].add_done_callback(lambda _: ended(self))
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._in and not self._out:
            self._break(ConnectionError("the line was retired"))

    def _break(self, error: BaseException) -> None:
        if self._ended:
            return
        self.broken = self._ended = True
        if self._watch is not None:
            self._watch.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for sent in self._in:
            for one in sent.piece if type(sent) is _Confirmation else (sent,):
                if not one.future.done():
                    one.future.set_exception(lost(error, writes=one.writes))
        for _, one in self._out:
            if not one.future.done():
                one.future.set_exception(NotSentError(str(error) or type(error).__name__))
        self._in.clear()
        self._out.clear()

    async def aclose(self) -> None:
        """End it, whoever waits."""
        self._break(ConnectionError("the store was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _hand_out(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return  # whoever waited was cancelled
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
