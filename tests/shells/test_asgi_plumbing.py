"""The shell between a server and an application: nothing is lost, invented, repeated or left hanging."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from datetime import timedelta

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from tests.shells.probe import Probe, Wire, post
from tests.shells.rig import Failing, Rig
from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware, current
from twicesafe.errors import SchemaError
from twicesafe.stores.memory import AsyncMemoryStore


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.mark.parametrize("parts", [[b""], [b"abc"], [b"a", b"b", b"c"], [b"", b"abc", b""]])
@pytest.mark.parametrize("reads", [False, True])
def test_the_application_sees_exactly_what_was_sent(parts, reads):
    """H1: the request's messages arrive one by one as they came, whether the application reads them or not."""

    async def trial():
        rig = Rig(probe=Probe(reads_body=reads))
        assert (await post(rig.safe, parts=parts)).status == 201
        assert rig.effects == 1
        assert [message["body"] for message in rig.probe.messages] == (list(parts) if reads else [])

    run(trial())


def test_half_an_upload_claims_nothing():
    """R9, H1, K: the client vanishes in the middle of its upload; the handler never runs, the whole one runs later."""

    async def trial():
        rig = Rig()
        half = await post(rig.safe, parts=[b"ha", b"lf"], cut=True)
        assert rig.effects == 0
        assert half.messages == []
        assert (await post(rig.safe, parts=[b"ha", b"lf", b"!"])).status == 201
        assert rig.effects == 1

    run(trial())


@pytest.mark.parametrize("parts", [[b"x" * 11], [b"x" * 6] * 2, [b"x"] * 30])
def test_a_body_over_the_limit_is_refused_and_claims_nothing(parts):
    """R9, E1: 413 before anything is claimed; the key is free for a body that fits."""

    async def trial():
        rig = Rig(Policy(body_limit=10))
        refused = await post(rig.safe, parts=parts)
        assert rig.effects == 0
        assert (refused.status, refused.kind) == (413, "body-too-large")
        assert (await post(rig.safe, body=b"x" * 10)).status == 201
        assert rig.effects == 1

    run(trial())


def test_is_disconnected_tells_the_truth():
    """K: `request.is_disconnected()` is false in a handler whose client is there, with its whole body read."""

    async def trial():
        said = []

        async def handler(request: Request) -> Response:
            await request.body()
            said.append(await request.is_disconnected())
            rig.probe.ledger.append(b"")
            return JSONResponse({})

        rig = Rig(app=Starlette(routes=[Route("/jobs", handler, methods=["POST"])]))
        assert (await post(rig.safe)).status == 200
        assert said == [False]

    run(trial())


