"""What every probe application shares: its contracts, the knobs of a request, the ledger, the gates, the work itself.

An application turns its framework's request into a `Seen`, has `work` (or `work_async`) done on it inside of twicesafe,
and turns the `Reply` into its framework's response.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from twicesafe import JSON, MULTIPART, Effects, FingerprintRule, Policy
from twicesafe.core.carriers import FormField, JsonMember, QueryParameter
from twicesafe.core.problems import CORS_ALLOW_HEADERS

Lines: TypeAlias = tuple[tuple[bytes, bytes], ...]

# --- what is promised ------------------------------------------------------------------------------------------------

NAME: Final = "idempotency_key"
ORIGIN: Final = "https://shop.example"
"""Whose pages may call, where the framework has a layer for cross-origin requests."""
MAY_SEND: Final = [*CORS_ALLOW_HEADERS, "Authorization", "Probe"]
"""Request headers that they may send."""

CONTRACTS: Final = {
    "/jobs": Policy(),
    "/any/jobs": Policy(methods=frozenset({"POST", "PUT", "PATCH", "DELETE"})),
    "/required/jobs": Policy(required=True, methods=frozenset({"POST"})),
    "/named/jobs": Policy(header="X-Idempotency-Key"),
    "/wait/jobs": Policy(wait=timedelta(seconds=20)),
    "/json/jobs": Policy(fingerprint=FingerprintRule(JSON)),
    "/form/jobs": Policy(
        fingerprint=FingerprintRule(MULTIPART), fields=(FormField(NAME), JsonMember(NAME), QueryParameter(NAME))
    ),
    "/cookies/jobs": Policy(store_cookies=True),
    "/small/jobs": Policy(body_limit=1000, response_limit=64 * 1024),
    "/large/jobs": Policy(body_limit=16 * 1024 * 1024, response_limit=16 * 1024 * 1024),
    "/short/jobs": Policy(lease=timedelta(seconds=1)),
    "/keyed/jobs": Policy(effects=Effects.KEYED),
    "/tx/jobs": Policy(effects=Effects.TRANSACTIONAL),
}
"""Path -> the contract of its operation, for the methods that the contract takes keys with."""

UNKEYED: Final = ("GET", "PUT", "DELETE")
"""Methods that `/jobs` takes besides, under no contract."""


def route_of(path: str) -> str | None:
    """The path of CONTRACTS that a path is under, for applications without a router; None where there is nothing."""
    if path.startswith("/things/") and path.endswith("/jobs"):
        return "/jobs"
    return path if path in CONTRACTS else None


def takes(route: str, method: str) -> bool:
    """Whether a route is there for a method, for applications without a router."""
    return method in CONTRACTS[route].methods or (route == "/jobs" and method in UNKEYED)


def user_of(authorization: str | None) -> str | None:
    """The user of `Bearer user:nonce`: the nonce is another with every request, as tokens are. None: answer 401."""
    kind, _, token = (authorization or "").partition(" ")
    user = token.partition(":")[0]
    return user if kind == "Bearer" and user else None


UNAUTHENTICATED: Final = ("www-authenticate", 'Bearer realm="probe"')
"""A header line of the 401."""

# --- the knobs -------------------------------------------------------------------------------------------------------

HEADER: Final = "Probe"
EXPIRES: Final = datetime(2030, 10, 21, 7, 28, tzinfo=UTC)
"""When cookies expire: the date as HTTP writes it has a comma in it."""


class Knobs(NamedTuple):
    """What a request asks the application to do, in order."""

    tag: str = ""
    """Whose rows it appends: each case counts its own."""
    before: str = ""
    """The gate to pass before the append."""
    rows: int = 1
    mark: int = 1
    """0: a row that the database refuses when it is committed."""
    after: str = ""
    """The gate to pass after the append."""
    nothing_done: bool = False
    """Declares so to twicesafe."""
    raises: str = ""
    """"http": the framework's own HTTP error with `status`. "mapped": MappedError, which a handler of the application's
    turns into 409 and MAPPED. "unhandled": BrokenError, which nobody handles."""
    when: str = "after"
    """"before" or "after" the append."""
    status: int = 201
    lines: Lines = ()
    """Header lines of the answer, in order. Where there is no content-type, it is JSON's."""
    cookies: tuple[str, ...] = ()
    """Names of cookies to set, each with the value "1" and EXPIRES, by the framework's own means."""
    content: bytes | None = None
    """The body of the answer. None is `{"n": rows of this tag}`."""
    chunks: tuple[bytes, ...] = ()
    """The body, instead, as a stream without a length."""
    times: int = 1
    """How often they come."""
    between: str = ""
    """The gate to pass before every chunk but the first."""
    then: str = "end"
    """After the last chunk: "end", "break" by an exception, or go on with it "for ever"."""
    background: int = 0
    """How many background tasks append a row each, after the answer, under the tag with LATER."""
    later: str = ""
    """The gate that a background task passes first."""


