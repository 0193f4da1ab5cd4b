"""The process that serves one lane. Started by the demo, and now and then killed by itself.

    python -m twicesafe.demo.worker LANE FILE LISTENING REPORTS AHEAD

LISTENING is the descriptor of a socket that listens and outlives this process, REPORTS that of a pipe on which it says
what it does, AHEAD the seconds by which the clock of keys is ahead. On its standard input come directions; it stops
when that ends, so that it never outlives whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias

from twicesafe.demo.directions import Directions
from twicesafe.demo.faults import Fault
from twicesafe.demo.lanes import Lane
from twicesafe.demo.payments import application
from twicesafe.demo.serving import serve

ASGIScope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


class Reporting:
    """The outermost layer: reports on each request, and is where the process dies when it has to.

    When the first message of an answer comes by here, the handler is done and its charge is committed; nothing of the
    answer has left the process yet. That is the worst moment, and so it is the one.
    """

    def __init__(self, app: ASGIApp, report: Callable[[str, str], None]) -> None:
        self._app = app
        self._report = report

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, self._ready(send))
            return
        headers = dict(scope["headers"])
        note = headers.get(b"demo-request", b"").decode("latin-1")
        deadly = Fault.KILL in headers.get(b"demo-fault", b"").decode("latin-1").split()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._report("answering", note)
                if deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
            await send(message)

        self._report("began", note)
        try:
            await self._app(scope, receive, observed)
        finally:
            self._report("ended", note)

    def _ready(self, send: Send) -> Send:
        async def observed(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._report("ready", str(os.getpid()))

        return observed


def _reporting(reports: int) -> Callable[[str, str], None]:
    def report(event: str, note: str) -> None:
        # One short write: a pipe takes it whole or not at all, and has it even if the process dies the next moment.
        os.write(reports, json.dumps([event, note]).encode() + b"\n")

    return report


def _follow_parent(directions: Directions) -> None:
    directions.follow(0)
    os.kill(os.getpid(), signal.SIGTERM)


def main(lane: str, file: str, listening: str, reports: str, ahead: str) -> None:
    """Serve until told to stop."""
    report = _reporting(int(reports))
    directions = Directions(float(ahead), report)
    threading.Thread(target=_follow_parent, args=[directions], daemon=True).start()
    app = Reporting(application(Lane(lane), Path(file), directions), report)
    serve(app, socket.socket(fileno=int(listening)))


if __name__ == "__main__":
    main(*sys.argv[1:])
