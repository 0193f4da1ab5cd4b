"""What every command needs: typer and rich, one line for an error, an exit status, and an end on a signal."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from twicesafe.errors import ConfigurationError, TwicesafeError

try:
    import typer
    from rich.box import SIMPLE_HEAD as PLAIN
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table
except ModuleNotFoundError as _missing:
    raise SystemExit(f"twicesafe: the package {_missing.name} is missing: pip install 'twicesafe[cli]'") from None

__all__ = [
    "COULD_NOT",
    "DAMAGE",
    "PLAIN",
    "BarColumn",
    "Console",
    "MofNCompleteColumn",
    "Progress",
    "Table",
    "TextColumn",
    "complain",
    "needing",
    "typer",
    "until_interrupted",
]

T = TypeVar("T")

COULD_NOT: Final = 2
DAMAGE: Final = 1


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Say which extra to install where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"the package {missing.name} is missing: pip install 'twicesafe[{extra}]'"
        ) from missing


def until_interrupted(work: Coroutine[Any, Any, T], *beside: Coroutine[Any, Any, None]) -> T:
    """Run `work` to its end, and what is `beside` it for as long. SIGINT and SIGTERM cancel it and end the program.

    Only the first signal does: what `work` does to end its servers is short, and must not be cut short.
    """
    received: list[signal.Signals] = []

    async def run() -> T:
        loop = asyncio.get_running_loop()
        main_task = asyncio.create_task(work)
        others = [asyncio.create_task(other) for other in beside]

        def stop(number: signal.Signals) -> None:
            if not received:
                received.append(number)
                main_task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            return await main_task
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise typer.Exit(128 + received[0]) from None


_PASSWORD: Final = re.compile(r"(?<=://)([^:/\s]*):\S*@")


def complain(error: TwicesafeError) -> None:
    """One line, without the password of any URL."""
    line = _PASSWORD.sub(r"\1:***@", " ".join(str(error).split()))
    sys.stderr.write(f"twicesafe: {line}\n")
