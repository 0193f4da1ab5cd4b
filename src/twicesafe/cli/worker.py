"""`twicesafe worker`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from logging import getLogger
from pathlib import Path
from typing import Annotated, Any, Final

from twicesafe.cli.existing import check_there
from twicesafe.cli.terminal import typer
from twicesafe.errors import ConfigurationError
from twicesafe.observe import Event, log_events, told_of
from twicesafe.once import AsyncOnce, Once
from twicesafe.outbox.relay import Relay
from twicesafe.reaper import Reaper
from twicesafe.reconcile import AsyncReconcilers, Reconcilers
from twicesafe.stores.urls import open_store
from twicesafe.worker import Worker

EPILOG: Final = """
\b
Examples:
  twicesafe worker --app shop.work:once                                  go on with operations that broke off
  twicesafe worker --app shop.work:once --app shop.work:reconcilers      and settle unknown outcomes
  twicesafe worker --app shop.work:relay                                 bring what is in the outbox to its receivers
  twicesafe worker --app shop.work:worker --health 127.0.0.1:8081        a Worker; GET /health answers 200 or 503
  twicesafe worker --app shop.work:once --store postgresql://app@host/shop
                                                                         reap that store as well

\b
SIGTERM and SIGINT end it after the rounds that are under way, 20 s later at most.

\b
Exit status:
  0  stopped by a signal
  1  a part of it was ended, and by no exception that the next round could be tried after
  2  the application cannot be loaded, or the store is out of reach
"""


def worker(
    app: Annotated[
        list[str],
        typer.Option(
            help="MODULE:OBJECT, a Once, AsyncOnce, Reconcilers, AsyncReconcilers, Relay or Worker. May be repeated."
        ),
    ],
    store: Annotated[str, typer.Option(help="URL of a store to reap: sqlite:///FILE, postgresql://...")] = "",
    every: Annotated[float, typer.Option(min=0.05, help="Seconds from the end of a round to the next one.")] = 5.0,
    health: Annotated[str, typer.Option(help="HOST:PORT to tell on, by HTTP, how it is doing.")] = "",
) -> None:
    """Go on with what broke off, settle what is unknown, take away what has expired.

    Any number of these may run at once, on one store and beside any number of servers.
    """
    works = loaded(app, store, every)
    telling = served(health, works) if health else None

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, works.stop)
        await works.run()

    sys.stderr.write(f"Working for {', '.join(app)}.\n")
    try:
        asyncio.run(run())
    finally:
        if telling is not None:
            telling.shutdown()


def loaded(names: list[str], store: str, every: float) -> Worker:
    """The worker that these objects make."""
    found = [load(name) for name in names]
    if len(found) == 1 and isinstance(found[0], Worker):
        if store:
            raise ConfigurationError("--store is for parts; a Worker reaps what it was given a Reaper for")
        return found[0]
    for name, one in zip(names, found, strict=True):
        if not isinstance(one, Once | AsyncOnce | Reconcilers | AsyncReconcilers | Relay):
            raise ConfigurationError(
                f"--app {name} is a {type(one).__name__}: name a Once, AsyncOnce, Reconcilers, AsyncReconcilers, "
                "Relay, or one Worker by itself"
            )
    if store:
        check_there(store)
        records = open_store(store)
        records.check_schema()
        found.append(Reaper(records))
    return Worker(*found, every=timedelta(seconds=every), observer=_tell)


def load(name: str) -> Any:
    """The object that MODULE:OBJECT names, looked for from the working directory as python -m does."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ConfigurationError(f"--app must be MODULE:OBJECT, such as shop.work:once, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise ConfigurationError(f"--app {name}: there is no module {error.name!r} to be imported from here") from None
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"--app {name}: {module} has no {attribute!r}") from None
    return found


def served(address: str, works: Worker) -> ThreadingHTTPServer:
    """A thread that answers GET /health."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--health must be HOST:PORT, such as 127.0.0.1:8081, not {address!r}")

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = works.health()
            ill = any(part.late for part in parts)
            body = json.dumps({"healthy": not ill, "parts": [part._asdict() for part in parts]}).encode()
            known = self.path.partition("?")[0] == "/health"
            self.send_response(404 if not known else 503 if ill else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            if known:
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
            """It is asked every few seconds."""

    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Answering)
    except OSError as error:
        raise ConfigurationError(f"--health {address}: {error.strerror or error}") from None
    threading.Thread(target=server.serve_forever, name="twicesafe-health", daemon=True).start()
    return server


def _tell(event: Event) -> None:
    """Where the application has set up no log, Python's last resort would say on stderr what is said there anyway."""
    if getLogger("twicesafe").hasHandlers():
        log_events(event)
    elif event.loud:
        why = "" if event.error is None else f": {told_of(event.error)}"
        sys.stderr.write(f"twicesafe.{event.name} {event.operation}{why}\n")
