"""What a contract on a FastAPI route costs in-process, against the ASGI shell around the same application.

The application takes turns with itself: alone, inside of the ASGI shell (`floor`), and with a contract on its route. So
does a bare ASGI callable, twice: by itself, when the processor's caches hold nothing but twicesafe, and with a request
of the application before each of its own, when they hold what they do in a process that serves FastAPI. A round's
figure is a difference to the same without twicesafe. Memory store; the caller is a dependency that the endpoint asks
for in any case. See `asgi` for how a figure is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response

from benchmarks.asgi import ROUNDS, discard, fastest, fresh_key, request
from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.fastapi import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore

BODY = b'{"amount": 100, "note": "' + b"x" * 200 + b'"}'
ANSWER = b'{"id": "' + b"y" * 200 + b'"}'
TIMES = 200
LINES = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Reads its body and answers 201."""
    await receive()
    await send({"type": "http.response.start", "status": 201, "headers": list(LINES)})
    await send({"type": "http.response.body", "body": ANSWER})


def around_bare() -> Any:
    """The ASGI shell."""
    return IdempotencyMiddleware(bare, AsyncMemoryStore(), scope=lambda _: "user")


def around_the_same() -> Any:
    """The ASGI shell around the FastAPI application."""
    return IdempotencyMiddleware(routed(safe=False)(), AsyncMemoryStore(), scope=lambda _: "user")


async def caller() -> str:
    """Who is calling."""
    return "user"


def routed(*, safe: bool) -> Callable[[], Any]:
    """A FastAPI application, with a contract on its route or without."""

    def make() -> Any:
        app = FastAPI(openapi_url=None)

        async def work(request: Request, who: Annotated[str, Depends(caller)]) -> Response:
            await request.body()
            return Response(ANSWER, 201, media_type="application/json")

        # A name that is not in the module's scope cannot be found by its text.
        work.__annotations__ = {"request": Request, "who": Annotated[str, Depends(caller)], "return": Response}
        if safe:
            work = Idempotency(app, AsyncMemoryStore(), scope=caller).operation()(work)
        app.post("/jobs")(work)
        return app

    return make


def after_the_application(make: Callable[[], Any]) -> Callable[[], Any]:
    """Another application, before each of whose requests the FastAPI application answers one of its own."""

    def made() -> Any:
        before, app = routed(safe=False)(), make()

        async def both(scope: Any, receive: Any, send: Any) -> None:
            await before(*request(fresh_key(), BODY), discard)
            await app(scope, receive, send)

        return both

    return made


def first(make: Callable[[], Any]) -> Callable[[int], Any]:
    """Seconds for one first request."""

    async def run(n: int) -> float:
        return await fastest(make(), iter(fresh_key, b""), BODY, n)

    return run


def run() -> list[Row]:
    """Cost added to a first request. A replay is no comparison: the shell spares it the application, and with that the
    authentication that a contract on a route lets come first."""
    made: dict[str, Callable[[], Any]] = {
        "callable": lambda: bare,
        "around a bare callable": around_bare,
        "callable, after the application": after_the_application(lambda: bare),
        "around a bare callable, after the application": after_the_application(around_bare),
        "application": routed(safe=False),
        "floor": around_the_same,
        "twicesafe.fastapi": routed(safe=True),
    }
    subjects = {name: Subject(name, first(make)) for name, make in made.items()}
    asyncio.run(interleaved(list(subjects.values()), rounds=ROUNDS, times=TIMES))
    pairs = (
        ("floor", "application"), ("twicesafe.fastapi", "application"), ("around a bare callable", "callable"),
        ("around a bare callable, after the application", "callable, after the application"),
    )  # fmt: skip
    added = [Subject(name, subjects[name].run, differences(subjects[name], subjects[alone])) for name, alone in pairs]
    return rows("added to a first request of FastAPI", "us", added, lambda seconds: seconds * 1e6)


def differences(with_it: Subject, without: Subject) -> list[float]:
    """Round by round."""
    return [one - other for one, other in zip(with_it.figures, without.figures, strict=True)]
