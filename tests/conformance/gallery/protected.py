"""The gallery's shop again, which knows nothing of keys, behind twicesafe."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from tests.conformance.gallery.honest import Refused, authenticated, sent
from tests.conformance.gallery.shop import Asked, Shop, document
from twicesafe import Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.record import Instant
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.memory_room import wall_clock
from twicesafe.stores.sqlite import AsyncSqliteStore

POLICY = Policy(required=True, lease=timedelta(minutes=1))
BRIEF = timedelta(seconds=2)
"""The lease of a server that is killed."""
Clock = Callable[[], Instant]


class Protected:
    """The shop with a store, which is made when it begins. `/later` moves the clock, where the store has this one."""

    def __init__(self, store: Callable[[Clock], AsyncStore], file: Path | None = None, policy: Policy = POLICY) -> None:
        self._make = store
        self._policy = policy
        self._ahead = timedelta(0)
        self.shop = Shop(sqlite3.connect(file or ":memory:", isolation_level=None, check_same_thread=False))

    async def start(self) -> None:
        """Make the store and its tables."""
        self._store = self._make(lambda: wall_clock() + self._ahead // timedelta(microseconds=1))
        if (apply := getattr(self._store, "apply_schema", None)) is not None:
            await apply()
        self._safe = IdempotencyMiddleware(
            self._shop, self._store, scope=lambda scope: scope["account"], policy=self._policy
        )

    async def aclose(self) -> None:
        """End the work, and close the store."""
        await self._safe.drained()
        await self._store.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.url.path == "/later":
            self._ahead += 2 * self._policy.key_retention
            await sent(document(200, {}), scope, receive, send)
        elif (told := await self.shop.told(request)) is not None:
            await sent(told, scope, receive, send)
        else:
            try:
                scope["account"] = authenticated(request)
            except Refused as refused:
                await sent(refused.answer, scope, receive, send)
            else:
                await self._safe(scope, receive, send)

    async def _shop(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        gate = request.headers.get("gate", "")
        asked = Asked(request.method, request.url.path, request.url.query, scope["account"], body, gate)
        prepared = await self.shop.prepare(asked)
        answer = self.shop.perform(asked, prepared) if isinstance(prepared, str) else prepared
        await sent(answer, scope, receive, send)


def on_file(file: Path) -> Protected:
    """On SQLite, with the shop's own file beside it; it is to be killed, and what it held is soon free."""
    return Protected(lambda _: AsyncSqliteStore(file), file.with_suffix(".shop.db"), replace(POLICY, lease=BRIEF))
