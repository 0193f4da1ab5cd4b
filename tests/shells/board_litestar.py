"""The board's application in Litestar."""

import threading
from typing import Any

from litestar import Controller, Litestar, Request, Response, Router, get, post
from litestar.background_tasks import BackgroundTask
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.params import JSONBody
from litestar.response import File, ServerSentEvent, Stream
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from tests.shells.board import LINES, Board
from tests.shells.service import RefusedError, Work
from twicesafe.litestar import Idempotency, KeyedRequest


def http_error(status: int) -> HTTPException:
    return HTTPException("told to", status_code=status)


def make(board: Board, settings: dict[str, Any], **how: Any) -> None:
    """`/jobs` is a controller's, the last three routes are a router's; callers are checked by a guard."""

    def guard(connection: ASGIConnection, _: Any) -> None:
        connection.scope["user"] = board.user(connection.headers.get("x-user"))
        if connection.scope["user"] is None:
            raise NotAuthorizedException("who are you?")

    safe = board.safe = Idempotency(
        board.store, scope=lambda request: request.scope["user"], observer=board.events.append
    )

    class Charges(Controller):
        path = "/jobs"

        @post()
        @safe.operation(**settings)
        async def create(self, data: JSONBody[Work], keyed_request: KeyedRequest) -> Response[dict[str, int]]:
            made = await board.work(data.amount, http_error, keyed_request)
            return Response(made, background=BackgroundTask(board.task))

        @get()
        async def read(self) -> dict[str, int]:
            return {"n": len(board.ledger)}

    @post("/keyed", background=BackgroundTask(board.task))
    @safe.operation(**{**settings, "effects": "keyed"})
    async def keyed(data: JSONBody[Work], request: Request, keyed_request: KeyedRequest) -> dict[str, int]:
        board.seen.append(keyed_request.key)
        return await board.work(data.amount, http_error, keyed_request)

    @post("/stream")
    @safe.operation(**settings)
    async def stream() -> Stream:
        board.append(1)
        return Stream(board.stream())

    @post("/events")
    @safe.operation(**settings)
    async def events() -> ServerSentEvent:
        board.append(1)
        return ServerSentEvent(board.stream())

    @post("/file")
    @safe.operation(**settings)
    async def file() -> File:
        board.append(1)
        return File(board.file)

    @post("/blocking", sync_to_thread=True)
    @safe.operation(**settings)
    def blocking() -> dict[str, int]:
        board.threads.add(threading.get_ident())
        return board.append(1)

    @post("/lines")
    @safe.operation(**settings)
    async def lines() -> ASGIApp:
        board.append(1)
        cookies = [Cookie(name, value="1") for name in ("a", "b")]
        kind = "application/octet-stream"
        answer = ASGIResponse(body=b"\x00\xff", cookies=cookies, media_type=kind, status_code=201)
        for name, line in LINES[1:]:
            answer.headers.add(name.decode(), line.decode())
        return answer

    @post("/free")
    async def free() -> dict[str, int]:
        return board.append(1)

    def refused(request: Request, error: RefusedError) -> Response:
        return Response({"how": "mapped"}, status_code=409)

    handlers = [Charges, keyed, stream, events, file, Router("/", route_handlers=[blocking, lines, free])]
    if board.store.transactional:

        @post("/tx")
        @safe.operation(**{**settings, "effects": "transactional"})
        async def tx(data: JSONBody[Work], keyed_request: KeyedRequest) -> dict[str, int]:
            return await board.work(data.amount, http_error, keyed_request, tx=True)

        handlers.append(tx)
    board.app = Litestar(
        handlers,
        guards=[guard],
        exception_handlers={RefusedError: refused},
        plugins=[safe],
        **{"openapi_config": None, "logging_config": None, **how},
    )


def rebuilding(board: Board) -> Any:
    """What makes an answer anew."""

    async def rebuild(stored, request):
        return None if request.query_params else Response({"today": len(board.ledger)}, status_code=200)

    return rebuild
