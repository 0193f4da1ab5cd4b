"""What HTTP has besides a status, some lines and a body, under the ASGI shell."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from tests.shells.probe import RETENTION, Probe, Reply, Wire, post
from tests.shells.rig import Rig
from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.cors import CORS_ALLOW_HEADERS, CORS_EXPOSE_HEADERS
from twicesafe.stores.memory import AsyncMemoryStore

MARK = (b"idempotent-replayed", b"true")
ORIGIN = "https://shop.example"
TEXT = b'{"text":"' + b"x" * 2000 + b'"}'


class Sends:
    """An application that has one effect and sends these messages."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = messages
        self.effects = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        self.effects += 1
        for message in self.messages:
            await send(dict(message))


def twice(app: Any, **how: Any) -> tuple[Reply, Reply]:
    """A request and its retry."""

    async def trial() -> tuple[Reply, Reply]:
        return await post(app, **how), await post(app, **how)

    return asyncio.run(trial())


def body(content: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def test_hints_leave_at_once_and_are_not_replayed() -> None:
    """R17: a 103 before the answer is the first caller's; the answer that is recorded is the final one."""
    hint = {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]}
    app = Sends(hint, {"type": "http.response.start", "status": 201, "headers": []}, body(b"done"))
    rig = Rig(app=app)
    first, again = twice(rig.safe)
    assert app.effects == 1
    assert [message["type"] for message in first.messages] == [
        "http.response.early_hint", "http.response.start", "http.response.body",
    ]  # fmt: skip
    assert [message["type"] for message in again.messages] == ["http.response.start", "http.response.body"]
    assert (again.status, again.body, again.replayed) == (201, b"done", True)


@pytest.mark.parametrize("pieces", [[b"done"], [b"do", b"ne"]])
def test_trailers_reach_the_first_caller_and_are_not_replayed(pieces: list[bytes]) -> None:
    """R17: trailers come after what is recorded; a replay promises none, and its body is whole."""
    trailers = {"type": "http.response.trailers", "headers": [(b"x-checksum", b"1")], "more_trailers": False}
    parts = [body(piece, more=piece is not pieces[-1]) for piece in pieces]
    app = Sends({"type": "http.response.start", "status": 201, "headers": [], "trailers": True}, *parts, trailers)
    rig = Rig(app=app)
    first, again = twice(rig.safe)
    assert app.effects == 1
    assert first.messages[-1] == trailers and first.starts[0]["trailers"] is True
    assert "trailers" not in again.starts[0] and again.messages[-1]["type"] == "http.response.body"
    assert first.body == again.body == b"done" and again.replayed


@pytest.mark.parametrize(
    ("status", "lines", "content"),
    [
        (200, ((b"content-length", b"0"),), b""),
        (204, (), b""),
        (205, (), b""),
        (206, ((b"content-range", b"bytes 0-3/8"), (b"content-length", b"4")), b"done"),
        (303, ((b"location", b"/receipts/1"),), b""),
        (304, ((b"etag", b'"1"'), (b"content-length", b"10")), b""),
    ],
)
def test_answers_without_a_body_or_with_a_part_of_one(status: int, lines: Any, content: bytes) -> None:
    """A3, D2, R17: status, lines and bytes of a retry are the first answer's, whatever range the retry asks for."""
    rig = Rig(probe=Probe(status=status, headers=lines, body=content))

    async def trial() -> None:
        first = await post(rig.safe, headers=[(b"range", b"bytes=0-3")])
        again = await post(rig.safe, headers=[(b"range", b"bytes=4-7")])
        assert rig.effects == 1
        assert (first.status, first.lines, first.body) == (status, [RETENTION, *lines], content)
        assert (again.status, again.lines, again.body) == (status, [RETENTION, *lines, MARK], content)

    asyncio.run(trial())


def test_head_passes_through() -> None:
    """R2: HEAD changes nothing, so a key on it means nothing."""
    rig = Rig(probe=Probe(body=b""))
    for reply in twice(rig.safe, method="HEAD", body=b""):
        assert (reply.status, reply.replayed) == (201, False)
    assert rig.effects == 2