LATER: Final = "/later"
PATTERN: Final = bytes(range(256))


def knobs_of(header: str | None) -> Knobs:
    """The knobs in the request's header Probe."""
    asked = json.loads(header or "{}")
    for name in ("lines", "chunks", "content"):
        if name in asked:
            asked[name] = _bytes(asked[name])
    if "size" in asked:
        size = asked.pop("size")
        asked["content"] = (PATTERN * (size // len(PATTERN) + 1))[:size]
    return Knobs(**asked)


def header_of(**knobs: Any) -> str:
    """What knobs_of reads. `size` asks for an answer of that many bytes, all values in turn."""
    return json.dumps(knobs, default=lambda value: value.decode("latin-1"), separators=(",", ":"))


def _bytes(told: Any) -> Any:
    return tuple([_bytes(each) for each in told]) if isinstance(told, list) else told.encode("latin-1")


class MappedError(Exception):
    """Turned into 409 and MAPPED by a handler that the application registers."""


class BrokenError(Exception):
    """Handled by nobody."""


MAPPED: Final = {"how": "mapped"}


# --- the ledger ------------------------------------------------------------------------------------------------------

TABLES: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE marks (mark INTEGER PRIMARY KEY);
    INSERT INTO marks VALUES (1);
    CREATE TABLE ledger (
        id INTEGER PRIMARY KEY, tag TEXT, method TEXT, path TEXT, user TEXT, body BLOB, derived TEXT,
        mark INTEGER REFERENCES marks DEFERRABLE INITIALLY DEFERRED
    );
"""
"""The suite makes them before the application starts, in the file that is also the store's."""

INSERT: Final = "INSERT INTO ledger (tag, method, path, user, body, derived, mark) VALUES (?, ?, ?, ?, ?, ?, ?)"
COUNT: Final = "SELECT count(*) FROM ledger WHERE tag = ?"


class Row(NamedTuple):
    """One effect. `body` is `kept`. `derived` is the key for a downstream call, empty where there is none."""

    tag: str
    method: str
    path: str
    user: str
    body: bytes
    derived: str
    mark: int


def kept(body: bytes) -> bytes:
    """A body as the ledger has it: a large one as its digest."""
    return body if len(body) <= 256 * 1024 else sha256(body).digest()


def database() -> str:
    """The SQLite file."""
    return os.environ["PROBE_DATABASE"]


def configure(connection: sqlite3.Connection) -> None:
    """What a connection needs so that a bad mark is refused at the commit: pass it to the store."""
    connection.execute("PRAGMA foreign_keys = ON")


def append(row: Row) -> int:
    """Append over a connection of its own, and commit. How many rows of this tag there are."""
    with closing(sqlite3.connect(database(), timeout=30, isolation_level=None)) as connection:
        return append_on(connection, row)


def append_on(connection: sqlite3.Connection, row: Row) -> int:
    """Append in the transaction of a connection of the store's."""
    connection.execute(INSERT, row)
    return int(connection.execute(COUNT, (row.tag,)).fetchone()[0])


async def append_async(row: Row) -> int:
    """`append`, in a thread: another task may hold the file's write lock."""
    return await asyncio.to_thread(append, row)


async def append_on_async(connection: Any, row: Row) -> int:
    """Append in the transaction of an aiosqlite connection of the store's."""
    await connection.execute(INSERT, row)
    async with connection.execute(COUNT, (row.tag,)) as cursor:
        return int((await cursor.fetchone())[0])


# --- the gates -------------------------------------------------------------------------------------------------------


class GateGoneError(Exception):
    """The suite is over, or has given up on this gate."""


def pass_gate(name: str) -> None:
    """Tell the suite that this gate is reached, and wait until it opens."""
    with socket.create_connection(("127.0.0.1", int(os.environ["PROBE_GATES"]))) as gate:
        gate.sendall(name.encode() + b"\n")
        if not gate.recv(1):
            raise GateGoneError(name)


async def pass_gate_async(name: str) -> None:
    """`pass_gate`, for asyncio."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["PROBE_GATES"]))
    try:
        writer.write(name.encode() + b"\n")
        if not await reader.read(1):
            raise GateGoneError(name)
    finally:
        writer.close()


# --- the work --------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """The request as the application saw it; `probe` is the header's value."""

    probe: str | None
    method: str
    path: str
    user: str
    body: bytes

    @property
    def knobs(self) -> Knobs:
        return knobs_of(self.probe)


class Reply(NamedTuple):
    """The response to make. `stream`, where there is one, stands for `body`; `background` are blocking callables to
    run after the answer."""

    status: int
    lines: Lines
    cookies: tuple[str, ...]
    body: bytes
    stream: bool
    background: tuple[Callable[[], object], ...]
    seen: Seen

    def chunks(self) -> Iterator[bytes]:
        """The stream."""
        knobs = self.seen.knobs
        for step in _chunks(knobs):
            if isinstance(step, bytes):
                yield step
            else:
                pass_gate(step.name)

    async def chunks_async(self) -> AsyncIterator[bytes]:
        """The stream, for asyncio."""
        for step in _chunks(self.seen.knobs):
            if isinstance(step, bytes):
                yield step
            else:
                await pass_gate_async(step.name)


class Gate(NamedTuple):
    """A step of the work: pass this gate."""

    name: str


HttpError: TypeAlias = Callable[[int], BaseException]
"""Makes the framework's own HTTP error of a status."""


def work(seen: Seen, http_error: HttpError, *, keyed: Any = None, append: Callable[[Row], int] = append) -> Reply:
    """Do what the knobs ask. `keyed` is twicesafe's view of the request, None where it has none.

    In a transactional operation `append` is `append_on` with the connection of the transaction.
    """
    steps = _steps(seen, keyed, http_error)
    value: int | None = None
    try:
        while True:
            step = steps.send(value)
            value = append(step) if isinstance(step, Row) else pass_gate(step.name)
    except StopIteration as stop:
        reply: Reply = stop.value
        return reply


async def work_async(
    seen: Seen,
    http_error: HttpError,
    *,
    keyed: Any = None,
    append: Callable[[Row], Awaitable[int]] = append_async,
) -> Reply:
    """`work`, for asyncio."""
    steps = _steps(seen, keyed, http_error)
    value: int | None = None
    try:
        while True:
            step = steps.send(value)
            value = await (append(step) if isinstance(step, Row) else pass_gate_async(step.name))
    except StopIteration as stop:
        reply: Reply = stop.value
        return reply


def _steps(seen: Seen, keyed: Any, http_error: HttpError) -> Generator[Gate | Row, Any, Reply]:
    knobs = seen.knobs
    derived = keyed.derived_key("provider") if keyed is not None and keyed.key else ""
    if knobs.before:
        yield Gate(knobs.before)
    if knobs.raises and knobs.when == "before":
        raise _error(knobs, http_error)
    n = 0
    for _ in range(knobs.rows):
        n = yield Row(knobs.tag, seen.method, seen.path, seen.user, kept(seen.body), derived, knobs.mark)
    if knobs.after:
        yield Gate(knobs.after)
    if knobs.nothing_done:
        keyed.nothing_done()
    if knobs.raises:
        raise _error(knobs, http_error)
    lines = knobs.lines
    if all(name.lower() != b"content-type" for name, _ in lines):
        lines = ((b"content-type", b"application/json"), *lines)
    body = json.dumps({"n": n}).encode() if knobs.content is None else knobs.content
    later = tuple([lambda: _later(seen)] * knobs.background)
    return Reply(knobs.status, lines, knobs.cookies, body, bool(knobs.chunks), later, seen)


def _error(knobs: Knobs, http_error: HttpError) -> BaseException:
    if knobs.raises == "http":
        return http_error(knobs.status)
    return MappedError() if knobs.raises == "mapped" else BrokenError()


def _chunks(knobs: Knobs) -> Iterator[bytes | Gate]:
    for number, chunk in enumerate(knobs.chunks * knobs.times):
        if number and knobs.between:
            yield Gate(knobs.between)
        yield chunk
    if knobs.then == "break":
        raise BrokenError
    while knobs.then == "for ever":
        yield Gate(knobs.between)
        yield knobs.chunks[-1]


def _later(seen: Seen) -> None:
    if seen.knobs.later:
        pass_gate(seen.knobs.later)
    append(Row(seen.knobs.tag + LATER, seen.method, seen.path, seen.user, b"", "", 1))
