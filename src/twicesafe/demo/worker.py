"""The process that serves one lane. Started by the demo, and now and then killed by itself.

    python -m twicesafe.demo.worker LANE FILE LISTENING REPORTS

LISTENING is the descriptor of a socket that listens and outlives this process, REPORTS that of a pipe on which it says
what it does. It stops when its standard input ends, so that it never outlives whoever started it.
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

    def __init__(self, app: ASGIApp, reports: int) -> None:
        self._app = app
        self._reports = reports

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

    def _report(self, event: str, note: str) -> None:
        # One short write: a pipe takes it whole or not at all, and has it even if the process dies the next moment.
        os.write(self._reports, json.dumps([event, note]).encode() + b"\n")


def _leave_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(lane: str, file: str, listening: str, reports: str) -> None:
    """Serve until told to stop."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    app = Reporting(application(Lane(lane), Path(file)), int(reports))
    serve(app, socket.socket(fileno=int(listening)))


if __name__ == "__main__":
    main(*sys.argv[1:])