def compressed(*, outside: bool, effects: list[int]) -> Any:
    """A service with compression outside of twicesafe, or inside."""

    async def handler(request: Request) -> Response:
        effects.append(1)
        return Response(TEXT, 201, {"Vary": "Cookie"}, "application/json")

    layers = [Middleware(GZipMiddleware), Middleware(IdempotencyMiddleware, store=AsyncMemoryStore(), scope=PUBLIC)]
    ordered = layers if outside else layers[::-1]
    return Starlette(routes=[Route("/jobs", handler, methods=["POST"])], middleware=ordered)


@pytest.mark.parametrize("first_accepts", [b"gzip", b"identity"])
@pytest.mark.parametrize("then_accepts", [b"gzip", b"identity"])
def test_compression_outside_serves_each_caller_as_it_asks(first_accepts: bytes, then_accepts: bytes) -> None:
    """D4: what is stored is not compressed; each answer is readable to its caller, and Vary has all its names."""
    effects: list[int] = []
    app = compressed(outside=True, effects=effects)

    async def trial() -> None:
        for number, accepts in enumerate((first_accepts, then_accepts)):
            reply = await post(app, headers=[(b"accept-encoding", accepts)])
            assert (reply.status, reply.replayed) == (201, number == 1)
            assert reply.header(b"content-encoding") == (b"gzip" if accepts == b"gzip" else None)
            assert (gzip.decompress(reply.body) if accepts == b"gzip" else reply.body) == TEXT
            assert reply.header(b"content-length") == b"%d" % len(reply.body)
            assert {name.strip() for name in (reply.header(b"vary") or b"").split(b",")} >= {b"Cookie"}
        assert effects == [1]

    asyncio.run(trial())


@pytest.mark.parametrize("first_accepts", [b"gzip", b"identity"])
@pytest.mark.parametrize("then_accepts", [b"gzip", b"identity"])
def test_compression_inside_is_part_of_the_answer(first_accepts: bytes, then_accepts: bytes) -> None:
    """D4, R17: the coding that was chosen for the first caller is what is stored, once, with its name on it."""
    effects: list[int] = []
    app = compressed(outside=False, effects=effects)

    async def trial() -> None:
        first = await post(app, headers=[(b"accept-encoding", first_accepts)])
        again = await post(app, headers=[(b"accept-encoding", then_accepts)])
        assert effects == [1]
        assert again.lines == [*first.lines, MARK] and again.body == first.body
        assert first.header(b"content-encoding") == (b"gzip" if first_accepts == b"gzip" else None)
        assert (gzip.decompress(first.body) if first_accepts == b"gzip" else first.body) == TEXT

    asyncio.run(trial())


def crossing(store: AsyncMemoryStore, policy: Policy, *, outside: bool, effects: list[int]) -> Any:
    """A service with Starlette's CORS layer outside of twicesafe, or inside."""

    async def handler(request: Request) -> Response:
        effects.append(1)
        return JSONResponse({"n": len(effects)}, 201, {"Location": "/jobs/1"})

    cors = Middleware(
        CORSMiddleware,
        allow_origins=[ORIGIN],
        allow_methods=["POST"],
        allow_headers=CORS_ALLOW_HEADERS,
        expose_headers=CORS_EXPOSE_HEADERS,
    )
    ours = Middleware(IdempotencyMiddleware, store=store, scope=PUBLIC, policy=policy)
    routes = [Route("/jobs", handler, methods=["POST"])]
    return Starlette(routes=routes, middleware=[cors, ours] if outside else [ours, cors])


@pytest.mark.parametrize("outside", [True, False])
def test_a_preflight_never_touches_the_store(*, outside: bool) -> None:
    """G8, R2: answered by the CORS layer wherever it stands, with a key on it and methods as wide as they can be."""
    store, effects = AsyncMemoryStore(), []
    wide = Policy(methods=frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"}))
    app = crossing(store, wide, outside=outside, effects=effects)
    asked = (
        (b"origin", ORIGIN.encode()),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"idempotency-key,content-type"),
    )
    reply = asyncio.run(post(app, method="OPTIONS", headers=asked, body=b""))
    assert (len(store), effects) == (0, [])
    assert reply.status == 200
    allowed = (reply.header(b"access-control-allow-headers") or b"").lower()
    assert b"idempotency-key" in allowed and b"content-type" in allowed


