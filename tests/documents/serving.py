"""Serves an application of these tests as a process manager does: what dies is started anew on the same port.

python -m tests.documents.serving fastapi|django FOLDER. It prints its port, serves until standard input ends, and kills
the server it has started at the moment that a file in the folder names:

before-the-commit   when the charge is written, and nothing else
after-the-commit    when the answer is ready, before its first byte leaves
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TABLE = "charges"


def die_if_told(moment: str) -> None:
    """The end of this process, once, if the moment's file is there."""
    try:
        Path(moment).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def fastapi(listening: socket.socket) -> None:
    """Uvicorn, one worker."""
    import uvicorn
    from shop import app
    from sqlalchemy import Engine, event

    @event.listens_for(Engine, "after_cursor_execute")
    def written(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(f"INSERT INTO {TABLE} "):
            die_if_told("before-the-commit")

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                die_if_told("after-the-commit")
            await send(message)

        await app(scope, receive, sending)

    uvicorn.Server(uvicorn.Config(answering, log_level="warning")).run(sockets=[listening])


def django(listening: socket.socket) -> None:
    """A server of WSGI with a thread for each connection."""
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    from django.db.models.signals import post_save
    from mysite.wsgi import application

    def written(sender: Any, **_: Any) -> None:
        if sender._meta.db_table == TABLE:
            die_if_told("before-the-commit")

    def answering(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        def starting(status: str, *rest: Any) -> Any:
            if int(status[:3]) < 400:
                die_if_told("after-the-commit")
            return start_response(status, *rest)

        return application(environ, starting)

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            """The tests say what they asked for."""

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    post_save.connect(written, weak=False)
    server = Server(listening.getsockname(), Quiet, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.server_name, server.server_port = listening.getsockname()
    server.setup_environ()
    server.set_app(answering)
    server.serve_forever()


def libraries(framework: str) -> None:
    """Imported once, so that each server is there at once."""
    if framework == "fastapi":
        import sqlalchemy.ext.asyncio  # noqa: F401
        import uvicorn  # noqa: F401

        import twicesafe.fastapi
        import twicesafe.stores.sqlalchemy  # noqa: F401
    else:
        import django.core.handlers.wsgi
        import django.core.management  # noqa: F401


def main(framework: str, folder: str) -> None:
    """Fork servers until nobody wants them any more."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    libraries(framework)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listening.getsockname()[1], flush=True)
    wanted, child = True, 0

    def await_the_end() -> None:
        nonlocal wanted
        sys.stdin.read()
        wanted = False
        os.kill(child, signal.SIGKILL)

    while wanted:
        child = os.fork()
        if not child:
            {"fastapi": fastapi, "django": django}[framework](listening)
            os._exit(0)
        if threading.active_count() == 1:
            threading.Thread(target=await_the_end, daemon=True).start()
        _, status = os.waitpid(child, 0)
        if wanted and os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise SystemExit(f"the application ended with {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
