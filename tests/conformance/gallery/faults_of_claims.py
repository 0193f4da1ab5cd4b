"""Servers that let two in, keep one out for ever, or do not say when to come back."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from tests.conformance.gallery.honest import Honest, Record
from tests.conformance.gallery.shop import Answer, Asked


class LooksThenInserts(Honest):
    """Looks for a record, finds none, and writes one: in between there is room for another."""

    async def claim(self, name: str, fingerprint: str, owner: str) -> Record:
        found = self.record(name)
        await self.rivals(name)
        if found is None:
            self.database.execute("DELETE FROM records WHERE name = ?", (name,))
        return await super().claim(name, fingerprint, owner)

    def complete(self, record: Record, answer: Answer) -> None:
        super().complete(self.record(record.name) or record, answer)


class TakesOverTogether(Honest):
    """Of a key whose time is over, everybody who looks makes a new one."""

    async def claim(self, name: str, fingerprint: str, owner: str) -> Record:
        expired = self.database.execute(
            "SELECT 1 FROM records WHERE name = ? AND until <= ?", (name, self.now())
        ).fetchone()
        if expired:
            await self.rivals(name)
            self.database.execute("DELETE FROM records WHERE name = ?", (name,))
        return await super().claim(name, fingerprint, owner)

    def complete(self, record: Record, answer: Answer) -> None:
        super().complete(self.record(record.name) or record, answer)


class LateOwner(Honest):
    """A lease that is over as soon as its owner works, and an owner that writes when it is done, whoever holds it."""

    lease = 0.0

    async def renew(self, record: Record) -> None:
        """Nobody does."""

    def complete(self, record: Record, answer: Answer) -> None:
        super().complete(self.record(record.name) or record, answer)


class NeverLetsGo(Honest):
    """Whoever dies at work leaves a claim for ever."""

    lease = 1e9


class Forgets(Honest):
    """What it knows of keys dies with it, as a memory does."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(file)
        self.database.execute("DELETE FROM records")


class FailsOnDuplicates(Honest):
    """The violation of a unique index comes out as a failure."""

    def in_progress(self, record: Record) -> Answer:
        return super().in_progress(record)._replace(status=500)


class RefusesDuplicates(Honest):
    """Has a status of its own for a duplicate of what is at work."""

    def in_progress(self, record: Record) -> Answer:
        return super().in_progress(record)._replace(status=400)


class AcceptsDuplicates(Honest):
    """Says of a duplicate of what is at work that it was accepted."""

    def in_progress(self, record: Record) -> Answer:
        return super().in_progress(record)._replace(status=202)


class SaysNothing(Honest):
    """Does not say when to come back."""

    def in_progress(self, record: Record) -> Answer:
        return super().in_progress(record)._replace(lines=(("Content-Type", "application/problem+json"),))


class SaysTomorrow(SaysNothing):
    """Names its retention as the time to wait."""

    def in_progress(self, record: Record) -> Answer:
        answer = super().in_progress(record)
        return answer._replace(lines=(*answer.lines, ("Retry-After", "86400")))


class SaysNow(SaysNothing):
    """Names no time at all as the time to wait."""

    def in_progress(self, record: Record) -> Answer:
        answer = super().in_progress(record)
        return answer._replace(lines=(*answer.lines, ("Retry-After", "0")))


class SaysSoon(SaysNothing):
    """Names a time in words."""

    def in_progress(self, record: Record) -> Answer:
        answer = super().in_progress(record)
        return answer._replace(lines=(*answer.lines, ("Retry-After", "soon")))


class RecordsAfterSending(Honest):
    """Works, answers, and writes down that it did if somebody took the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.unrecorded: dict[Answer, Record] = {}

    def settle(self, asked: Asked, record: Record, prepared: Answer | str) -> Answer:
        if not isinstance(prepared, str):
            return super().settle(asked, record, prepared)
        with self.transaction():
            answer = self.shop.perform(asked, prepared)
        self.unrecorded[answer] = record
        return answer

    async def send(self, answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        record = self.unrecorded.pop(answer, None)
        if record is not None and await Request(scope, receive).is_disconnected():
            self.release(record)
            return
        await super().send(answer, scope, receive, send)
        if record is not None:
            self.complete(record, answer)


class TakesHalves(Honest):
    """An upload that breaks off is what has arrived of it."""

    async def read(self, request: Request) -> bytes:
        arrived = b""
        try:
            async for piece in request.stream():
                arrived += piece
        except ClientDisconnect:
            return arrived
        return arrived


class ClaimsBeforeReading(Honest):
    """Claims before the body is there; what it compares then is what has arrived."""

    async def answer(self, request: Request) -> Answer:
        try:
            return await super().answer(request)
        except ClientDisconnect:
            account = self.authenticated(request)
            asked = Asked(request.method, request.url.path, request.url.query, account, b"")
            name = self.name(asked, self.key(request.headers.getlist("idempotency-key")))
            await self.claim(name, self.fingerprint(asked), "whoever hung up")
            raise
