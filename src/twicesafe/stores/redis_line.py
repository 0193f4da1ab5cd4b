"""One connection for any number of tasks, which pipelines by itself.

Theory of operation. A task leaves its command in a list and waits for its own answer. What is in the list is sent in
one piece when all tasks of this turn of the loop have had theirs, so the more tasks ask at once, the fewer system calls
and round trips each costs; a list that grows long is sent at once, for the server to work on while more is asked.
Answers are handed out in the order of the commands as they come, by no task of their own. One timer looks after all
that wait. When anything goes wrong with the connection everybody is told at once, and whether their command had been
sent.

With `replicas` every piece that holds a write ends in a WAIT, and its answers are handed out when that is answered: one
wait for all who wrote together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

from twicesafe.stores.redis_driver import NOT_YET, let_go, taken_over
from twicesafe.stores.redis_errors import lost, unconfirmed
from twicesafe.stores.redis_scripts import request

PIECE: Final = 8
"""Commands that are worth a piece while more are asked. A system call costs what the server needs for two of them."""

CONFIRMED: Final = 256
"""Commands that share one WAIT at most: beyond, the first would wait for the last."""


class NotSentError(Exception):
    """The connection failed before the command had been sent: ask on another."""


@final
class _Waiting:
    """A command's future, and what its loss would mean."""

    __slots__ = ("answer", "future", "held", "writes")

    def __init__(self, future: asyncio.Future[Any], writes: bool) -> None:  # noqa: FBT001 - for every command
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


@final
class Line(asyncio.Protocol):
    """A connected redis-py connection, in this line's hands from now on."""

    def __init__(self, connection: Any, timeout: float, replicas: int) -> None:
        self._connection = connection
        self._timeout = timeout
        self._replicas = replicas
        self._wait = request(b"WAIT", b"%d" % replicas, b"%d" % int(timeout * 500))
        self._loop = asyncio.get_running_loop()
        self._commands: list[bytes] = []
        self._asked: list[_Waiting] = []
        """Whose they are."""
        self._in: deque[_Waiting | _Confirmation] = deque()
        self._full = False
        """Whether the connection takes no more for now."""
        self._progress = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.broken = False
        """Nothing is sent on it any more."""
        self._ended = False
        self._tell: Callable[[Line], object] | None = None
        self._transport, self._reader = taken_over(connection, self)

    def put(self, command: bytes, *, writes: bool) -> asyncio.Future[Any]:
        """Send it with whatever else is to be sent. To come: its answer, NotSentError, StoreError, or what the server
        raised."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.broken:
            future.set_exception(NotSentError())
            return future
        commands = self._commands
        commands.append(command)
        self._asked.append(_Waiting(future, writes))
        if len(commands) == 1:
            self._loop.call_soon(self._send)
        elif len(commands) == PIECE and not self._replicas:
            self._send()
        if self._watch is None:
            self._progress = self._loop.time()
            self._watch = self._loop.call_later(self._timeout / 2, self._look)
        return future

    def _send(self) -> None:
        while self._commands and not self._full and not self._ended:
            if not self._replicas:
                commands, self._commands = self._commands, []
                asked, self._asked = self._asked, []
                self._in += asked
            else:
                commands, self._commands = self._commands[:CONFIRMED], self._commands[CONFIRMED:]
                asked, self._asked = self._asked[:CONFIRMED], self._asked[CONFIRMED:]
                self._in += asked
                if any(one.writes for one in asked):
                    self._in.append(_Confirmation(asked))
                    for one in asked:
                        one.held = True
                    commands.append(self._wait)
            self._transport.write(b"".join(commands))

    def pause_writing(self) -> None:
        """Whoever asks now waits here."""
        self._full = True

    def resume_writing(self) -> None:
        """Send what has gathered."""
        self._full = False
        self._send()

    def data_received(self, data: bytes) -> None:
        """Hand out the answers."""
        waiting, gets = self._in, self._reader.gets
        try:
            self._reader.feed(data)
            while (answer := gets()) is not NOT_YET:
                one = waiting.popleft()
                if type(one) is _Confirmation:
                    self._confirm(one, answer)
                elif one.held:
                    one.answer = answer
                else:
                    _hand_out(one.future, answer)
                self._progress = self._loop.time()
        except Exception as error:  # noqa: BLE001 - whatever it is, no answer can be told from another any more
            self._break(error)
        if self.broken:
            self._end_if_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody."""
        self._break(exc or ConnectionError("the server closed the connection"))

    def _confirm(self, confirmation: _Confirmation, count: Any) -> None:
        enough = type(count) is int and count >= self._replicas
        for one in confirmation.piece:
            if enough or not one.writes or isinstance(one.answer, Exception):
                _hand_out(one.future, one.answer)
            elif not one.future.done():
                one.future.set_exception(unconfirmed(count if type(count) is int else 0, self._replicas))

    def _look(self) -> None:
        """Break off where the server has been silent for too long."""
        if not self._in and not self._asked:
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
        self._tell = ended
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._in and not self._asked:
            self._break(ConnectionError("the line was retired"))

    def _break(self, error: BaseException) -> None:
        if self._ended:
            return
        self.broken = self._ended = True
        if self._watch is not None:
            self._watch.cancel()
        let_go(self._connection)
        for sent in self._in:
            for one in sent.piece if type(sent) is _Confirmation else (sent,):
                if not one.future.done():
                    one.future.set_exception(lost(error, writes=one.writes))
        for one in self._asked:
            if not one.future.done():
                one.future.set_exception(NotSentError(str(error) or type(error).__name__))
        self._in.clear()
        self._commands.clear()
        self._asked.clear()
        if self._tell is not None:
            self._tell(self)

    def close(self) -> None:
        """End it, whoever waits."""
        self._break(ConnectionError("the store was closed"))


def _hand_out(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return  # whoever waited was cancelled
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
