"""A store whose every call is seen before it is made and after it, in whatever transaction."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final

SEEN: Final = frozenset({"claim", "begin", "advance", "commit", "complete", "release", "hold", "read"})
WRITES: Final = frozenset({"claim", "advance", "commit", "complete", "release", "hold"})


class Disturbed:
    """`meet` is given the name of a call and whether it was made. What it raises is raised in the call's place."""

    def __init__(self, inner: Any, meet: Callable[[str, bool], object]) -> None:
        self._inner = inner
        self._meet = meet

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "transaction":
            return lambda: Disturbed(found(), self._meet)
        if name not in SEEN:
            return found
        if iscoroutinefunction(found):

            async def acall(*arguments: Any, **named: Any) -> Any:
                self._meet(name, False)
                answer = await found(*arguments, **named)
                self._meet(name, True)
                return answer

            return acall

        def call(*arguments: Any, **named: Any) -> Any:
            self._meet(name, False)
            answer = found(*arguments, **named)
            self._meet(name, True)
            return answer

        return call

    def __enter__(self) -> Disturbed:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._inner.__exit__(*error)

    async def __aenter__(self) -> Disturbed:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)
