"""Ends a process before or behind each of its steps, as far as its store and whoever else it deals with can tell.

def trial(life):
    with life:
        buy(life.store(store), "order-1")
    # Here it is dead, at another place in each run; or it has come to its end, in the last one.
    assert buy(store, "order-1") == ...

cut_everywhere(trial)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Final, TypeVar

from twicesafe.errors import ConfigurationError

MOST: Final = 1000
"""Runs of one trial."""

R = TypeVar("R")


class _Died(BaseException):
    """The process is dead. Whatever it tries from here on raises this again and does nothing."""


class Life:
    """The life of one process, a context: what is within it ends quietly where the process dies.

    Each call of a store is a step, and of a function that it is told of. At `place` 0 it dies before the first step,
    at 1 behind it, at 2 before the second, and so on. A transaction that is open then is rolled back.
    """

    def __init__(self, place: int | None = None) -> None:
        self._place = place
        self._steps: list[str] = []
        self._dead = False
        self._within = False

    def __enter__(self) -> Life:
        self._within = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._within = False
        # A dead process tells nobody what became of it.
        return self._dead

    async def __aenter__(self) -> Life:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, traceback)

    @property
    def died(self) -> bool:
        """Whether it died, or came to its end otherwise."""
        return self._dead

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps it has begun, by name. The last one was not taken, where it died before that."""
        return tuple(self._steps)

    def __str__(self) -> str:
        if not self._dead:
            return f"the process came to its end, after {len(self._steps)} steps"
        assert self._place is not None
        where = "behind" if self._place % 2 else "before"
        before = ", ".join(self._steps[:-1])
        return f"the process died {where} step {len(self._steps)}, {self._steps[-1]}" + (
            f" (after {before})" * bool(before)
        )

    def store(self, store: Any) -> Any:
        """The store as the process has it: blocking or asynchronous, with its transactions."""
        return _Watched(self, store)

    def function(self, function: Callable[..., R]) -> Callable[..., R]:
        """The function as the process has it, a request to another system say: a step each time it is called."""
        return self._step(getattr(function, "__name__", repr(function)), function)

    def _step(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if iscoroutinefunction(function):

            async def astep(*given: Any, **named: Any) -> Any:
                with self._taken(name):
                    return await function(*given, **named)

            return astep

        def step(*given: Any, **named: Any) -> Any:
            with self._taken(name):
                return function(*given, **named)

        return step

    @contextmanager
    def _taken(self, name: str) -> Any:
        if self._dead:
            raise _Died
        if not self._within:
            # What stands outside of the context is another process.
            yield
            return
        self._steps.append(name)
        self._die_at(2 * len(self._steps) - 2)
        yield
        self._die_at(2 * len(self._steps) - 1)

    def _die_at(self, place: int) -> None:
        if place == self._place:
            self._dead = True
        if self._dead:
            raise _Died


class _Watched:
    """A store or a transaction each of whose calls is a step."""

    def __init__(self, life: Life, watched: Any) -> None:
        self._life, self._watched = life, watched

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._watched, name)
        if name == "transaction":
            return lambda: _Watched(self._life, found())
        if not callable(found) or name in ("connection", "now"):
            return found
        return self._life._step(name, found)  # noqa: SLF001 - of one whole

    def __enter__(self) -> _Watched:
        self._watched.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        # Of a dead process this is the loss of its connection.
        return self._watched.__exit__(*error)

    async def __aenter__(self) -> _Watched:
        await self._watched.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._watched.__aexit__(*error)


def cut_everywhere(trial: Callable[[Life], object], *, most: int = MOST) -> int:
    """Call `trial` with one life after another, each of which dies a place later, until one comes to its end.

    How many there were. What a trial raises says where the process had died.
    """
    for place in range(most):
        life = Life(place)
        try:
            trial(life)
        except Exception as error:
            error.add_note(str(life))
            raise
        if _ended(life):
            return place + 1
    raise _endless(most)


async def acut_everywhere(trial: Callable[[Life], Awaitable[object]], *, most: int = MOST) -> int:
    """cut_everywhere, for asyncio."""
    for place in range(most):
        life = Life(place)
        try:
            await trial(life)
        except Exception as error:
            error.add_note(str(life))
            raise
        if _ended(life):
            return place + 1
    raise _endless(most)


def _ended(life: Life) -> bool:
    if not life.steps:
        raise ConfigurationError("nothing can be cut: use life.store(...) or life.function(...) within `with life:`")
    return not life.died


def _endless(most: int) -> ConfigurationError:
    return ConfigurationError(f"after {most} runs the process has not come to its end: it takes more and more steps")
