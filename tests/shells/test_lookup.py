"""Asking what became of a key, over both kinds of shell."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shells.probe import Probe, Reply, Wire, post
from twicesafe import PUBLIC, Operation, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.carriers import JsonMember, QueryParameter
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError
from twicesafe.lookup import AsyncKeyLookup, KeyLookup
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore
from twicesafe.wsgi import IdempotencyMiddleware as WsgiMiddleware

SECRET = b'{"card": "4242-4242-4242-4242"}'


class OverAsgi:
    """A service, and the look-up beside it; callers name themselves by the header x-user."""

    def __init__(self, policy: Policy | None = None, *, closes: bool = True, **how: Any) -> None:
        self.probe = Probe(body=b'{"secret": "answer"}')
        store = AsyncMemoryStore()
        given = how or {"policy": policy or Policy()}
        self.service = IdempotencyMiddleware(self.probe, store, scope=self.who, **given)
        self.lookup = AsyncKeyLookup(store, scope=self.who, closes=closes, **given)

    def who(self, scope: dict[str, Any]) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    def effects(self) -> int:
        return len(self.probe.ledger)

    def work(self, user: str = "ann", **how: Any) -> Reply:
        return asyncio.run(post(self.service, headers=[(b"x-user", user.encode())], body=SECRET, **how))

    def ask(self, user: str = "ann", method: str = "GET", **how: Any) -> Reply:
        headers = [(b"x-user", user.encode())] if user else []
        return asyncio.run(post(self.lookup, method=method, path="/keys", headers=headers, body=b"", **how))


class OverWsgi:
    """The same by blocking calls."""

    def __init__(self, policy: Policy | None = None, *, closes: bool = True, **how: Any) -> None:
        self.ledger: list[bytes] = []
        store = MemoryStore()
        given = how or {"policy": policy or Policy()}

        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
            self.ledger.append(environ["wsgi.input"].read())
            body = b'{"secret": "answer"}'
            start_response("201 Created", [("content-type", "application/json"), ("content-length", str(len(body)))])
            return [body]

        self.service = WsgiMiddleware(app, store, scope=self.who, **given)
        self.lookup = KeyLookup(store, scope=self.who, closes=closes, **given)

    def who(self, environ: dict[str, Any]) -> str | None:
        return environ.get("HTTP_X_USER")

    def effects(self) -> int:
        return len(self.ledger)

    def work(self, user: str = "ann", **how: Any) -> Reply:
        return self.call(self.service, "POST", user, SECRET, **how)

    def ask(self, user: str = "ann", method: str = "GET", **how: Any) -> Reply:
        return self.call(self.lookup, method, user, b"", **how)

    def call(
        self, app: Any, method: str, user: str, body: bytes, key: str | None = "k-0001-0001-0001", query: bytes = b""
    ) -> Reply:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": "/jobs",
            "QUERY_STRING": query.decode(),
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            "SERVER_NAME": "test",
        }
        if key is not None:
            environ["HTTP_IDEMPOTENCY_KEY"] = key
        if user:
            environ["HTTP_X_USER"] = user
        reply = Reply()

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            reply.messages.append({"type": "http.response.start", "status": int(status[:3]), "headers": lines})

        pieces = app(environ, start_response)
        reply.messages.append({"type": "http.response.body", "body": b"".join(pieces)})
        return reply


@pytest.fixture(params=[OverAsgi, OverWsgi])
def over(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_the_stored_answer_comes_without_sending_the_request_again(over: Any) -> None:
    """R17, R11: a look-up runs nothing and gives the first answer, marked; before there is one it is not final."""
    rig = over()
    before = rig.ask()
    first = rig.work()
    found = rig.ask()
    assert rig.effects() == 1
    assert (before.status, before.kind, before.problem["final"]) == (404, "key-unknown", False)
    assert (found.status, found.body) == (first.status, first.body) == (201, b'{"secret": "answer"}')
    assert found.replayed and found.header(b"cache-control") == b"no-store"
    assert found.header(b"idempotency-key-retention") == b"86400"


def test_nobody_learns_of_anothers_key(over: Any) -> None:
    """I7, R6, R22: another caller's key is an unknown one, and who is nobody is told nothing."""
    rig = over()
    rig.work("ann")
    assert rig.ask("bob").kind == "key-unknown"
    assert (rig.ask("").status, rig.ask("").kind) == (403, "caller-unknown")
    assert rig.ask("bob", "DELETE").kind == "key-closed"
    assert rig.ask("ann").replayed


def test_a_closed_key_lets_nothing_in_any_more(over: Any) -> None:
    """R1, I4: closed before its first attempt arrives, which is then refused; a new key does it, once."""
    rig = over()
    closed = rig.ask(method="DELETE")
    assert (closed.status, closed.kind, closed.problem["final"]) == (404, "key-closed", True)
    late = rig.work()
    assert (rig.effects(), late.status, late.kind) == (0, 422, "key-reused")
    assert rig.ask().problem["final"] is True
    assert rig.ask(method="DELETE").problem["final"] is True
    assert rig.work(key="k-0002-0002-0002").status == 201
    assert rig.effects() == 1


