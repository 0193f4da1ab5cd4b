"""An honest server: claims before it works, and commits effect and answer in one transaction.

Each of its steps is a method, so that a server with a fault is this one with a method replaced.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.conformance.gallery.shop import Answer, Asked, Shop, document

TABLE: Final = """
    CREATE TABLE IF NOT EXISTS records (
        name TEXT PRIMARY KEY, fingerprint TEXT, owner TEXT, lease REAL, until REAL, answer TEXT, body BLOB
    ) WITHOUT ROWID;
"""
CLAIM: Final = """
    INSERT INTO records (name, fingerprint, owner, lease, until) VALUES (:name, :fingerprint, :owner, :lease, :until)
    ON CONFLICT (name) DO UPDATE SET
        fingerprint = excluded.fingerprint, owner = excluded.owner, lease = excluded.lease, until = excluded.until,
        answer = NULL, body = NULL
    WHERE until <= :now OR (answer IS NULL AND lease <= :now AND fingerprint = excluded.fingerprint)
"""
MARKER: Final = ("Idempotent-Replayed", "true")
PASSES: Final = 6
"""Of the event loop, within which it has read the head of every request that has arrived."""


class Refused(Exception):  # noqa: N818 - an answer that stops a request, no error of the server's
    """The request ends here, with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Record(NamedTuple):
    """What is known of a key."""

    name: str
    fingerprint: str
    owner: str
    answer: Answer | None
    """None while the work goes on."""


