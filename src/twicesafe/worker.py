"""Does what nobody waits for: goes on with operations that broke off, settles unknown outcomes, relays, reaps.

    worker = Worker(once, reconcilers, Relay(store, publisher), Reaper(store))
    asyncio.run(worker.run())

or, in a process of its own, `twicesafe worker --app shop.work:worker`. It may as well run inside a web process, as a
task of its lifespan. Any number of workers may run on one store: whatever they do is claimed first, or conditioned on
what was seen.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from random import uniform
from time import monotonic
from typing import Any, Final, TypeAlias

from twicesafe.daemons import in_daemon
from twicesafe.errors import ConfigurationError
from twicesafe.observe import Event, Observer, counts, log_events, tell
from twicesafe.once import AsyncOnce, Once
from twicesafe.outbox.relay import Relay
from twicesafe.reaper import AsyncReaper, Reaped, Reaper
from twicesafe.reconcile import AsyncReconcilers, Reconcilers
from twicesafe.rounds import HANGING, EndedError, Health, Rounds

__all__ = ["Health", "Part", "Worker"]

Part: TypeAlias = Once | AsyncOnce | Reconcilers | AsyncReconcilers | Relay | Reaper | AsyncReaper

DEFAULT_EVERY: Final = timedelta(seconds=5)
"""From the end of a round to the next one. An operation that broke off waits for its lease, and this."""

DEFAULT_GRACE: Final = timedelta(seconds=20)
"""How long a stop waits for rounds that are under way: under the 30 s after which most supervisors kill."""

REAP_EVERY: Final = 60.0
"""Seconds. Retention is kept in whole minutes."""

RELAY_EVERY: Final = 1.0
"""Seconds. A message has somebody who waits for it, and a look that finds nothing is two short statements."""

MAY_HANG: Final = ("resume", "reconcile")
"""Parts whose rounds do what people have written. Others end by themselves: their lease, or their database, sees to it,
and of the reaper's one is enough."""

LONGEST_PAUSE: Final = 60.0
"""Seconds after a failure."""

AFTER_HINT: Final = 0.02
"""Seconds from a hint to the round that it asks for. Others come along in them, so that each costs no round."""


