"""What is Litestar's own about a request: guards, dependencies, hooks, exception handlers, limits, callers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from litestar import Litestar, Request, Response, post, websocket
from litestar.background_tasks import BackgroundTask
from litestar.config.compression import CompressionConfig
from litestar.connection import WebSocket
from litestar.datastructures import Cookie
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.params import JSONBody

from tests.shells.probe import Wire
from tests.shells.probe import post as send
from tests.shells.service import Work, insert, run
from tests.shells.test_routes_transactions import bank
from twicesafe import PUBLIC
from twicesafe.errors import ConfigurationError
from twicesafe.litestar import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore


def app(*handlers: Any, **how: Any) -> Litestar:
    return Litestar(list(handlers), **{"openapi_config": None, "logging_config": None, **how})


def test_hooks_and_tasks_run_with_the_first_answer_only():
    """R17: hooks after the request and the response, and tasks of the route, do not run again on a replay."""

    async def trial():
        ran: list[str] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        def after_request(response: Response) -> Response:
            ran.append("after request")
            response.set_header("x-hook", "yes")
            return response

        def after_response(_: Request) -> None:
            ran.append("after response")

        @post(
            "/jobs",
            background=BackgroundTask(ran.append, "task"),
            response_cookies=[Cookie(key="c", value="1")],
            after_request=after_request,
            after_response=after_response,
        )
        @safe.operation()
        async def work() -> dict[str, int]:
            ran.append("work")
            return {"n": 1}

        served = app(work, plugins=[safe])
        first, again = [await send(served) for _ in range(2)]
        assert ran == ["work", "after request", "task", "after response"]
        assert first.header(b"x-hook") == again.header(b"x-hook") == b"yes"
        assert first.header(b"set-cookie") is not None and again.header(b"set-cookie") is None
        assert (again.status, again.replayed, again.body) == (201, True, first.body)

    run(trial())


def test_a_replay_is_no_error_of_the_application():
    """R17: handlers of exceptions, of HTTP errors and of statuses say nothing to a replay, and nothing is logged."""

    async def trial():
        seen: list[str] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        def handler(_: Request, error: Exception) -> Response:
            seen.append(type(error).__name__)
            return Response({}, status_code=500)

        @post("/jobs", exception_handlers={Exception: handler, HTTPException: handler, 500: handler})
        @safe.operation()
        async def work() -> dict[str, int]:
            return {"n": 1}

        served = app(work, plugins=[safe])
        assert [(await send(served)).status for _ in range(2)] == [201, 201]
        assert seen == []

    run(trial())


def test_dependencies_are_left_on_a_replay():
    """R17: what a dependency opened for a replay is closed, and its work is not done."""

    async def trial():
        did: list[str] = []
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        def session(name: str) -> Any:
            async def opened() -> AsyncIterator[str]:
                did.append("open")
                try:
                    yield name
                    did.append("commit")
                finally:
                    did.append("close")

            return Provide(opened)

        @post("/jobs", dependencies={"one": session("one"), "other": session("other")})
        @safe.operation()
        async def work(one: NamedDependency[str], other: NamedDependency[str]) -> dict[str, str]:
            did.append("work")
            return {"one": one, "other": other}

        served = app(work, plugins=[safe])
        replies = [await send(served) for _ in range(2)]
        assert did.count("work") == 1
        assert [did.count(what) for what in ("open", "commit", "close")] == [4, 2, 4]
        assert [reply.replayed for reply in replies] == [False, True]

    run(trial())


def test_a_dependency_may_build_on_the_connection(tmp_path):
    """R22, R23: a repository gets the transaction's connection; guards come before, and what is refused undoes it."""

    async def trial():
        refuses: list[str] = []

        class Ledger:
            def __init__(self, connection: NamedDependency[Any]) -> None:
                self.connection = connection

            async def add(self, amount: int) -> None:
                await insert(self.connection, amount)

        async def noted(connection: NamedDependency[Any]) -> Ledger:
            ledger = Ledger(connection)
            await ledger.add(7)
            if "dependency" in refuses:
                raise HTTPException(status_code=403)
            return ledger

        def guard(_: Any, __: Any) -> None:
            if "guard" in refuses:
                raise NotAuthorizedException

        def with_ledger(made, settings):
            safe = made.safe = Idempotency(made.store, scope=PUBLIC)

            @post("/tx", guards=[guard], dependencies={"ledger": Provide(noted)})
            @safe.operation(effects="transactional")
            async def tx(data: JSONBody[Work], ledger: NamedDependency[Any], connection: Any) -> dict[str, bool]:
                await ledger.add(data.amount)
                return {"same": connection is ledger.connection}

            made.app = app(tx, plugins=[safe])

        async with bank(with_ledger, tmp_path) as served:
            for refusal, status, body in (
                ("guard", 401, b"{}"),
                ("dependency", 403, b"{}"),
                ("", 400, b'{"amount": "x"}'),
            ):
                refuses[:] = [refusal]
                refused = await served.post("/tx", body=body)
                assert (served.rows(), refused.status) == ([], status)
            first, again = [await served.post("/tx") for _ in range(2)]
            assert served.rows() == [7, 1]
            assert (first.status, first.body) == (201, b'{"same":true}')
            assert (again.status, again.body, again.replayed) == (201, first.body, True)
            refuses[:] = ["guard"]
            assert (await served.post("/tx")).status == 401
            refuses[:] = []
            assert (await served.post("/tx", key=None)).status == 201
            assert served.rows() == [7, 1, 7, 1]

    run(trial())


