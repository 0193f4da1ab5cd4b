"""The board's application in Quart."""

from __future__ import annotations

import threading
from typing import Any

from quart import Blueprint, Quart, Response, g, jsonify, request, send_file
from quart.views import MethodView
from werkzeug.exceptions import HTTPException

from tests.shells.board import LINES, Board
from tests.shells.service import RefusedError
from twicesafe.quart import Idempotency


def http_error(status: int) -> HTTPException:
    error = HTTPException("told to")
    error.code = status
    return error


def make(board: Board, settings: dict[str, Any]) -> None:
    """`/jobs` is a MethodView, the last three routes are a blueprint's."""
    app = board.app = Quart("board")
    blueprint = Blueprint("more", "board")
    safe = board.safe = Idempotency(app, board.store, scope=lambda: g.user, observer=board.events.append)

    @app.before_request
    async def authenticate():
        g.user = board.user(request.headers.get("x-user"))
        return Response("who are you?", 401) if g.user is None else None

    async def amount_of():
        try:
            return int((await request.get_json())["amount"])
        except (ValueError, HTTPException):
            safe.current.nothing_done()
            raise http_error(400) from None

    async def work():
        made = await board.work(await amount_of(), http_error, safe.current)
        app.add_background_task(board.task)
        return jsonify(made), board.status

    class Work(MethodView):
        @safe.operation(**settings)
        async def post(self):
            return await work()

        async def get(self):
            return {"n": len(board.ledger)}

    app.add_url_rule("/jobs", view_func=Work.as_view("work"))

    @app.post("/keyed")
    @safe.operation(**{**settings, "effects": "keyed"})
    async def keyed():
        board.seen.append(safe.current.key)
        return await work()

    if board.store.transactional:

        @app.post("/tx")
        @safe.operation(**{**settings, "effects": "transactional"})
        async def tx():
            made = await board.work(await amount_of(), http_error, safe.current, tx=True)
            return made, board.status

    @app.post("/stream")
    @safe.operation(**settings)
    async def stream():
        board.append(1)
        return board.stream(), board.status

    @app.post("/events")
    @safe.operation(**settings)
    async def events():
        board.append(1)
        return board.stream(), board.status, {"content-type": "text/event-stream"}

    @app.post("/file")
    @safe.operation(**settings)
    async def file():
        board.append(1)
        response = await send_file(board.file)
        response.status_code = board.status
        return response

    @blueprint.post("/blocking")
    @safe.operation(**settings)
    def blocking():
        board.threads.add(threading.get_ident())
        return board.append(1), board.status

    @blueprint.post("/lines")
    @safe.operation(**settings)
    async def lines():
        board.append(1)
        response = Response(b"\x00\xff", board.status)
        del response.headers["content-type"]
        for name, line in LINES:
            response.headers.add(name.decode(), line.decode())
        for name in ("a", "b"):
            response.set_cookie(name, "1")
        return response

    @blueprint.post("/free")
    async def free():
        return board.append(1), 201

    @app.errorhandler(RefusedError)
    async def refused(error):
        return {"how": "mapped"}, 409

    app.register_blueprint(blueprint)


def rebuilding(board: Board) -> Any:
    """What makes an answer anew."""

    def rebuild(stored):
        return None if request.args else {"today": len(board.ledger)}

    return rebuild
