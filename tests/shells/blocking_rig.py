"""Requests driven by the blocking driver, without any framework, on a memory store whose clock only the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from twicesafe.blocking.dealings import Shared
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.sending import Sendable
from twicesafe.core.fingerprint import RequestFacts
from twicesafe.core.keys import PUBLIC
from twicesafe.core.policy import Operation, Policy
from twicesafe.observe import Event
from twicesafe.stores.memory import MemoryStore

KEYED = Policy(effects="keyed")
LINES = ((b"Content-Type", b"text/plain"),)
REPLAYED = (b"idempotent-replayed", b"true")
RETENTION = (b"idempotency-key-retention", b"86400")


class Failing:
    """A blocking store whose named methods raise the given errors before or (`lost_reply`) after doing their work."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.faults: dict[str, list[tuple[BaseException, bool]]] = {}
        self.before: dict[str, Callable[[], Any]] = {}
        self.transactional = inner.transactional

    def fail(self, method: str, error: BaseException, *, times: int = 1, lost_reply: bool = False) -> None:
        self.faults.setdefault(method, []).extend([(error, lost_reply)] * times)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def failing(*args: Any, **how: Any) -> Any:
            if name in self.before:
                self.before[name]()
            waiting = self.faults.get(name)
            if waiting:
                error, lost_reply = waiting.pop(0)
                if lost_reply:
                    method(*args, **how)
                raise error
            return method(*args, **how)

        return failing


class BlockingRig:
    """`ledger` holds the effects; `events` what observers were told; `seconds` is the process's clock."""

    def __init__(self, policy: Policy | None = None, store: Any = None) -> None:
        self.policy = policy or Policy()
        self.now = 1_000_000_000_000_000
        self.seconds = 0.0
        self.paused: list[float] = []
        self.store = Failing(MemoryStore(clock=lambda: self.now)) if store is None else store
        self.events: list[Event] = []
        self.ledger: list[str] = []
        self.shared = Shared(self.store, self.events.append, clock=lambda: self.seconds, pause=self.paused.append)

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.events]

    def pass_time(self, how_long: timedelta) -> None:
        self.now += how_long // timedelta(microseconds=1)

    def request(self, key: str = "k-0001") -> BlockingRequest:
        return BlockingRequest(self.shared, Operation("op", self.policy), key)

    def ask(
        self,
        pieces: Iterable[bytes] | Callable[[], Iterable[bytes]] = (b"done",),
        *,
        status: int = 201,
        headers: tuple[tuple[bytes, bytes], ...] = LINES,
        close: Callable[[], object] | None = None,
        error: BaseException | None = None,
        key: str = "k-0001",
        body: bytes = b"x",
        entered: bool | None = None,
        handler: Callable[[BlockingRequest], object] | None = None,
    ) -> Sendable:
        """One request to its Sendable. The handler appends to the ledger, then raises or answers."""
        request = self.request(key)
        instead = request.enter(PUBLIC, facts(body))
        if instead is not None:
            return instead
        request.entered = entered
        self.ledger.append(key)
        if handler is not None:
            handler(request)
        if error is not None:
            return request.raised(error, close)
        return request.answered(status, headers, pieces() if callable(pieces) else pieces, close)


def facts(body: bytes) -> RequestFacts:
    return RequestFacts("POST", b"/jobs", b"", (), body, {})


def sent(sendable: Sendable) -> bytes:
    """What a server would send of it; it closes what is to be closed, and raises what is to be raised."""
    try:
        body = b"".join(sendable.pieces)
    finally:
        if sendable.close is not None:
            sendable.close()
    if sendable.error is not None:
        raise sendable.error
    return body


def kind(sendable: Sendable) -> str:
    """The last part of the problem's type."""
    return str(json.loads(b"".join(sendable.pieces))["type"]).rsplit(":", 1)[1]