def test_compression_inside_replays_what_was_sent():
    """D4: an answer that Litestar compressed is replayed byte for byte, with its encoding, and not compressed again."""

    async def trial():
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        @post("/jobs")
        @safe.operation()
        async def work() -> dict[str, str]:
            return {"text": "x" * 2000}

        served = app(work, plugins=[safe], compression_config=CompressionConfig(backend="gzip"))
        first, again = [await send(served, headers=[(b"accept-encoding", b"gzip")]) for _ in range(2)]
        assert first.header(b"content-encoding") == again.header(b"content-encoding") == b"gzip"
        assert first.body == again.body
        assert len(first.body) < 1000

    run(trial())


def test_its_own_body_limit_comes_first():
    """E1, R9: a body over Litestar's limit, or over the operation's, is 413, claims nothing, and the key stays free."""

    async def trial():
        ledger: list[int] = []
        store = AsyncMemoryStore()
        safe = Idempotency(store, scope=PUBLIC)

        def handler(path: str, **how: Any):
            @post(path, request_max_body_size=1000)
            @safe.operation(name=path, **how)
            async def work(data: JSONBody[dict[str, str]]) -> dict[str, int]:
                ledger.append(1)
                return {}

            return work

        served = app(handler("/theirs"), handler("/ours", body_limit=100), plugins=[safe])
        for path, size in (("/theirs", 2000), ("/ours", 200)):
            refused = await send(served, path=path, key=path, body=b'{"x": "' + b"x" * size + b'"}')
            assert (refused.status, ledger, len(store)) == (413, [], 0)
            right = await send(served, path=path, key=path, body=b'{"x": "x"}')
            assert (right.status, ledger) == (201, [1])
            ledger.clear()
            store = safe._shared.store = AsyncMemoryStore()

    run(trial())


def test_two_kinds_of_callers():
    """R6, I7: an application may have operations of known callers and public ones, on one store."""

    async def trial():
        store = AsyncMemoryStore()
        ledger: list[str] = []
        private = Idempotency(store, scope=lambda request: request.headers.get("x-user"))
        public = Idempotency(store, scope=PUBLIC, connection_name="public_connection", request_name="public_request")

        @post("/jobs")
        @private.operation()
        async def work() -> dict[str, int]:
            ledger.append("work")
            return {}

        @post("/hook")
        @public.operation()
        async def hook(public_request: Any) -> dict[str, str]:
            ledger.append("hook")
            return {"key": public_request.key}

        served = app(work, hook, plugins=[private, public])
        nobody = await send(served, path="/jobs")
        assert (nobody.status, nobody.kind) == (403, "caller-unknown")
        for path in ("/jobs", "/hook", "/jobs", "/hook"):
            assert (await send(served, path=path, key=path, headers=[(b"x-user", b"ann")])).status == 201
        assert ledger == ["work", "hook"]
        with pytest.raises(ConfigurationError, match="another dependency"):
            app(hook, plugins=[private, Idempotency(store, scope=PUBLIC)])

    run(trial())


def test_a_scope_may_wait_and_may_refuse():
    """R6, R22: the caller is found by a coroutine that raises an HTTP error, or says that it is nobody."""

    async def trial():
        async def who(request: Request) -> str | None:
            name = request.headers.get("x-user")
            if name == "eve":
                raise HTTPException(status_code=402)
            return name

        store = AsyncMemoryStore()
        safe = Idempotency(store, scope=who)

        @post("/jobs")
        @safe.operation()
        async def work() -> dict[str, int]:
            return {}

        served = app(work, plugins=[safe])
        for name, status in ((b"eve", 402), (b"", 403), (b"ann", 201)):
            assert (await send(served, headers=[(b"x-user", name)])).status == status
        assert len(store) == 1

    run(trial())


def test_what_is_not_http_passes():
    """H1: a WebSocket of the application works as ever."""

    async def trial():
        safe = Idempotency(AsyncMemoryStore(), scope=PUBLIC)

        @websocket("/ws")
        async def echo(socket: WebSocket) -> None:
            await socket.accept()
            await socket.send_text(await socket.receive_text())
            await socket.close()

        served, sent = app(echo, plugins=[safe]), []
        messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"}]

        async def receive():
            return messages.pop(0)

        async def collect(message):
            sent.append(message)

        scope = Wire(served, path="/ws", key="some-key").scope | {"type": "websocket", "subprotocols": []}
        del scope["method"]
        await served(scope, receive, collect)
        assert [message.get("text") for message in sent if message["type"] == "websocket.send"] == ["hello"], sent

    run(trial())
