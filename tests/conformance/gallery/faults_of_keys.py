"""Servers that go wrong over the key itself, or over whose it is."""

from __future__ import annotations

import json

from starlette.requests import Request

from tests.conformance.gallery.honest import Honest, Refused
from tests.conformance.gallery.shop import Answer, Asked, document


class KeepsQuotes(Honest):
    """A key in quotes is another one than the same key without."""

    def unquoted(self, line: str) -> str:
        return line


class FoldsCase(Honest):
    """Compares keys as a database with a collation does that knows no case."""

    def valid(self, key: str) -> str:
        return super().valid(key).lower()


class TakesTheFirst(Honest):
    """Of two keys the first counts."""

    def key(self, lines: list[str]) -> str:
        return super().key(lines[:1])


class TakesTheLast(Honest):
    """Of two keys the last counts."""

    def key(self, lines: list[str]) -> str:
        return super().key(lines[-1:])


class JoinsLines(Honest):
    """Two keys are one with a comma in it."""

    def key(self, lines: list[str]) -> str:
        return super().key([", ".join(lines)] if lines else [])


class TakesNothing(Honest):
    """An empty key is a key, and everybody's."""

    def valid(self, key: str) -> str:
        return super().valid(key.strip() or "-")


class SharesNoKey(Honest):
    """Requests without a key have one in common."""

    def key(self, lines: list[str]) -> str:
        return super().key(lines or ["None"])


class CutsOff(Honest):
    """A key is cut off at what its column holds."""

    def valid(self, key: str) -> str:
        return super().valid(key[:255])


class FailsOnLongKeys(Honest):
    """A long key fails where it is written."""

    def valid(self, key: str) -> str:
        if len(key) > 255:
            raise Refused(document(500, {"title": "value too long for type character varying(255)"}))
        return super().valid(key)


class FailsOutsideAscii(Honest):
    """A key that is not ASCII fails where it is encoded."""

    def valid(self, key: str) -> str:
        if not key.isascii():
            raise Refused(document(500, {"title": "'ascii' codec can't encode characters"}))
        return super().valid(key)


class HasNoScope(Honest):
    """A key is everybody's."""

    def name(self, asked: Asked, key: str) -> str:
        return json.dumps([key])


class KeepsOthersOut(Honest):
    """A key belongs to whoever used it first; others are refused with it."""

    def name(self, asked: Asked, key: str) -> str:
        mine, everybodys = super().name(asked, key), json.dumps([key])
        self.database.execute("CREATE TABLE IF NOT EXISTS owners (key TEXT PRIMARY KEY, name TEXT)")
        self.database.execute("INSERT OR IGNORE INTO owners VALUES (?, ?)", (everybodys, mine))
        owner = self.database.execute("SELECT name FROM owners WHERE key = ?", (everybodys,)).fetchone()[0]
        if owner != mine:
            raise Refused(document(403, {"title": "This Idempotency-Key is somebody else's"}))
        return mine


class ReplaysToAnybody(Honest):
    """Looks for a record before it asks who is there."""

    async def answer(self, request: Request) -> Answer:
        try:
            return await super().answer(request)
        except Refused as refused:
            asked = Asked("", "", "", request.headers.get("x-account", ""), b"")
            found = self.record(self.name(asked, request.headers.get("idempotency-key", "")))
            if refused.answer.status != 401 or found is None or found.answer is None:
                raise
            return self.replay(found.answer)


class KeepsRefusedCallers(Honest):
    """Stands before the authentication, and keeps its 401."""

    async def answer(self, request: Request) -> Answer:
        try:
            return await super().answer(request)
        except Refused as refused:
            if refused.answer.status == 401:
                await self.keep(request, refused.answer)
            raise

    async def keep(self, request: Request, answer: Answer) -> None:
        """Under the key, if it is free."""
        account = request.headers.get("x-account", "")
        asked = Asked(request.method, request.url.path, request.url.query, account, await request.body())
        record = await self.claim(self.name(asked, self.key(request.headers.getlist("idempotency-key"))),
                                  self.fingerprint(asked), "401")  # fmt: skip
        if record.owner == "401" and record.answer is None:
            self.complete(record, answer)