@pytest.mark.parametrize("outside", [True, False])
def test_a_page_of_another_origin_may_read_a_replay(*, outside: bool) -> None:
    """G8: marker, retention, Retry-After and Location are exposed, on a replay too; a layer outside adds them once."""
    store, effects = AsyncMemoryStore(), []
    app = crossing(store, Policy(), outside=outside, effects=effects)
    _, again = twice(app, headers=((b"origin", ORIGIN.encode()), (b"content-type", b"application/json")))
    assert effects == [1] and again.replayed
    assert again.header(b"access-control-allow-origin") == ORIGIN.encode()
    exposed = {name.strip() for name in (again.header(b"access-control-expose-headers") or b"").split(b",")}
    assert exposed == {b"Idempotent-Replayed", b"Idempotency-Key-Retention", b"Retry-After", b"Location"}


def test_a_refusal_is_readable_only_where_the_layer_is_outside() -> None:
    """G8: what twicesafe answers itself passes through a CORS layer around it, and through none inside."""

    def allowed(*, outside: bool) -> bytes | None:
        app = crossing(AsyncMemoryStore(), Policy(), outside=outside, effects=[])
        how: dict[str, Any] = {"key": "", "headers": ((b"origin", ORIGIN.encode()),)}
        reply = asyncio.run(post(app, **how))
        assert (reply.status, reply.kind) == (400, "key-invalid")
        return reply.header(b"access-control-allow-origin")

    assert allowed(outside=True) == ORIGIN.encode()
    assert allowed(outside=False) is None


def test_a_body_is_asked_for_only_when_the_request_may_run() -> None:
    """R9, E1: a client that waits for 100 Continue is told to go on when its body is read; a refusal comes before."""

    async def trial() -> None:
        asked: list[str] = []
        rig = Rig(scope=lambda scope: None)
        for how in ({"key": ""}, {}):
            wire = Wire(rig.safe, headers=[(b"expect", b"100-continue")], **how)
            received = wire.receive

            async def receive(received: Any = received) -> Any:
                asked.append("body")
                return await received()

            wire.receive = receive
            reply = await wire.end()
            assert reply.status in (400, 403)
        assert asked == [] and rig.effects == 0

    asyncio.run(trial())


def test_a_file_is_sent_and_remembered_however_it_is_sent(tmp_path: Path) -> None:
    """K: files by path, by descriptor or in chunks keep their start message, and the replay carries the file."""

    async def trial() -> None:
        file = tmp_path / "receipt.bin"
        file.write_bytes(bytes(range(256)) * 600)

        async def handler(request: Request) -> Response:
            rig.probe.ledger.append(b"")
            return FileResponse(file)

        async def by_descriptor(scope: dict[str, Any], receive: Any, send: Any) -> None:
            rig.probe.ledger.append(b"")
            await send({"type": "http.response.start", "status": 200, "headers": []})
            kind = {"type": "http.response.zerocopysend"}
            with file.open("rb") as opened:
                await send({**kind, "file": opened, "offset": 0, "count": 100_000, "more_body": True})
                opened.seek(100_000)
                await send({**kind, "file": opened})

        routed = Starlette(routes=[Route("/jobs", handler, methods=["POST"])])
        for app, extension in ((routed, None), (routed, "http.response.pathsend"), (by_descriptor, None)):
            rig = Rig(app=app)
            wires = [Wire(rig.safe) for _ in range(2)]
            for wire in wires:
                if extension:
                    wire.scope["extensions"] = {extension: {}}
            first, again = [await wire.end() for wire in wires]
            assert rig.effects == 1
            assert first.body == again.body == file.read_bytes()
            assert first.status == again.status == 200
            assert again.replayed

    asyncio.run(trial())