class Worker:
    """Round after round of each of its parts. `every` is the pause after a round that found nothing more to do.

    What a part raises is told to `observer` as `worker.failed`, and the next round comes after a pause that grows with
    each failure, up to a minute. A function that hangs keeps its own operation, and nothing else: that is told as
    `worker.hanging` once a round has taken long, and the next one begins beside it.
    """

    def __init__(
        self,
        *parts: Part,
        every: timedelta = DEFAULT_EVERY,
        grace: timedelta = DEFAULT_GRACE,
        observer: Observer = log_events,
    ) -> None:
        if not parts:
            raise ConfigurationError("a worker needs something to do: pass Once, Reconcilers, Relay or Reaper objects")
        durations: tuple[tuple[str, object], ...] = (("every", every), ("grace", grace))
        for name, given in durations:
            if not isinstance(given, timedelta) or given < timedelta(0):
                raise ConfigurationError(f"{name} must be a timedelta of 0 or more, not {given!r}")
        self._grace = grace.total_seconds()
        self._observer = observer
        self._counts = counts(observer)
        self._halt = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parts = [self._made(part, every.total_seconds()) for part in parts]

    def _made(self, part: Part, every: float) -> Rounds:
        call: Callable[..., Any]
        match part:
            case Once() | AsyncOnce():
                name, call = "resume", part.resume
            case Reconcilers() | AsyncReconcilers():
                name, call = "reconcile", part.run_once
            case Relay():
                name, call = "relay", part.run_once
                every = min(every, RELAY_EVERY)
            case Reaper():
                name, call = "reap", part.run_once
                every = max(every, REAP_EVERY)
            case AsyncReaper():
                name, call = "reap", _cancelled_only(part)
                every = max(every, REAP_EVERY)
            case _:
                raise ConfigurationError(f"a worker has no use for a {type(part).__name__}")
        relay = part if isinstance(part, Relay) else None
        made = Rounds(name, _begins(call), every, self._halt, may_hang=name in MAY_HANG, relay=relay)
        if relay is not None:
            relay.on_hint(partial(self._in_loop, made.awake.set))
        return made

    def health(self) -> list[Health]:
        """How each part is doing."""
        return [part.health() for part in self._parts]

    def stop(self) -> None:
        """End after the rounds that are under way, which begin no further operation.

        For signal handlers; safe to call twice, and from any thread.
        """
        self._halt.set()
        if self._stopping is not None:
            self._in_loop(self._stopping.set)
        for part in self._parts:
            self._in_loop(part.awake.set)

    def _in_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                # The loop may have ended meanwhile.
                self._loop.call_soon_threadsafe(call)

    async def run(self) -> None:
        """Work until `stop` is called, or this is cancelled; both let rounds that are under way end, up to `grace`.

        What does not end by then is left to its lease, as after a crash. So it is where a part is ended by what is no
        Exception, SystemExit say: that is told as `worker.failed`, the others end their rounds, and RuntimeError is
        raised, for nobody would do that part's work any more.
        """
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        if self._halt.is_set():
            self._stopping.set()
        listening = [asyncio.create_task(self._listen(part.relay)) for part in self._parts if part.relay is not None]
        tasks = [asyncio.create_task(self._rounds(part)) for part in self._parts]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            # The rounds of a part end before that for one reason only.
            await asyncio.wait((stopping, *tasks), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            hanging = [task for part in self._parts for task in part.hanging]
            _, left = await asyncio.wait((*tasks, *hanging), timeout=self._grace)
            for task in (*left, *listening, stopping):
                task.cancel()
            ends = await asyncio.gather(*tasks, *listening, return_exceptions=True)
            names = [*[part.name for part in self._parts], *["listen"] * len(listening)]
            hung = [(part.name, part.ended) for part in self._parts]
        for name, end in (*zip(names, ends, strict=True), *hung):
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                error = end.error if isinstance(end, EndedError) else end
                raise RuntimeError(f"the worker's part {name!r} was ended by {type(error).__name__}") from error

    async def _listen(self, relay: Relay) -> None:
        """Hints of other processes. Without them the relay looks by itself."""
        try:
            await relay.listen()
        except Exception as error:  # noqa: BLE001 - it must not end the rounds
            tell(self._observer, Event("worker.failed", "listen", "", loud=True, error=error))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            raise self._ended("listen", error) from error

    def _ended(self, name: str, error: BaseException) -> EndedError:
        tell(self._observer, Event("worker.failed", name, "", loud=True, error=error))
        return EndedError(error)

    async def _rounds(self, part: Rounds) -> None:
        assert self._stopping is not None
        failed = 0
        while not self._stopping.is_set():
            part.awake.clear()
            if not part.has_place:
                await part.awake.wait()
                continue
            began = monotonic()
            pause = part.every
            try:
                result = await part.one(partial(self._hung, part))
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                failed += 1
                self._failed(part, error)
                pause = min(LONGEST_PAUSE, part.every * 2 ** min(failed, 10) + 1)
            else:
                failed = 0
                if result is HANGING:
                    tell(self._observer, Event("worker.hanging", part.name, "", loud=True, seconds=monotonic() - began))
                else:
                    part.rounds += 1
                    part.finished = monotonic()
                    if self._counts:
                        took = part.finished - began
                        tell(self._observer, Event("worker.round", part.name, "", loud=False, seconds=took))
                    pause = 0.0 if getattr(result, "more", False) else part.every
            # Workers that were started together do not look together. A failure is not to be repeated by hints.
            ends = self._stopping if failed else part.awake
            if await _pause(ends, uniform(pause * 0.8, pause * 1.2)):  # noqa: S311 - no secret
                await _pause(self._stopping, AFTER_HINT)
        if part.relay is not None:
            with suppress(Exception):
                # Others wait for the lease to end, then.
                await part.relay.aclose()

    def _failed(self, part: Rounds, error: BaseException) -> None:
        """A round was ended by this. EndedError is raised."""
        if isinstance(error, EndedError):
            raise self._ended(part.name, error.error) from error.error
        part.failures += 1
        tell(self._observer, Event("worker.failed", part.name, "", loud=True, error=error))

    def _hung(self, part: Rounds, task: asyncio.Task[Any]) -> None:
        """A round that hung has come to its end all the same."""
        part.awake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            try:
                self._failed(part, error)
            except EndedError as ended:
                part.ended = ended
                self.stop()


def _cancelled_only(reaper: AsyncReaper) -> Callable[..., Any]:
    async def run_once(stopping: threading.Event) -> Reaped:  # noqa: ARG001 - by cancelling it is stopped within a batch
        return await reaper.run_once()

    return run_once


def _begins(method: Callable[..., Any]) -> Callable[[threading.Event], Coroutine[Any, Any, Any]]:
    """What begins a round by this method of a part: in a thread where it blocks."""
    waits = iscoroutinefunction(method)

    def begin(stopping: threading.Event) -> Coroutine[Any, Any, Any]:
        call = partial(method, stopping=stopping)
        return call() if waits else in_daemon(call, "twicesafe-worker")

    return begin


async def _pause(ends: asyncio.Event, seconds: float) -> bool:
    """Whether it was ended before its time."""
    if not seconds:
        await asyncio.sleep(0)
        return False
    try:
        async with asyncio.timeout(seconds):
            return await ends.wait()
    except TimeoutError:
        return False
