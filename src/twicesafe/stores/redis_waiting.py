"""Whoever waits for somebody else's claim to end: told by pub/sub, and looking by itself now and then.

Theory of operation. Every script that ends a claim publishes on the channel that is named as the record is. One
connection to each server listens for all who wait; a channel is subscribed to while at least one waits for it. A
waiter looks at the record once it is subscribed, so it misses nothing that happened in between, and every POLL from
then on, because a message can be lost: what is published while nobody listens is gone.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twicesafe.core.record import Micros
from twicesafe.errors import StoreError
from twicesafe.stores.redis_async import AsyncServers
from twicesafe.stores.redis_blocking import Servers
from twicesafe.stores.redis_driver import FAILURES, Node, refusal

POLL: Final = 0.5
"""Seconds between looks of one who has not been told anything."""
_MICRO: Final = 1e-6


class AsyncWaiters:
    """All waiters of one store."""

    def __init__(self, servers: AsyncServers) -> None:
        self._servers = servers
        self._listeners: dict[Node, _AsyncListener] = {}
        self._opening = asyncio.Lock()

    async def settled(self, name: bytes, within_us: Micros, lease_left: Callable[[], Awaitable[Micros]]) -> None:
        """Until it may have changed, or the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_us * _MICRO
        while (left := until - loop.time()) > 0:
            listener, event = await self._subscribed(name, left)
            try:
                working = await lease_left() * _MICRO
                if working <= 0:
                    return
                pause = min(POLL, working, until - loop.time())
                if await _within(event.wait(), pause):
                    return
            except StoreError:
                await asyncio.sleep(min(POLL, max(0.0, until - loop.time())))
            finally:
                if listener is not None:
                    listener.leave(name, event)

    async def _subscribed(self, name: bytes, left: float) -> tuple[_AsyncListener | None, asyncio.Event]:
        """To a listener that has the channel, if one can be had in time. Without one the waiter looks by itself."""
        try:
            async with asyncio.timeout(min(POLL, left)):
                node = await self._servers.node_of(name)
                async with self._opening:
                    listener = self._listeners.get(node)
                    if listener is None or listener.broken:
                        listener = _AsyncListener(await self._servers.open(node))
                        self._listeners[node] = listener
                return listener, await listener.join(name)
        except (StoreError, TimeoutError, *FAILURES):
            return None, asyncio.Event()

    async def aclose(self) -> None:
        """End every listener."""
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            await listener.aclose()