@pytest.mark.parametrize("with_base_middleware", [False, True])
@pytest.mark.parametrize("gzip", ["none", "inside", "outside"])
def test_starlette_in_every_arrangement_runs_once(with_base_middleware, gzip):
    """D4, H1, K: under BaseHTTPMiddleware and compression inside or outside, effects 1 and readable equal answers."""

    class Nothing(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            return await call_next(request)

    async def trial():
        async def handler(request: Request) -> Response:
            assert await request.json() == {"amount": 1}
            rig.probe.ledger.append(b"")
            return JSONResponse({"text": "x" * 2000}, status_code=201)

        store = AsyncMemoryStore()
        middleware = [Middleware(IdempotencyMiddleware, store=store, scope=PUBLIC)]
        if with_base_middleware:
            middleware = [Middleware(Nothing), *middleware, Middleware(Nothing)]
        if gzip == "outside":
            middleware.insert(0, Middleware(GZipMiddleware))
        if gzip == "inside":
            middleware.append(Middleware(GZipMiddleware))
        app = Starlette(routes=[Route("/jobs", handler, methods=["POST"])], middleware=middleware)
        accepts = [(b"accept-encoding", b"gzip")]
        rig = Rig(app=app)
        first = await post(app, headers=accepts)
        again = await post(app, headers=accepts)
        plain = await post(app, headers=[(b"accept-encoding", b"identity")])
        assert rig.effects == 1
        assert first.status == again.status == plain.status == 201
        assert again.body == first.body
        assert again.replayed and plain.replayed
        if gzip == "outside":
            assert plain.body == b'{"text":"' + b"x" * 2000 + b'"}'
            assert plain.header(b"content-encoding") is None

    run(trial())


def test_mounted_twice_it_works_once():
    """H: a second instance further inside leaves the request to the first: one claim, one effect, one marker."""

    async def trial():
        rig = Rig()
        inner = rig.safe
        outer = IdempotencyMiddleware(inner, AsyncMemoryStore(), scope=PUBLIC)
        first = await post(outer)
        again = await post(outer)
        assert rig.effects == 1
        assert (first.status, again.status, again.replayed) == (201, 201, True)

    run(trial())


def test_a_mounted_application_is_another_address():
    """G2: the same inner path under two mounts is two requests, and one key never serves both."""

    async def trial():
        async def handler(request: Request) -> Response:
            rig.probe.ledger.append(b"")
            return JSONResponse({})

        inner = Starlette(routes=[Route("/jobs", handler, methods=["POST"])])
        rig = Rig(app=Starlette(routes=[Mount("/a", app=inner), Mount("/b", app=inner)]))
        assert (await post(rig.safe, path="/a/jobs")).status == 200
        assert (await post(rig.safe, path="/b/jobs")).status == 422
        assert rig.effects == 1

    run(trial())


def test_a_stream_without_a_key_is_untouched():
    """K: a streamed answer to a request without a key arrives whole, every chunk."""

    async def trial():
        async def handler(request: Request) -> Response:
            return StreamingResponse(iter([b"a", b"b", b"c"]))

        rig = Rig(app=Starlette(routes=[Route("/jobs", handler, methods=["GET", "POST"])]))
        for method in ("GET", "POST"):
            assert (await post(rig.safe, method=method, key=None)).body == b"abc"

    run(trial())


def test_a_background_task_runs_once_even_if_the_client_is_gone():
    """H1, R17: the client closes at once; the background task runs once, and not again on the replay."""

    async def trial():
        ran = []

        async def later():
            ran.append(1)

        async def handler(request: Request) -> Response:
            rig.probe.ledger.append(b"")
            return JSONResponse({}, background=BackgroundTask(later))

        rig = Rig(app=Starlette(routes=[Route("/jobs", handler, methods=["POST"])]))
        wire = Wire(rig.safe)
        wire.hang_up()
        await wire.end()
        assert (await post(rig.safe)).replayed
        assert rig.effects == 1
        assert ran == [1]

    run(trial())


def test_context_variables_are_seen_outside():
    """H1: what a handler sets in a context variable is seen by the layers around it, waiting or not."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def trial():
        for pause in (False, True):

            async def before(pause=pause):
                if pause:
                    await asyncio.sleep(0)
                variable.set(f"set {pause}")

            rig = Rig(probe=Probe(before=before))
            seen = []

            async def outer(scope, receive, send, rig=rig, seen=seen):
                await rig.safe(scope, receive, send)
                seen.append(variable.get())

            await post(outer)
            assert rig.effects == 1
            assert seen == [f"set {pause}"]

    run(trial())


def test_an_answer_is_started_once():
    """I11, E4: a layer that answers an error after a start was sent meets what it would meet at the server, so that the
    error's body is never taken for the one that was announced."""

    async def trial():
        ledger = []

        async def app(scope, receive, send):
            ledger.append(1)
            await send({"type": "http.response.start", "status": 201, "headers": []})
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"failed"})

        rig = Rig(app=app)
        first, again = await Wire(rig.safe).end(), await post(rig.safe)
        assert len(ledger) == 1
        assert isinstance(first.raised, RuntimeError)
        assert (first.status, first.kind) == (again.status, again.kind) == (500, "handler-failed")
        assert again.replayed

    run(trial())


def test_other_protocols_pass_through():
    """H: websockets and lifespan reach the application as they are."""

    async def trial():
        seen = []

        async def app(scope, receive, send):
            seen.append(scope["type"])

        safe = IdempotencyMiddleware(app, AsyncMemoryStore(), scope=PUBLIC)
        for kind in ("websocket", "lifespan"):
            await safe({"type": kind}, None, None)
        assert seen == ["websocket", "lifespan"]

    run(trial())