class Honest:
    """The honest server, as an ASGI application."""

    lease: float = 60.0
    """Seconds. Longer than any machine forgets to renew it."""
    retention: ClassVar[float] = 3600.0

    def __init__(self, file: Path | None = None) -> None:
        self.database = sqlite3.connect(file or ":memory:", isolation_level=None, check_same_thread=False)
        self.database.executescript(TABLE)
        self.shop = Shop(self.database)
        self._ahead = 0.0
        self._coming: Counter[str] = Counter()
        self._arrived = asyncio.Event()
        self._at_work: set[asyncio.Task[Answer]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await self.told(request) or await self.answer(request)
        except ClientDisconnect:
            return
        except Refused as refused:
            answer = refused.answer
        await self.send(answer, scope, receive, send)

    async def send(self, answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        """Send an answer."""
        await sent(answer, scope, receive, send)

    async def told(self, request: Request) -> Answer | None:
        """What whoever checks may ask: what the shop tells, and to move the clock past the end of every retention."""
        if request.url.path == "/later":
            self._ahead += 2 * self.retention
            return document(200, {})
        return await self.shop.told(request)

    def now(self) -> float:
        """The clock of leases and retention."""
        return time.time() + self._ahead

    # --- before the work ----------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Answer:
        """Authenticate, identify, and then go by the record."""
        account = self.authenticated(request)
        key = self.key(request.headers.getlist("idempotency-key"))
        whose = json.dumps([account, key])
        self._coming[whose] += 1
        try:
            body = await self.read(request)
        finally:
            self._coming[whose] -= 1
            self._arrived.set()
        gate = request.headers.get("gate", "")
        asked = Asked(request.method, request.url.path, request.url.query, account, body, gate)
        return await self.keyed(asked, self.name(asked, key))

    def authenticated(self, request: Request) -> str:
        """The account."""
        return authenticated(request)

    def key(self, lines: list[str]) -> str:
        """The key: bare or quoted, it is the same."""
        if not lines:
            raise Refused(document(400, {"title": "Idempotency-Key is required"}))
        keys = {self.unquoted(line.strip(" \t")) for line in lines}
        if len(keys) > 1:
            raise Refused(document(400, {"title": "There are several Idempotency-Keys"}))
        return self.valid(keys.pop())

    def unquoted(self, line: str) -> str:
        """The key in a line's value."""
        quoted = len(line) > 1 and line[0] == line[-1] == '"'
        return line[1:-1] if quoted else line

    def valid(self, key: str) -> str:
        """The key, if it is one."""
        if not (1 <= len(key) <= 255 and key.isascii() and key.isprintable() and key.strip()):
            raise Refused(document(400, {"title": "Idempotency-Key has to be 1 to 255 printable ASCII characters"}))
        return key

    async def read(self, request: Request) -> bytes:
        """The whole body."""
        return await request.body()

    def name(self, asked: Asked, key: str) -> str:
        """What the record is found by."""
        return json.dumps([asked.account, key])

    def fingerprint(self, asked: Asked) -> str:
        """What tells one request from another."""
        return digest(asked.method, asked.path, asked.query, self.canonical(asked.body))

    def canonical(self, body: bytes) -> str:
        """The body, whatever the order of its members. Numbers are what they are written as."""
        try:
            value = json.loads(
                body,
                parse_int=lambda text: ["n", text],
                parse_float=lambda text: ["n", text],
                object_pairs_hook=members,
            )
        except ValueError:
            return body.hex()
        return json.dumps(value)

    async def rivals(self, name: str) -> None:
        """Wait until everybody has looked at the record who is on their way: what comes at one moment stays together,
        however slowly it comes."""
        for _ in range(PASSES):
            await asyncio.sleep(0)
        while self._coming[name]:
            self._arrived.clear()
            await self._arrived.wait()

    # --- the record ---------------------------------------------------------------------------------------------------

    async def keyed(self, asked: Asked, name: str) -> Answer:
        """Claim and work, or say what the record says."""
        fingerprint = self.fingerprint(asked)
        owner = uuid4().hex
        record = await self.claim(name, fingerprint, owner)
        if record.owner == owner:
            return await self.at_work(asked, record)
        if record.fingerprint != fingerprint:
            return self.mismatch(record, asked)
        if record.answer is None:
            return self.in_progress(record)
        return self.replay(record.answer)

    async def claim(self, name: str, fingerprint: str, owner: str) -> Record:
        """The record, which is mine if I am its owner."""
        now = self.now()
        self.database.execute(
            CLAIM,
            {
                "name": name, "fingerprint": fingerprint, "owner": owner, "lease": now + self.lease,
                "until": now + self.retention, "now": now,
            },
        )  # fmt: skip
        record = self.record(name)
        assert record is not None, "it was just written"
        return record

    def record(self, name: str) -> Record | None:
        """What is written of a key."""
        found = self.database.execute(
            "SELECT fingerprint, owner, answer, body FROM records WHERE name = ?", (name,)
        ).fetchone()
        if found is None:
            return None
        fingerprint, owner, head, body = found
        if head is None:
            return Record(name, fingerprint, owner, None)
        status, lines = json.loads(head)
        return Record(name, fingerprint, owner, Answer(status, tuple((name, value) for name, value in lines), body))

    def mismatch(self, record: Record, asked: Asked) -> Answer:
        """To another request under a used key."""
        return document(422, {"title": "This Idempotency-Key was used for another request; take a new one"})

    def in_progress(self, record: Record) -> Answer:
        """To a duplicate while the first is at work."""
        return document(409, {"title": "The first request is still in progress"}, ("Retry-After", "1"))

    def replay(self, answer: Answer) -> Answer:
        """What was answered before."""
        return answer._replace(lines=(*answer.lines, MARKER))

    # --- the work -----------------------------------------------------------------------------------------------------

    async def at_work(self, asked: Asked, record: Record) -> Answer:
        """Work, whether the client stays or not."""
        task = asyncio.create_task(self.work(asked, record))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        return await asyncio.shield(task)

    async def work(self, asked: Asked, record: Record) -> Answer:
        """The work, and what is left of it: effect and record in one transaction, or neither."""
        renewing = asyncio.create_task(self.renew(record))
        try:
            await self.rivals(record.name)
            prepared = await self.shop.prepare(asked)
        except BaseException:
            self.release(record)
            raise
        finally:
            renewing.cancel()
        return self.settle(asked, record, prepared)

    def settle(self, asked: Asked, record: Record, prepared: Answer | str) -> Answer:
        """End the claim: an effect with its answer is kept, a refusal is as if nothing had been asked."""
        with self.transaction():
            answer = self.shop.perform(asked, prepared) if isinstance(prepared, str) else prepared
            if self.keeps(answer):
                self.complete(record, answer)
            else:
                self.release(record)
        return answer

    def keeps(self, answer: Answer) -> bool:
        """Whether an answer is given again, or whoever comes again is free to do it."""
        return answer.status < 300

    async def renew(self, record: Record) -> None:
        """Hold the claim as long as this is not cancelled."""
        while True:
            await asyncio.sleep(self.lease / 3)
            self.database.execute(
                "UPDATE records SET lease = ? WHERE name = ? AND owner = ?",
                (self.now() + self.lease, record.name, record.owner),
            )

    def complete(self, record: Record, answer: Answer) -> None:
        """Record the answer, if the claim is still this one's."""
        changed = self.database.execute(
            "UPDATE records SET answer = ?, body = ? WHERE name = ? AND owner = ?",
            (json.dumps([answer.status, answer.lines]), answer.body, record.name, record.owner),
        ).rowcount
        if changed != 1:
            raise Refused(self.in_progress(record))

    def release(self, record: Record) -> None:
        """Let go of the key, if it is still this one's."""
        self.database.execute("DELETE FROM records WHERE name = ? AND owner = ?", (record.name, record.owner))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing."""
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")

    async def start(self) -> None:
        """There is nothing to begin with."""

    async def aclose(self) -> None:
        """Wait for the work, and close."""
        for task in list(self._at_work):
            with suppress(Refused, asyncio.CancelledError):
                await task
        self.database.close()


def authenticated(request: Request) -> str:
    """The account of a request: it has a secret of its own."""
    account = request.headers.get("x-account", "")
    if not account or request.headers.get("authorization") != f"Bearer {account}-secret":
        raise Refused(document(401, {"title": "Who are you?"}, ("WWW-Authenticate", "Bearer")))
    return account


async def sent(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer, header lines as they are."""
    response = Response(answer.body, answer.status)
    response.raw_headers += [(name.lower().encode(), value.encode()) for name, value in answer.lines]
    await response(scope, receive, send)


def digest(*parts: str) -> str:
    """Of parts that cannot run into each other."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def members(pairs: list[tuple[str, Any]]) -> list[Any]:
    """The members of an object in one order. An object is no array."""
    return ["o", *sorted(pairs, key=lambda pair: pair[0])]