class _AsyncListener:
    """One subscription connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._events: defaultdict[bytes, set[asyncio.Event]] = defaultdict(set)
        self._joined: dict[bytes, asyncio.Event] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.broken = False
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def join(self, name: bytes) -> asyncio.Event:
        """Set when something is published on `name` from now on, or nothing can be heard any more."""
        event = asyncio.Event()
        self._events[name].add(event)
        try:
            if name not in self._joined:
                self._joined[name] = asyncio.Event()
                await self._connection.send_command(b"SSUBSCRIBE", name)
            await self._joined[name].wait()
        except BaseException:
            self.leave(name, event)
            raise
        return event

    def leave(self, name: bytes, event: asyncio.Event) -> None:
        """Whoever waits last takes the channel with it."""
        events = self._events.get(name)
        if events is None:
            return
        events.discard(event)
        if not events and not self.broken:
            del self._events[name]
            self._joined.pop(name, None)
            task = asyncio.get_running_loop().create_task(self._unsubscribe(name))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _unsubscribe(self, name: bytes) -> None:
        if name in self._joined:
            return  # somebody came in the meantime
        try:
            await self._connection.send_command(b"SUNSUBSCRIBE", name)
        except FAILURES:
            self._break()

    async def _listen(self) -> None:
        try:
            while True:
                try:
                    kind, name, _ = await self._connection.read_response(disable_decoding=True)
                except FAILURES as error:
                    if refusal(error) is None:
                        raise
                    return  # this server has the channel no more
                if kind == b"ssubscribe":
                    joined = self._joined.get(name)
                    if joined is not None:
                        joined.set()
                elif kind == b"smessage":
                    for event in self._events.get(name, ()):
                        event.set()
        except FAILURES:
            return
        finally:
            self._break()
            await self._connection.disconnect(nowait=True)

    def _break(self) -> None:
        self.broken = True
        for joined in self._joined.values():
            joined.set()
        for events in self._events.values():
            for event in events:
                event.set()

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, *self._sending, return_exceptions=True)


async def _within(awaitable: Awaitable[object], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True


class Waiters:
    """AsyncWaiters, for threads. One thread listens while anybody waits."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._guard = threading.Lock()
        self._listeners: dict[Node, _Listener] = {}
        self._pid = os.getpid()

    def settled(self, name: bytes, within_us: Micros, lease_left: Callable[[], Micros]) -> None:
        """Until it may have changed, or the time is over."""
        until = time.monotonic() + within_us * _MICRO
        while (left := until - time.monotonic()) > 0:
            listener, event = self._subscribed(name, left)
            try:
                working = lease_left() * _MICRO
                if working <= 0 or event.wait(min(POLL, working, max(0.0, until - time.monotonic()))):
                    return
            except StoreError:
                time.sleep(min(POLL, max(0.0, until - time.monotonic())))
            finally:
                if listener is not None:
                    listener.leave(name, event)

    def _subscribed(self, name: bytes, left: float) -> tuple[_Listener | None, threading.Event]:
        if self._pid != os.getpid():
            # No thread came along over the fork, and the connections are the parent's.
            self._guard, self._listeners, self._pid = threading.Lock(), {}, os.getpid()
        patience = min(POLL, left)
        try:
            node = self._servers.node_of(name)
            # Whoever has it may be connecting, which can take as long as the store's time-out: one waits for that.
            if not self._guard.acquire(timeout=patience):
                return None, threading.Event()
            try:
                listener = self._listeners.get(node)
                if listener is None or listener.broken:
                    listener = _Listener(self._servers.open(node))
                    self._listeners[node] = listener
            finally:
                self._guard.release()
            return listener, listener.join(name, patience)
        except (StoreError, *FAILURES):
            return None, threading.Event()

    def close(self) -> None:
        """End every listener."""
        with self._guard:
            listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            listener.close()


class _Listener:
    """One subscription connection, and the thread that reads it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._guard = threading.Lock()
        self._events: defaultdict[bytes, set[threading.Event]] = defaultdict(set)
        self._joined: dict[bytes, threading.Event] = {}
        self.broken = False
        self._thread = threading.Thread(target=self._listen, name="twicesafe-redis-waiters", daemon=True)
        self._thread.start()

    def join(self, name: bytes, seconds: float) -> threading.Event:
        """Set when something is published on `name` from now on, or nothing can be heard any more."""
        event = threading.Event()
        with self._guard:
            self._events[name].add(event)
            joined = self._joined.get(name)
            if joined is None:
                joined = self._joined[name] = threading.Event()
                self._send(b"SSUBSCRIBE", name)
        joined.wait(seconds)
        return event

    def leave(self, name: bytes, event: threading.Event) -> None:
        """Whoever waits last takes the channel with it."""
        with self._guard:
            events = self._events.get(name)
            if events is None:
                return
            events.discard(event)
            if not events and not self.broken:
                del self._events[name]
                self._joined.pop(name, None)
                self._send(b"SUNSUBSCRIBE", name)

    def _send(self, *words: bytes) -> None:
        try:
            self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)
        except FAILURES:
            self.broken = True

    def _listen(self) -> None:
        try:
            while True:
                kind, name, _ = self._connection.read_response(disable_decoding=True, timeout=None)
                with self._guard:
                    if kind == b"ssubscribe" and name in self._joined:
                        self._joined[name].set()
                    elif kind == b"smessage":
                        for event in self._events.get(name, ()):
                            event.set()
        except (*FAILURES, ValueError, AttributeError):
            # Closed under the thread, redis-py's connection may show it in any of these ways.
            pass
        finally:
            self._break()

    def _break(self) -> None:
        with self._guard:
            self.broken = True
            for event in self._joined.values():
                event.set()
            for events in self._events.values():
                for event in events:
                    event.set()
        self._connection.disconnect()

    def close(self) -> None:
        """End the thread by ending what it reads."""
        self._connection.disconnect()
        self._thread.join()
