"""The board's application in Starlette."""

from __future__ import annotations

import threading
from typing import Any

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, requires
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from tests.shells.board import LINES, Board
from tests.shells.service import RefusedError
from twicesafe.starlette import Idempotency


def make(board: Board, settings: dict[str, Any]) -> None:
    """The last three routes are mounted."""

    class Header(AuthenticationBackend):
        async def authenticate(self, conn):
            name = board.user(conn.headers.get("x-user"))
            return None if name is None else (AuthCredentials(["authenticated"]), SimpleUser(name))

    board.safe = safe = Idempotency(
        board.store, scope=lambda request: request.user.display_name, observer=board.events.append
    )

    async def amount_of(request):
        try:
            return int((await request.json())["amount"])
        except ValueError:
            safe.current(request).nothing_done()
            raise HTTPException(400, "no amount") from None

    def endpoint(name, **more):
        async def work(request):
            keyed = safe.current(request)
            amount = await amount_of(request)
            board.seen.append(keyed.key)
            made = await board.work(amount, HTTPException, keyed, tx=more.get("effects") == "transactional")
            return JSONResponse(made, board.status, background=BackgroundTask(board.task))

        return requires("authenticated", status_code=401)(safe.operation(name=name, **{**settings, **more})(work))

    class Work(HTTPEndpoint):
        @requires("authenticated", status_code=401)
        @safe.operation(**settings)
        async def post(self, request):
            made = await board.work(await amount_of(request), HTTPException, safe.current(request))
            return JSONResponse(made, board.status, background=BackgroundTask(board.task))

        async def get(self, request):
            return JSONResponse({"n": len(board.ledger)})

    @safe.operation(**settings)
    def blocking(request):
        board.threads.add(threading.get_ident())
        return JSONResponse(board.append(1), board.status)

    @safe.operation(**settings)
    async def stream(request):
        board.append(1)
        return StreamingResponse(board.stream(), board.status)

    @safe.operation(**settings)
    async def events(request):
        board.append(1)
        return StreamingResponse(board.stream(), board.status, media_type="text/event-stream")

    @safe.operation(**settings)
    async def file(request):
        board.append(1)
        return FileResponse(board.file, board.status)

    @safe.operation(**settings)
    async def lines(request):
        board.append(1)
        response = Response(b"\x00\xff", board.status)
        response.raw_headers += LINES
        for name in ("a", "b"):
            response.set_cookie(name, "1")
        return response

    async def free(request):
        return JSONResponse(board.append(1), 201)

    async def refused(request, error):
        return JSONResponse({"how": "mapped"}, 409)

    routes = [
        Route("/jobs", Work),
        Route("/keyed", endpoint("keyed", effects="keyed"), methods=["POST"]),
        Route("/stream", stream, methods=["POST"]),
        Route("/events", events, methods=["POST"]),
        Route("/file", file, methods=["POST"]),
        Mount(
            "/",
            routes=[
                Route("/blocking", blocking, methods=["POST"]),
                Route("/lines", lines, methods=["POST"]),
                Route("/free", free, methods=["POST"]),
            ],
        ),
    ]
    if board.store.transactional:
        routes.insert(0, Route("/tx", endpoint("tx", effects="transactional"), methods=["POST"]))
    board.app = Starlette(
        routes=routes,
        exception_handlers={RefusedError: refused},
        middleware=[Middleware(AuthenticationMiddleware, backend=Header()), safe.middleware],
    )


def rebuilding(board: Board) -> Any:
    """What makes an answer anew."""

    def rebuild(stored, request):
        return None if request.query_params else JSONResponse({"today": len(board.ledger)}, 200)

    return rebuild