def test_nothing_is_under_a_key_that_is_not():
    """R25: outside of a keyed request there is nothing to derive a key from, and the error says so."""

    async def trial():
        async def app(scope, receive, send):
            with pytest.raises(LookupError):
                current(scope)
            await Probe()(scope, receive, send)

        rig = Rig(app=app)
        assert (await post(rig.safe, key=None)).status == 201

    run(trial())


def test_derived_keys_are_the_same_on_every_attempt():
    """R25: a keyed operation derives one key per named call, the same when it is taken over, another per intent."""

    async def trial():
        keys = []

        async def app(scope, receive, send):
            keys.append((current(scope).derived_key("charge"), current(scope).derived_key("refund")))
            with pytest.raises(LookupError, match="no transaction"):
                _ = current(scope).connection
            await rig.probe(scope, receive, send)

        rig = Rig(Policy(effects="keyed"), Probe(raise_after=RuntimeError()), app=app)
        for key in ("one", "one", "two"):
            await post(rig.safe, key=key, raises=RuntimeError)
            rig.pass_time(timedelta(microseconds=1))
        assert keys[0] == keys[1] != keys[2]
        assert len({*keys[0], *keys[2]}) == 4

    run(trial())


def test_an_observer_that_raises_changes_nothing(caplog):
    """R44: counting is no part of the protocol."""

    async def trial():
        rig = Rig()

        def broken(event):
            raise RuntimeError("observer")

        rig.safe._shared.observer = broken
        await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert again.replayed

    run(trial())
    assert "the observer raised" in caplog.text


def test_keys_and_bodies_reach_no_log(caplog):
    """R22: whatever happens, neither a full key nor a body nor an answer is logged."""
    caplog.set_level(0)

    async def trial():
        secret = "secret-key-0123456789-abcdef"
        rig = Rig(probe=Probe(body=b"secret-answer", raise_after=RuntimeError("boom")))
        from twicesafe.observe import log_events

        rig.safe._shared.observer = log_events
        for body in (b"secret-body", b"secret-body", b"secret-other"):
            await post(rig.safe, key=secret, body=body, raises=RuntimeError)
        assert rig.effects == 1

    run(trial())
    assert "mismatch" in caplog.text
    for planted in ("secret-key", "secret-body", "secret-answer", "secret-other"):
        assert planted not in caplog.text


def test_the_log_says_what_ails_the_store(caplog):
    """R10, R22: a loud event's error is logged by its text, which names the remedy; its cause, with values, is not."""

    async def trial():
        from twicesafe.observe import log_events

        rig = Rig()
        ails = SchemaError("the tables are missing: run `twicesafe schema apply`")
        ails.__cause__ = ValueError("a value")
        failing = Failing(rig.store)
        failing.fail("claim", ails)
        rig.safe._shared.store, rig.safe._shared.observer = failing, log_events
        answer = await post(rig.safe)
        assert rig.effects == 0
        assert (answer.status, answer.kind) == (500, "store-misconfigured")

    run(trial())
    assert "SchemaError: the tables are missing: run `twicesafe schema apply`" in caplog.text
    assert "a value" not in caplog.text


def test_nothing_is_left_behind():
    """H: after its answer no task, no claim under renewal and, without any garbage collection, no request is left."""

    async def trial():
        rig = Rig()
        gone = []
        for key in ("a", "a", "b"):
            wire = Wire(rig.safe, key=key)
            await wire._run()
            gone.append(weakref.ref(wire.scope.pop("twicesafe")))
        gc.disable()
        try:
            for key in ("c", "c", "d"):
                wire = Wire(rig.safe, key=key)
                await wire._run()
                gone.append(weakref.ref(wire.scope["twicesafe"]))
            del wire
            assert [ref() for ref in gone] == [None] * 6
        finally:
            gc.enable()
        assert not rig.safe._shared.running
        assert not rig.safe._shared.renewals._live

    run(trial())
