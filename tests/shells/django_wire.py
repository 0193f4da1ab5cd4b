"""A client of Django's ASGI handler that can hang up, and a loop that leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from asgiref.sync import SyncToAsync
from django.core.handlers.asgi import ASGIHandler

from tests.shells.django_site import K, Site
from twicesafe.django import threads

LINES = [
    (b"host", b"x"),
    (b"content-length", b"2"),
    (b"content-type", b"application/json"),
    (b"idempotency-key", K.encode()),
    (b"x-user", b"ann"),
]


class Wire:
    """A client of Django's own ASGI handler that can hang up."""

    def __init__(self, application: Any = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.began = asyncio.Event()
        """The first byte of the body is there."""
        self._body: list[dict[str, Any]] = [{"type": "http.request", "body": b"{}", "more_body": False}]
        scope = {
            "type": "http", "method": "POST", "path": "/jobs", "raw_path": b"/jobs", "query_string": b"",
            "headers": LINES, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        }  # fmt: skip
        self.task = asyncio.create_task((application or ASGIHandler())(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return self._body.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self.gone.is_set():
            return
        self.sent.append(message)
        if message.get("body"):
            self.began.set()

    async def hang_up(self) -> None:
        """Go away; Django has done with the request when this returns."""
        self.gone.set()
        await self.task

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def settled() -> None:
    """Wait for work whose client is gone."""
    while threads._running:
        await asyncio.wait(set(threads._running))


def working() -> set[threading.Thread]:
    """Threads of pools, but for asgiref's one that stays. Those that renew leases end by themselves."""
    pooled = {thread for thread in threading.enumerate() if "Pool" in thread.name}
    return pooled - SyncToAsync.single_thread_executor._threads


def run(site: Site, trial: Callable[[], Any], *routes: Any, **how: Any) -> None:
    """Run the trial while the site serves these routes; no thread and no task is left behind."""
    before = working()

    async def whole() -> None:
        await trial()
        await settled()

    with site.serving(*routes, **how):
        asyncio.run(whole())
    for thread in working() - before:
        thread.join(30)
        assert not thread.is_alive()
