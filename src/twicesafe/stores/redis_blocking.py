"""Asking Redis in blocking calls: each borrows a connection to its server; threads that ask at once have one each."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from threading import Lock
from typing import Any, Final

from twicesafe.errors import StoreError, StoreUnavailableError
from twicesafe.stores.redis_cluster import SlotMap
from twicesafe.stores.redis_driver import FAILURES, Address, Kind, Node, Refusal, key_slot, refusal
from twicesafe.stores.redis_errors import (
    DEMOTED,
    MOVES,
    PAUSE,
    RIDE_OUT,
    PassingError,
    lost,
    refused,
    unconfirmed,
    unreachable,
)
from twicesafe.stores.redis_scripts import Ask, request

TURNS: Final = 16
"""How often a command is sent anew because it was refused for its place, its script, or a moving slot."""


class Servers:
    """All servers behind an address."""

    def __init__(self, address: Address, timeout: float, replicas: int) -> None:
        self._address = address
        self._timeout = timeout
        self._replicas = replicas
        self._idle: defaultdict[Node, list[Any]] = defaultdict(list)
        self._guard = Lock()
        self._pid = os.getpid()
        self._slots = SlotMap(address.nodes)
        self._primary: Node | None = address.nodes[0] if address.kind is Kind.SINGLE else None

    def perform(self, ask: Ask) -> Any:
        """The answer. StoreUnavailableError or AmbiguousWriteError."""
        until: float | None = None
        while True:
            try:
                return self._perform(ask)
            except PassingError:
                now = time.monotonic()
                until = now + RIDE_OUT if until is None else until
                if now + PAUSE >= until:
                    raise
                time.sleep(PAUSE)

    def _perform(self, ask: Ask) -> Any:
        command, ahead, node = ask.command(), False, ask.node
        for _ in range(TURNS):
            if node is None:
                node = self.node_of(ask.key)
            answer = self._send(node, command, ahead=ahead, writes=ask.writes)
            if type(answer) is not Refusal:
                return answer
            asked, ahead = node, False
            if answer.word == "NOSCRIPT" and ask.script is not None:
                command = ask.command_in_full()
            elif answer.node is not None and self._address.kind is Kind.CLUSTER:
                node = answer.node if answer.node.host else Node(asked.host, answer.node.port)
                ahead = answer.word == "ASK"
                if not ahead:
                    self._slots.moved(answer.slot, node)
            elif answer.word == "TRYAGAIN":
                time.sleep(PAUSE)
            else:
                if answer.word in MOVES:
                    self._forget(asked)
                if answer.word in DEMOTED:
                    self._leave(asked)
                break
        raise refused(answer.word, answer.message)

    def _send(self, node: Node, command: bytes, *, ahead: bool, writes: bool) -> Any:
        connection = self._take(node)
        commands = [request(b"ASKING"), command] if ahead else [command]
        confirm = self._replicas > 0 and writes
        if confirm:
            commands.append(request(b"WAIT", b"%d" % self._replicas, b"%d" % int(self._timeout * 500)))
        try:
            connection.send_packed_command([b"".join(commands)], check_health=False)
            answers = [_answer(connection) for _ in commands]
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, FAILURES):
                raise lost(error, writes=writes) from error
            raise
        with self._guard:
            self._idle[node].append(connection)
        answer = answers[int(ahead)]
        if confirm and type(answer) is not Refusal:
            count = answers[-1] if type(answers[-1]) is int else 0
            if count < self._replicas:
                raise unconfirmed(count, self._replicas)
        return answer

    # --- the way to a server ------------------------------------------------------------------------------------------

    def node_of(self, key: bytes) -> Node:
        """The server that has `key`."""
        if self._address.kind is Kind.CLUSTER:
            if not self._slots.known:
                self._learn()
            owner = self._slots.owner(key_slot(key))
            if owner is None:
                self._slots.known = False
                raise unreachable(self._address.shown, "no server of the cluster has this record's slot")
            return Node(*owner)
        if self._primary is None:
            self._primary = self._elected()
        return self._primary

    def primaries(self) -> list[Node]:
        """All servers that have keys, in an order that lasts."""
        if self._address.kind is not Kind.CLUSTER:
            return [self.node_of(b"")]
        if not self._slots.known:
            self._learn()
        return [Node(*place) for place in self._slots.owners()]

    def open(self, node: Node) -> Any:
        """A connection of redis-py's, connected. StoreUnavailableError."""
        connection = self._address.connection(node, self._timeout)
        try:
            connection.connect()
        except FAILURES as error:
            connection.disconnect()
            self._forget(node)
            raise unreachable(self._address.shown, error) from error
        return connection

    def _take(self, node: Node) -> Any:
        """An idle connection that is still one, or a new one."""
        if self._pid != os.getpid():
            # Two processes on one connection would read each other's answers.
            self._guard, self._idle, self._pid = Lock(), defaultdict(list), os.getpid()
        while True:
            with self._guard:
                idle = self._idle[node]
                connection = idle.pop() if idle else None
            if connection is None:
                return self.open(node)
            try:
                # Nothing is expected: what can be read is the end of the connection.
                if not connection.can_read(timeout=0):
                    return connection
            except FAILURES:
                pass
            connection.disconnect()

    def _learn(self) -> None:
        failed: StoreError | None = None
        for place in self._slots.to_ask():
            node = Node(*place)
            try:
                answer = self._send(node, request(b"CLUSTER", b"SLOTS"), ahead=False, writes=False)
            except StoreUnavailableError as error:
                failed = error
                continue
            if type(answer) is Refusal:
                failed = refused(answer.word, answer.message)
                continue
            self._slots.learn(answer, node)
            return
        assert failed is not None
        raise failed

    def _elected(self) -> Node:
        """Which server the sentinels say is the primary."""
        failed: object = "no sentinel knows this service"
        for sentinel in self._address.nodes:
            words = request(b"SENTINEL", b"get-master-addr-by-name", self._address.service.encode())
            try:
                found = self._send(sentinel, words, ahead=False, writes=False)
            except StoreUnavailableError as error:
                failed = error
                continue
            if type(found) is Refusal:
                failed = found.message
            elif found:
                return Node(found[0].decode(), int(found[1]))
        raise unreachable(self._address.shown, failed)

    def _forget(self, node: Node) -> None:
        """Where this server cannot be reached, another may have its place."""
        self._slots.known = False
        if self._address.kind is Kind.SENTINEL and self._primary == node:
            self._primary = None

    def _leave(self, node: Node) -> None:
        """Its name may lead to another server by now."""
        with self._guard:
            idle = self._idle.pop(node, [])
        for connection in idle:
            connection.disconnect()

    def close(self) -> None:
        """End every connection that nobody uses."""
        with self._guard:
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.disconnect()


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except FAILURES as error:
        said = refusal(error)
        if said is None:
            raise
        return said
