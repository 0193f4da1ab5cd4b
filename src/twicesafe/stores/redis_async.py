"""Asking Redis under asyncio: one line to each server, and the way from a key to its server."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.redis_cluster import SlotMap
from twicesafe.stores.redis_driver import FAILURES, Address, Kind, Node, key_slot, refusal
from twicesafe.stores.redis_errors import DEMOTED, MOVES, PAUSE, RIDE_OUT, PassingError, refused, unreachable
from twicesafe.stores.redis_line import Line, NotSentError
from twicesafe.stores.redis_scripts import Ask, request

TURNS: Final = 16
"""How often a command is sent anew because it was refused for its place, its script, or a moving slot."""


class AsyncServers:
    """All servers behind an address."""

    def __init__(self, address: Address, timeout: float, replicas: int) -> None:
        self._address = address
        self._timeout = timeout
        self._replicas = replicas
        self._lines: dict[Node, Line] = {}
        self._retired: set[Line] = set()
        self._usual: Line | None = None
        """Where there is but one server: the way to it, while all is well."""
        self._opening: dict[Node, asyncio.Lock] = {}
        self._slots = SlotMap(address.nodes)
        self._learning = asyncio.Lock()
        self._primary: Node | None = address.nodes[0] if address.kind is Kind.SINGLE else None

    async def perform(self, ask: Ask) -> Any:
        """The answer. StoreUnavailableError or AmbiguousWriteError."""
        line = self._usual
        if line is not None and not line.broken:
            try:
                return await line.put(ask.command(), writes=ask.writes)
            except (NotSentError, PassingError, *FAILURES):
                # Nothing was done: what the server refused it refuses again, to somebody who listens.
                self._usual = None
        until: float | None = None
        while True:
            try:
                return await self._perform(ask)
            except PassingError:
                now = asyncio.get_running_loop().time()
                until = now + RIDE_OUT if until is None else until
                if now + PAUSE >= until:
                    raise
                await asyncio.sleep(PAUSE)

    async def _perform(self, ask: Ask) -> Any:
        command, ahead, node = ask.command(), False, ask.node
        met: StoreUnavailableError
        for _ in range(TURNS):
            if node is None:
                node = await self.node_of(ask.key)
            line = self._lines.get(node)
            if line is None or line.broken:
                line = await self._line(node)
            if ahead:
                line.put(request(b"ASKING"), writes=False).add_done_callback(_heard)
            try:
                answer = await line.put(command, writes=ask.writes)
                if self._address.kind is not Kind.CLUSTER:
                    self._usual = line
                return answer
            except NotSentError as error:
                met = unreachable(self._address.shown, error)
                node, ahead = None, False
                continue
            except FAILURES as error:
                said = refusal(error)
                if said is None:
                    raise
            met = refused(said.word, said.message)
            asked, ahead = node, False
            if said.word == "NOSCRIPT" and ask.script is not None:
                command = ask.command_in_full()
            elif said.node is not None and self._address.kind is Kind.CLUSTER:
                node = said.node if said.node.host else Node(asked.host, said.node.port)
                ahead = said.word == "ASK"
                if not ahead:
                    self._slots.moved(said.slot, node)
            elif said.word == "TRYAGAIN":
                await asyncio.sleep(PAUSE)
            else:
                if said.word in MOVES:
                    self._forget(asked)
                if said.word in DEMOTED:
                    self._leave(asked)
                raise met
        raise met

    # --- the way to a server ------------------------------------------------------------------------------------------

    async def node_of(self, key: bytes) -> Node:
        """The server that has `key`."""
        if self._address.kind is Kind.CLUSTER:
            if not self._slots.known:
                await self._learn()
            owner = self._slots.owner(key_slot(key))
            if owner is None:
                self._slots.known = False
                raise unreachable(self._address.shown, "no server of the cluster has this record's slot")
            return Node(*owner)
        if self._primary is None:
            self._primary = await self._elected()
        return self._primary

    async def primaries(self) -> list[Node]:
        """All servers that have keys, in an order that lasts."""
        if self._address.kind is not Kind.CLUSTER:
            return [await self.node_of(b"")]
        if not self._slots.known:
            await self._learn()
        return [Node(*place) for place in self._slots.owners()]

    async def open(self, node: Node) -> Any:
        """A connection of redis-py's, connected. StoreUnavailableError."""
        connection = self._address.async_connection(node, self._timeout)
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
        except (*FAILURES, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            self._forget(node)
            raise unreachable(self._address.shown, error) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _line(self, node: Node) -> Line:
        async with self._opening.setdefault(node, asyncio.Lock()):
            line = self._lines.get(node)
            if line is None or line.broken:
                self._lines[node] = line = Line(await self.open(node), self._timeout, self._replicas)
            return line

    async def _learn(self) -> None:
        async with self._learning:
            if self._slots.known:
                return
            failed: StoreUnavailableError | None = None
            for place in self._slots.to_ask():
                node = Node(*place)
                try:
                    self._slots.learn(await self._once(node, b"CLUSTER", b"SLOTS"), node)
                except StoreUnavailableError as error:
                    failed = error
                else:
                    return
            assert failed is not None
            raise failed

    async def _elected(self) -> Node:
        """Which server the sentinels say is the primary."""
        failed: object = "no sentinel knows this service"
        for sentinel in self._address.nodes:
            words = (b"SENTINEL", b"get-master-addr-by-name", self._address.service.encode())
            try:
                found = await self._once(sentinel, *words)
            except StoreUnavailableError as error:
                failed = error
            else:
                if found:
                    return Node(found[0].decode(), int(found[1]))
        raise unreachable(self._address.shown, failed)

    async def _once(self, node: Node, *words: bytes) -> Any:
        connection = await self.open(node)
        try:
            async with asyncio.timeout(self._timeout):
                await connection.send_command(*words)
                return await connection.read_response(disable_decoding=True)
        except (*FAILURES, TimeoutError) as error:
            raise unreachable(self._address.shown, error) from error
        finally:
            await connection.disconnect(nowait=True)

    def _forget(self, node: Node) -> None:
        """Where this server cannot be reached, another may have its place."""
        self._slots.known = False
        if self._address.kind is Kind.SENTINEL and self._primary == node:
            self._primary = None

    def _leave(self, node: Node) -> None:
        """Its name may lead to another server by now."""
        self._usual = None
        line = self._lines.pop(node, None)
        if line is not None:
            self._retired.add(line)
            line.retire(self._retired.discard)

    async def aclose(self) -> None:
        """End every line."""
        lines, self._lines = [*self._lines.values(), *self._retired], {}
        for line in lines:
            line.close()


def _heard(future: asyncio.Future[Any]) -> None:
    """ASKING is answered by what comes after it."""
    if not future.cancelled():
        future.exception()
