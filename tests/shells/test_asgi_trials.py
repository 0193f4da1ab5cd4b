"""Trials of reported faults around the ASGI shell, with Starlette inside where the fault was a framework's."""

from __future__ import annotations

import asyncio
import gzip
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.shells.probe import Probe, post
from tests.shells.rig import Rig
from twicesafe import JSON, MULTIPART, RAW, FingerprintRule, KeyRule, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("status", [408, 425, 429, 503])
def test_a_limiter_never_decides_for_good(status: int, *, outside: bool) -> None:
    """E3, R15: inside or outside of the shell, whom it sent away is served when it comes back under its key."""
    full = [True]

    def limited(app: Any) -> Any:
        async def limiting(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if full[0]:
                await PlainTextResponse("later", status, {"Retry-After": "1"})(scope, receive, send)
            else:
                await app(scope, receive, send)

        return limiting

    probe = Probe()
    rig = Rig(app=probe if outside else limited(probe))
    app = limited(rig.safe) if outside else rig.safe

    async def trial() -> None:
        assert (await post(app)).status == status
        full[0] = False
        assert (await post(app)).status == 201
        assert (await post(app)).replayed
        assert len(probe.ledger) == 1

    asyncio.run(trial())


class RefusedError(Exception):
    """Mapped to 409 by the application."""


@pytest.mark.parametrize("wraps_all", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("how", ["http error", "mapped", "unhandled"])
def test_an_error_is_replayed_as_its_caller_saw_it(how: str, *, after: bool, wraps_all: bool) -> None:
    """E4: raised before the effect or after it, answered by handlers inside of the shell: one status, one body."""
    ledger: list[int] = []
    errors = {"http error": HTTPException(418, "teapot"), "mapped": RefusedError(), "unhandled": ZeroDivisionError()}

    async def handler(request: Request) -> Response:
        if after:
            ledger.append(1)
        raise errors[how]

    async def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"why": "refused"}, 409)

    async def broken(request: Request, error: Exception) -> Response:
        return JSONResponse({"why": "broken"}, 500)

    async def scope_of(scope: dict[str, Any]) -> str:
        return "ann"

    ours = Middleware(IdempotencyMiddleware, store=AsyncMemoryStore(), scope=scope_of)
    app: Any = Starlette(
        routes=[Route("/jobs", handler, methods=["POST"])],
        exception_handlers={RefusedError: refused, Exception: broken},
        middleware=[] if wraps_all else [ours],
    )
    if wraps_all:
        app = IdempotencyMiddleware(app, AsyncMemoryStore(), scope=scope_of)

    async def trial() -> None:
        first, again = [await post(app, raises=ZeroDivisionError) for _ in range(2)]
        assert len(ledger) == int(after)
        expected = {"http error": 418, "mapped": 409, "unhandled": 500}[how]
        assert (first.status, again.status, again.body) == (expected, expected, first.body)
        assert first.body and again.replayed

    asyncio.run(trial())


def form(boundary: bytes, *parts: bytes) -> dict[str, Any]:
    """A multipart request."""
    lines = [b"--%b\r\nContent-Disposition: form-data; %b\r\n" % (boundary, part) for part in parts]
    content_type = b"multipart/form-data; boundary=" + boundary
    return {"body": b"".join(lines) + b"--%b--\r\n" % boundary, "headers": [(b"content-type", content_type)]}


FIELD, FILE = b'name="a"\r\n\r\n1', b'name="f"; filename="f.bin"\r\n\r\n\0\1'


def test_fields_in_another_order_are_the_same_form() -> None:
    """F1, R8: as MULTIPART compares; a file more, or a field's other value, is another form."""
    rig = Rig(Policy(fingerprint=FingerprintRule(MULTIPART)))

    async def trial() -> None:
        await post(rig.safe, **form(b"x1", FIELD, FILE))
        assert (await post(rig.safe, **form(b"y2", FILE, FIELD))).replayed
        assert (await post(rig.safe, **form(b"y2", FILE, FIELD, FIELD))).status == 422
        assert rig.effects == 1

    asyncio.run(trial())


@pytest.mark.parametrize(("algorithm", "status"), [(RAW, 422), (JSON, 201), (MULTIPART, 201)])
def test_a_body_sent_gzipped_once_and_plain_once(algorithm: Any, status: int) -> None:
    """F1, R8: one request to whoever compares values, and another one to whoever compares bytes; never a second run."""
    rig = Rig(Policy(fingerprint=FingerprintRule(algorithm)))
    plain = (
        form(b"x", FIELD)
        if algorithm is MULTIPART
        else {"body": b'{"a": 1}', "headers": [(b"content-type", b"application/json")]}
    )
    packed = {
        "body": gzip.compress(plain["body"], mtime=0),
        "headers": [*plain["headers"], (b"content-encoding", b"gzip")],
    }

    async def trial() -> None:
        await post(rig.safe, **packed)
        again = await post(rig.safe, **plain)
        assert rig.effects == 1
        assert (again.status, again.replayed) == (status, status == 201)

    asyncio.run(trial())


