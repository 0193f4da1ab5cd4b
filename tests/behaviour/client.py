"""What a case has in its hands: a client with a key of its own, and the ledger's rows of the case."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

from tests.behaviour.gates import Gates
from tests.behaviour.knobs import LATER, Row, header_of
from tests.behaviour.serving import Server
from tests.behaviour.wire import PATIENCE, Exchange, Reply, head

Headers = Sequence[tuple[bytes, bytes]]
CASES_OWN = b"the key of this case"
LENGTH = b"content-length"


class Gate:
    """One gate of the case's."""

    def __init__(self, gates: Gates, name: str) -> None:
        self._gates = gates
        self.name = name

    def reached(self) -> None:
        """Wait until the application stands here."""
        self._gates.reached(self.name)

    def open(self) -> None:
        """Let whoever stands here, or comes next, pass: one."""
        self._gates.open(self.name)


class Client:
    """Sends requests to the probe application. Everything that is not said is the same with every request, but for the
    nonce in the caller's token."""

    def __init__(self, server: Server, gates: Gates) -> None:
        self.server = server
        self.tag = uuid4().hex
        self.key = str(uuid4()).encode()
        self._gates = gates
        self._exchanges: list[Exchange] = []

    def gate(self, name: str) -> Gate:
        return Gate(self._gates, f"{self.tag} {name}")

    def offers(self, feature: str) -> bool:
        """Whether the application has a feature that it may lack."""
        return feature not in self.server.probe.not_offered

    @property
    def requests(self) -> int:
        """How many were sent."""
        return len(self._exchanges)

    def close(self) -> None:
        """Fail what still stands at a gate of this case's, and hang up on what still runs."""
        self._gates.give_up(self.tag)
        for exchange in self._exchanges:
            exchange.hang_up()

    def begin(
        self,
        path: str = "/jobs",
        *,
        method: str = "POST",
        key: bytes | None = CASES_OWN,
        carrier: bytes = b"Idempotency-Key",
        user: str | None = "ann",
        headers: Headers = (),
        content_type: bytes = b"application/json",
        body: bytes = b'{"amount": 1}',
        pieces: Sequence[bytes] | None = None,
        length: int | None = None,
        expect: bool = False,
        keep: bool = False,
        on: Exchange | None = None,
        **knobs: Any,
    ) -> Exchange:
        """Send a request. `pieces` is a chunked body instead of `body`; `length` is what is said of the body's length;
        `expect` waits for 100 Continue before the body; `keep` and `on` are Exchange's."""
        lines = [(b"Host", b"probe")]
        if not keep:
            lines.append((b"Connection", b"close"))
        if user is not None:
            lines.append((b"Authorization", f"Bearer {user}:{uuid4().hex}".encode()))
        if key is not None:
            lines.append((carrier, self.key if key is CASES_OWN else key))
        if knobs or method != "OPTIONS":
            gated = {name: knob.name if isinstance(knob, Gate) else knob for name, knob in knobs.items()}
            lines.append((b"Probe", header_of(tag=self.tag, **gated).encode()))
        lines += headers
        has_body = method not in ("GET", "HEAD", "OPTIONS")
        if has_body and content_type:
            lines.append((b"Content-Type", content_type))
        if pieces is not None:
            lines.append((b"Transfer-Encoding", b"chunked"))
            sent = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]) + b"0\r\n\r\n"
        elif has_body:
            sent = body
            lines.append((b"Content-Length", b"%d" % (len(body) if length is None else length)))
        else:
            sent = b""
        if expect:
            lines.append((b"Expect", b"100-continue"))
        exchange = Exchange(self.server.port, method, keep=keep, on=on)
        self._exchanges.append(exchange)
        start = head(method, path.encode("latin-1"), lines)
        if expect:
            exchange.send(start)
            assert exchange.invited(), "a body was expected, and refused"
            exchange.send(sent)
        else:
            exchange.send(start + sent)
        return exchange

    def send(self, path: str = "/jobs", **how: Any) -> Reply:
        """Send a request and wait for its answer; see `begin`."""
        reply = self.begin(path, **how).reply()
        assert reply.whole, reply
        return reply

    def twice(self, path: str = "/jobs", **how: Any) -> tuple[Reply, Reply]:
        """Send one request, and once more. The second answer has to be the first one's replay, line for line."""
        first, again = self.send(path, **how), self.send(path, **how)
        assert not first.replayed
        self.same(first, again)
        return first, again

    def settled(self, path: str, **how: Any) -> Reply:
        """Ask until the first attempt is over: a dead one's lease ends by the store's clock."""
        end = time.monotonic() + PATIENCE
        while (reply := self.send(path, **how)).status == 409 and reply.problem == "in-progress":
            assert time.monotonic() < end, "it never ended"
            Event().wait(0.05)
        return reply

    def same(self, first: Reply, again: Reply) -> None:
        """Assert that `again` is the replay of `first`: status, header lines, body."""
        assert again.replayed, again
        assert again.status == first.status
        assert again.body == first.body
        # A stream had no length before it was over.
        known = again.own if first.all(LENGTH) else [line for line in again.own if line[0] != LENGTH]
        assert known == first.own


class Ledger:
    """The effects of one case, read from the file that the application writes."""

    def __init__(self, file: Path, tag: str) -> None:
        self._file = file
        self._tag = tag
        self.looks = 0
        """How often its rows were read."""

    def rows(self, tag: str = "") -> list[Row]:
        """The rows, in order. `tag`: LATER for those of background tasks."""
        self.looks += 1
        with closing(sqlite3.connect(self._file)) as connection:
            return [
                Row(*row)
                for row in connection.execute(
                    "SELECT tag, method, path, user, body, derived, mark FROM ledger WHERE tag = ? ORDER BY id",
                    (self._tag + tag,),
                )
            ]

    def __len__(self) -> int:
        return len(self.rows())

    def after_the_answer(self, count: int) -> list[Row]:
        """The rows of background tasks, once there are so many."""
        for rows in self._looking():
            if len(rows) >= count:
                return rows
        raise AssertionError(f"there were never {count} rows of background tasks")

    def _looking(self) -> Iterator[list[Row]]:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            yield self.rows(LATER)
            # Another process writes them.
            Event().wait(0.005)