def test_a_key_in_use_is_not_closed(over: Any) -> None:
    """I5: what was done stays done, and is told."""
    rig = over()
    rig.work()
    assert rig.ask(method="DELETE").replayed
    assert rig.work().replayed
    assert rig.effects() == 1


def test_closing_is_a_choice(over: Any) -> None:
    """R1: by default a look-up only looks; other methods are told which there are."""
    rig = over(closes=False)
    for method in ("DELETE", "POST"):
        refused = rig.ask(method=method)
        assert (refused.status, refused.header(b"allow")) == (405, b"GET")
    assert rig.work().status == 201


def test_a_look_up_reads_the_key_as_the_operation_does(over: Any) -> None:
    """R3, R4, R5: by its header or in the query, by its rule; missing or malformed it is 400."""
    rig = over(Policy(fields=(JsonMember("key"), QueryParameter("key"))))
    rig.work()
    assert rig.ask(key=None, query=b"key=k-0001-0001-0001").replayed
    assert (rig.ask(key=None).status, rig.ask(key=None).kind) == (400, "key-missing")
    assert rig.ask(key="").kind == "key-invalid"


def test_keys_of_an_operation_are_looked_up_under_it(over: Any) -> None:
    """R7: where keys belong to an operation, so does their look-up."""
    rig = over(operation=Operation("charge", Policy(per_operation_keys=True)))
    rig.work()
    assert rig.ask().replayed


@pytest.mark.parametrize(
    ("lookup", "store", "other"),
    [(AsyncKeyLookup, AsyncMemoryStore, MemoryStore), (KeyLookup, MemoryStore, AsyncMemoryStore)],
)
def test_a_look_up_that_could_not_work_is_refused(lookup: Any, store: Any, other: Any) -> None:
    """R6: no scope, the wrong kind of store, and a key that only a body could carry."""
    with pytest.raises(ConfigurationError, match="scope must be"):
        lookup(store(), scope="ann")
    with pytest.raises(ConfigurationError, match="store"):
        lookup(other(), scope=PUBLIC)
    with pytest.raises(ConfigurationError, match="no body"):
        lookup(store(), scope=PUBLIC, policy=Policy(header="", fields=(JsonMember("key"),)))
    with pytest.raises(ConfigurationError, match="either"):
        lookup(store(), scope=PUBLIC, policy=Policy(), operation=Operation("a"))


def test_while_the_first_attempt_runs_the_answer_is_to_wait() -> None:
    """R11: 409 with Retry-After, and then the answer."""

    async def trial() -> None:
        inside, go = asyncio.Event(), asyncio.Event()

        async def before() -> None:
            inside.set()
            await go.wait()

        rig = OverAsgi()
        rig.probe.before = before
        ann = [(b"x-user", b"ann")]
        first = Wire(rig.service, headers=ann).start()
        await inside.wait()
        for method in ("GET", "DELETE"):
            asked = await post(rig.lookup, method=method, headers=ann, body=b"")
            assert (asked.status, asked.kind, asked.header(b"retry-after")) == (409, "in-progress", b"1")
        go.set()
        await first.end()
        assert (await post(rig.lookup, method="GET", headers=ann, body=b"")).replayed
        assert rig.effects() == 1

    asyncio.run(trial())


def test_nothing_of_it_reaches_a_log(over: Any, caplog: pytest.LogCaptureFixture) -> None:
    """R22: neither the key nor the answer that was looked up."""
    caplog.set_level(logging.DEBUG)
    rig = over()
    rig.work()
    rig.ask()
    rig.ask(method="DELETE", key="k-0002-0002-0002")
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "looked_up" in told and "key.closed" in told
    secrets = ("k-0001-0001-0001", "k-0002-0002-0002", "answer", "4242-4242-4242-4242")
    assert not any(secret in told for secret in secrets)


def test_other_protocols_find_nothing_there() -> None:
    """H: mounted where a websocket is asked for, it says nothing."""
    wire = Wire(OverAsgi().lookup)
    wire.scope["type"] = "websocket"
    assert asyncio.run(wire.end()).messages == []


def test_a_transaction_under_way_is_waited_for(tmp_path: Path) -> None:
    """R11, R23: nothing of it is visible, and the look-up that came meanwhile tells what it came to."""

    async def trial() -> None:
        inside, go = asyncio.Event(), asyncio.Event()

        async def before() -> None:
            inside.set()
            await go.wait()

        store = AsyncSqliteStore(tmp_path / "records.db")
        await store.apply_schema()
        policy = Policy(effects=Effects.TRANSACTIONAL)
        probe = Probe(before=before)
        service = IdempotencyMiddleware(probe, store, scope=PUBLIC, policy=policy)
        lookup = AsyncKeyLookup(store, scope=PUBLIC, policy=policy)
        try:
            first = Wire(service).start()
            await inside.wait()
            asked = Wire(lookup, method="GET", body=b"").start()
            await asyncio.sleep(0)
            go.set()
            answer, found = await first.end(), await asked.end()
            assert (found.status, found.body, found.replayed) == (201, answer.body, True)
            assert len(probe.ledger) == 1
        finally:
            await store.aclose()

    asyncio.run(trial())
