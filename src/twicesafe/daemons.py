"""Blocking work beside an event loop, in threads that hold up nobody's end and nobody else's work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TypeVar, cast

R = TypeVar("R")


async def in_daemon(call: Callable[[], R], name: str) -> R:
    """What `call` gives, in a thread of its own: one that hangs takes nobody's place, and ends with the process.

    RuntimeError where it was ended by what is no Exception.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def tell_loop(value: R | None, error: Exception | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(cast("R", value))
            else:
                done.set_exception(error)

    def work() -> None:
        value: R | None = None
        failed: Exception | None = None
        try:
            value = call()
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            failed = error
        except BaseException as error:  # noqa: BLE001 - what ends a thread must not end those who wait for it
            failed = RuntimeError(f"a thread was ended by {type(error).__name__}")
            failed.__cause__ = error
        with suppress(RuntimeError):
            # The loop may have ended meanwhile.
            loop.call_soon_threadsafe(tell_loop, value, failed)

    threading.Thread(target=partial(copy_context().run, work), name=name, daemon=True).start()
    return await done
