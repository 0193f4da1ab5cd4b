"""What every server of the gallery is for: a shop that takes orders and notes, and does as a request tells it.

A body of JSON may say what is to go wrong: `amount` below 1 is refused, and `fails` is a status that the first attempt
of a `ref` is answered with, before anything is done. A request may name a gate, at which its work stops until somebody
opens it: `/reached?gate=` waits until somebody stands there, `/open?gate=` lets everybody pass.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import defaultdict
from contextlib import suppress
from typing import Any, Final, NamedTuple

from starlette.requests import Request

TABLES: Final = """
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS effects (number INTEGER PRIMARY KEY, ref TEXT NOT NULL, account TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS failed (ref TEXT PRIMARY KEY);
"""


LOOK: Final = 5.0
"""Seconds for which somebody who wants to know waits for somebody to come to a gate."""


class Asked(NamedTuple):
    """A request, read whole and authenticated."""

    method: str
    path: str
    query: str
    account: str
    body: bytes
    gate: str = ""
    """Where its work stops."""


class Gate:
    """A place where work stops until it is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()


class Answer(NamedTuple):
    """What the application says."""

    status: int
    lines: tuple[tuple[str, str], ...]
    body: bytes


class Shop:
    """The application. Its effects are rows of the ledger."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._gates: defaultdict[str, Gate] = defaultdict(Gate)
        database.executescript(TABLES)

    async def told(self, request: Request) -> Answer | None:
        """What whoever checks may ask: how often something was done, who is at work, and to let them go."""
        asked = request.query_params
        if request.url.path == "/effects":
            return document(200, {"count": self.effects(asked["ref"])})
        if request.url.path == "/reached":
            reached = self._gates[asked["gate"]].reached
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await reached.wait()
            return document(200 if reached.is_set() else 404, {})
        if request.url.path == "/open":
            self._gates[asked["gate"]].opened.set()
            return document(200, {})
        return None

    async def prepare(self, asked: Asked) -> Answer | str:
        """All of the work but its effect: a refusal, or the reference of what is to be done."""
        if asked.method != "POST":
            return document(405, {"title": "Only POST"}, ("Allow", "POST"))
        if asked.path.startswith("/notes/"):
            return asked.path.removeprefix("/notes/")
        if asked.path != "/orders":
            return document(404, {"title": "Nothing is here"})
        try:
            order = json.loads(asked.body)
            ref, amount = str(order["ref"]), int(order["amount"])
        except (ValueError, KeyError, TypeError):
            return document(400, {"title": "An order has a ref and an amount"})
        if asked.gate:
            gate = self._gates[asked.gate]
            gate.reached.set()
            await gate.opened.wait()
        if amount < 1:
            return document(422, {"title": "The amount has to be at least 1"})
        if "fails" in order and self._first(ref):
            return document(int(order["fails"]), {"title": "Come back later"}, ("Retry-After", "0"))
        return ref

    def perform(self, asked: Asked, ref: str) -> Answer:
        """The effect, in the transaction that is open; what is answered for it."""
        done = self._database.execute("INSERT INTO effects (ref, account) VALUES (?, ?)", (ref, asked.account))
        lines = (
            ("Location", f"/orders/{done.lastrowid}"),
            ("ETag", f'"{done.lastrowid}"'),
            ("Link", "</terms>; rel=terms"),
        )
        return document(201, {"number": done.lastrowid, "ref": ref}, *lines, ("Link", "</shop>; rel=up"))

    def effects(self, ref: str) -> int:
        """How often the work of a reference was done."""
        counted = self._database.execute("SELECT count(*) FROM effects WHERE ref = ?", (ref,)).fetchone()
        return int(counted[0])

    def _first(self, ref: str) -> bool:
        with self._database:
            return self._database.execute("INSERT OR IGNORE INTO failed VALUES (?)", (ref,)).rowcount == 1


def document(status: int, members: dict[str, Any], *lines: tuple[str, str]) -> Answer:
    """An answer in JSON: a problem from 400 on."""
    kind = "application/problem+json" if status >= 400 else "application/json"
    return Answer(status, (("Content-Type", kind), *lines), json.dumps(members).encode())
