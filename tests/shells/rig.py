"""An application behind the ASGI shell on a memory store with a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.shells.probe import Probe
from twicesafe.asgi import PUBLIC, IdempotencyMiddleware
from twicesafe.core.policy import Policy
from twicesafe.observe import Event
from twicesafe.stores.memory import AsyncMemoryStore


class Rig:
    """`safe` is the application to call; `probe.ledger` holds the effects; `events` what observers were told."""

    def __init__(
        self,
        policy: Policy | None = None,
        probe: Probe | None = None,
        *,
        app: Any = None,
        scope: Any = PUBLIC,
        store: Any = None,
        **more: Any,
    ) -> None:
        self.probe = probe or Probe()
        self.now = 1_000_000_000_000_000
        self.store = AsyncMemoryStore(clock=lambda: self.now) if store is None else store
        self.events: list[Event] = []
        self.safe = IdempotencyMiddleware(
            app or self.probe,
            self.store,
            scope=scope,
            policy=None if "operation" in more else (policy or Policy()),
            observer=self.events.append,
            **more,
        )

    def pass_time(self, how_long: timedelta) -> None:
        self.now += how_long // timedelta(microseconds=1)

    @property
    def effects(self) -> int:
        return len(self.probe.ledger)

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]


class Failing:
    """A store whose named methods raise the given errors before (`lost_reply` False) or after doing their work."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.faults: dict[str, list[tuple[BaseException, bool]]] = {}
        self.before: dict[str, Callable[[], Any]] = {}
        self.transactional = inner.transactional

    def fail(self, method: str, error: BaseException, *, times: int = 1, lost_reply: bool = False) -> None:
        self.faults.setdefault(method, []).extend([(error, lost_reply)] * times)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def failing(*args: Any, **how: Any) -> Any:
            if name in self.before:
                await self.before[name]()
            waiting = self.faults.get(name)
            if waiting:
                error, lost_reply = waiting.pop(0)
                if lost_reply:
                    await method(*args, **how)
                raise error
            return await method(*args, **how)

        return failing


async def settled(rig: Rig) -> None:
    """Wait for work whose client is gone."""
    while rig.safe._shared.running:
        await asyncio.wait(set(rig.safe._shared.running))
