"""A relay as a program: the real one, with its tasks, on an event loop in which no time passes.

It is resumed statement by statement and message by message, and comes to the same place by the same answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NamedTuple

from tests.model.attempts import SQL
from tests.model.wishes import Choose
from twicesafe.core.delivery import DeliveryPolicy
from twicesafe.core.message import Message
from twicesafe.observe import Event
from twicesafe.outbox import relay as relay_module
from twicesafe.outbox.relay import Relay
from twicesafe.stores.sql.messages import add, message_queries
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import adrive, drive
from twicesafe.testing.exploring import Program

MESSAGES: Final = message_queries(Dialect.SQLITE, Placeholder.QUESTION_MARK, "twicesafe_now()")
GIVES_UP: Final = Choose("cr")
DELAY: Final = timedelta(seconds=1)


class Publish(NamedTuple):
    """A message leaves for its receiver. Sent back: None, once it is acknowledged."""

    message: Message


class _StillLoop(asyncio.SelectorEventLoop):
    """Its time stands still, so that nothing in it is ever late."""

    def time(self) -> float:
        return 0.0


class _Asked(NamedTuple):
    wish: Any
    answered: asyncio.Future[Any]


class _Store:
    """A store as far as a relay knows one. Whoever asks waits for the program to be answered."""

    transactional = True
    connection = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.asked: deque[_Asked] = deque()

    async def ask(self, wish: Any) -> Any:
        if not _loops:
            raise ConnectionError("all is over")
        asked = _Asked(wish, self._loop.create_future())
        self.asked.append(asked)
        return await asked.answered

    async def check_schema(self) -> None:
        """It is there."""

    def transaction(self) -> _Transaction:
        return _Transaction(self)

    async def publish(self, message: Message) -> None:
        await self.ask(Publish(message))


class _Transaction:
    def __init__(self, store: _Store) -> None:
        self.connection = store
        self._open = False

    async def __aenter__(self) -> _Transaction:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._open:
            await self.connection.ask(SQL("rollback"))

    async def begin(self) -> None:
        await self.connection.ask(SQL("begin"))
        self._open = True

    async def commit(self) -> None:
        self._open = False
        await self.connection.ask(SQL("commit"))


async def _arun(connection: _Store, steps: Callable[[Queries], Any]) -> Any:
    """What `callers_asyncio.arun` does, on a connection of the model's."""
    return await adrive(steps(MESSAGES), connection.ask)


@contextmanager
def standing_still() -> Iterator[None]:
    """The relay's module asks for statements here, reads no clock, and draws the longest delay. Programs need this."""
    module: Any = relay_module
    ours = {"arun": _arun, "monotonic": lambda: 0.0, "random": lambda: 1.0}
    theirs = {name: getattr(module, name) for name in ours}
    loop = _StillLoop()
    try:
        for name, value in ours.items():
            setattr(module, name, value)
        _loops.append(loop)
        yield
    finally:
        _loops.remove(loop)
        # Programs that were left where they are come to their end, whatever is refused to them.
        loop.run_until_complete(_ended())
        _tasks.clear()
        for name, value in theirs.items():
            setattr(module, name, value)
        loop.close()


_loops: Final[list[asyncio.AbstractEventLoop]] = []
_tasks: Final[list[asyncio.Task[None]]] = []


async def _ended() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def relaying(owner: bytes, rounds: int) -> Program:
    """So many rounds of a relay, which then leaves its shards."""
    loop = _loops[-1]
    store = _Store(loop)
    task = loop.create_task(_rounds(store, owner, rounds))
    # The loop itself keeps none that waits.
    _tasks.append(task)
    while True:
        while not store.asked and not task.done():
            loop.call_soon(loop.stop)
            loop.run_forever()
        if task.done():
            return task.result()
        wish, answered = store.asked.popleft()
        try:
            came = yield wish
        except Exception as error:
            answered.set_exception(error)
        else:
            answered.set_result(came)


async def _rounds(store: Any, owner: bytes, rounds: int) -> None:
    policy = DeliveryPolicy(first_delay=DELAY, longest_delay=DELAY)
    relay = Relay(store, store, policy=policy, at_once=1, observer=_nobody)
    relay._owner = owner
    # What it does besides, now and then, is none of this.
    relay._purge_at = relay._count_at = float("inf")
    for _ in range(rounds):
        try:
            await relay.run_once()
        except Exception:
            # As its worker does, which goes on with the next round.
            continue
    try:
        await relay.aclose()
    except Exception:
        return


def _nobody(event: Event) -> None:
    """Observes nothing."""


def writing(message: Message) -> Program:
    """A handler adds a message in its transaction, which it may give up."""
    try:
        yield SQL("begin")
        yield from add(MESSAGES, message)
        if (yield GIVES_UP) == "r":
            yield SQL("rollback")
            return None
        yield SQL("commit")
    except Exception:
        return None


def written(message: Message) -> Any:
    """The statement that adds it."""
    found: list[Any] = []

    def note(statement: Any) -> Any:
        found.append(statement)
        return [(1,)]

    drive(add(MESSAGES, message), note)
    return found[0]