@pytest.mark.parametrize("effects", ["opaque", "keyed"])
def test_a_failed_request_still_keeps_others_out(effects: Any) -> None:
    """F6, I4: after body 1 failed, body 2 is refused under its key, and body 1 has what its declaration promises."""
    rig = Rig(Policy(effects=effects), Probe(raise_after=ZeroDivisionError()))

    async def trial() -> None:
        await post(rig.safe, raises=ZeroDivisionError)
        other = await post(rig.safe, body=b"other")
        assert (rig.effects, other.status, other.kind) == (1, 422, "key-reused")
        rig.probe.raise_after = None
        rig.pass_time(timedelta(microseconds=1))
        again = await post(rig.safe)
        assert (again.status, rig.effects) == ((500, 1) if effects == "opaque" else (201, 2))

    asyncio.run(trial())


def test_tenants_of_one_user_share_nothing() -> None:
    """G1, R6, I7: whoever scopes by tenant and user keeps two tenants of one user apart, and two clients of one NAT."""

    def who(scope: dict[str, Any]) -> str | None:
        lines = dict(scope["headers"])
        return f"{lines[b'x-tenant'].decode()}/ann" if b"x-tenant" in lines else None

    rig = Rig(scope=who)

    async def trial() -> None:
        for tenant in (b"x", b"y", b"x"):
            reply = await post(rig.safe, headers=[(b"x-tenant", tenant)])
        assert rig.effects == 2 and reply.replayed
        for _ in range(2):
            assert (await post(rig.safe)).status == 403
        assert rig.effects == 2

    asyncio.run(trial())


LONGEST = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+.^_|~") for _ in range(255))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("key", ["", " ", LONGEST + "x", LONGEST * 20, "k\x7f", "ключ", "k\u2026", LONGEST, "k"])
def test_a_keys_length_and_characters_do_not_depend_on_the_store(kind: str, key: str, tmp_path: Path) -> None:
    """G5, G6, R4: the same 400 everywhere before any work; the longest key of the longest caller is kept whole."""

    async def trial() -> None:
        store: Any = AsyncMemoryStore() if kind == "memory" else AsyncSqliteStore(tmp_path / "records.db")
        await store.apply_schema()
        rig = Rig(Policy(key=KeyRule()), store=store, scope=lambda scope: LONGEST)
        try:
            first, again = [await post(rig.safe, key=key.encode()) for _ in range(2)]
            if key in (LONGEST, "k"):
                assert (rig.effects, first.status, again.replayed) == (1, 201, True)
                assert (await post(rig.safe, key=(key[:-1] + "?").encode())).replayed is False
            else:
                assert (rig.effects, first.status, first.kind) == (0, 400, "key-invalid")
        finally:
            await store.aclose()

    asyncio.run(trial())


@pytest.mark.parametrize("reads", ["json", "form", "multipart", "stream"])
def test_what_the_shell_has_read_the_application_reads_too(reads: str) -> None:
    """H1: sent in three pieces, and read by the framework's own means, it is what was sent; the retry reads nothing."""
    seen: list[Any] = []

    async def handler(request: Request) -> Response:
        if reads == "json":
            seen.append(await request.json())
        elif reads == "stream":
            seen.append(b"".join([piece async for piece in request.stream()]))
        else:
            async with request.form() as sent:
                values = [await one.read() if hasattr(one, "read") else one for one in sent.values()]
                seen.append(values)
        return JSONResponse({}, 201)

    how: dict[str, Any] = {
        "json": {"body": b'{"a": "bcdefg"}'},
        "stream": {"body": bytes(range(256))},
        "form": {"body": b"a=1&b=22", "headers": [(b"content-type", b"application/x-www-form-urlencoded")]},
        "multipart": form(b"x", FIELD, FILE),
    }[reads]
    whole = how.pop("body")
    parts = [whole[:5], whole[5:7], whole[7:]]
    rig = Rig(app=Starlette(routes=[Route("/jobs", handler, methods=["POST"])]))

    async def trial() -> None:
        first, again = [await post(rig.safe, parts=parts, **how) for _ in range(2)]
        expected = {"json": {"a": "bcdefg"}, "stream": whole, "form": ["1", "22"], "multipart": ["1", b"\0\1"]}
        assert seen == [expected[reads]]
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    asyncio.run(trial())
