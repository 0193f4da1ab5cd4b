"""Reaches what is under test: an ASGI or WSGI application in this process, or a server by its address."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import Parameter, iscoroutinefunction, signature
from logging import getLogger
from types import TracebackType
from typing import Any, Final, TypeAlias

import httpx2

from twicesafe.errors import ConfigurationError

Target: TypeAlias = str | Callable[..., Any]
"""A base URL, an ASGI application or a WSGI application."""

IN_PROCESS: Final = "http://testserver"

LONGEST: Final = 30.0
"""Seconds an answer may take."""

THREADS: Final = 256
"""Requests to a WSGI application that are at work at one time."""

LOG: Final = getLogger("twicesafe")

_NO_LIFESPAN: Final = "no lifespan"


def is_asgi(application: Callable[..., Any]) -> bool:
    """Whether an application is ASGI's, by how it is called. ConfigurationError where that does not say it."""
    if iscoroutinefunction(application) or iscoroutinefunction(type(application).__call__):
        return True
    taken = [
        parameter
        for parameter in signature(application).parameters.values()
        if parameter.default is Parameter.empty
        and parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(taken) not in (2, 3):
        raise ConfigurationError(f"{application!r} is called neither as an ASGI application is nor as a WSGI one")
    return len(taken) == 3


class _Threaded(httpx2.AsyncBaseTransport):
    """A WSGI application, each request in a thread, as its server would have it."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._within = httpx2.WSGITransport(app=_logging_wsgi(application), raise_app_exceptions=False)
        self._threads = ThreadPoolExecutor(THREADS, "request under test")

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        asked = httpx2.Request(request.method, request.url, headers=request.headers, content=body)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answered, asked)

    def _answered(self, request: httpx2.Request) -> httpx2.Response:
        response = self._within.handle_request(request)
        return httpx2.Response(response.status_code, headers=response.headers, content=response.read())

    async def aclose(self) -> None:
        self._threads.shutdown()


def _logging_wsgi(application: Callable[..., Any]) -> Callable[..., Any]:
    """What a server makes of its exceptions: they are logged, and answered."""

    def logging_application(environ: Any, start_response: Any) -> list[bytes]:
        answer: Any = ()
        try:
            answer = application(environ, start_response)
            return [b"".join(answer)]
        except Exception:
            LOG.exception("the application under test raised")
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")], sys.exc_info())
            return [b"Internal Server Error"]
        finally:
            if hasattr(answer, "close"):
                answer.close()

    return logging_application


def _logging_asgi(application: Callable[..., Any], state: MutableMapping[str, Any]) -> Callable[..., Any]:
    """The log for ASGI; the answer is httpx2's. And each request gets what the lifespan left for it."""

    async def logging_application(scope: Any, receive: Any, send: Any) -> None:
        try:
            await application({**scope, "state": dict(state)}, receive, send)
        except Exception:
            LOG.exception("the application under test raised")
            raise

    return logging_application


class ResponseDropper(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport for a client of httpx2's that loses the answers of the first `times` requests.

    Each of them is done: the server answered, and whoever asked gets a ReadError. `dropped` are those answers.
    """

    def __init__(self, target: Target | httpx2.BaseTransport | httpx2.AsyncBaseTransport, times: int = 1) -> None:
        self._blocking, self._asynchronous = _transports(target)
        self._left = times
        self.dropped: list[httpx2.Response] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, and lose the answer."""
        if self._blocking is None:
            raise ConfigurationError("an ASGI application is asked by an httpx2.AsyncClient")
        response = self._blocking.handle_request(request)
        if self._left > 0:
            response.read()
            response.close()
            self._drop(request, response)
        return response

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, and lose the answer."""
        if self._asynchronous is None:
            raise ConfigurationError("this transport blocks: it belongs to an httpx2.Client")
        response = await self._asynchronous.handle_async_request(request)
        if self._left > 0:
            await response.aread()
            await response.aclose()
            self._drop(request, response)
        return response

    def _drop(self, request: httpx2.Request, response: httpx2.Response) -> None:
        self._left -= 1
        self.dropped.append(response)
        raise httpx2.ReadError("the connection was lost before the answer had arrived", request=request)

    def close(self) -> None:
        """Close what it sends by."""
        if self._blocking is not None:
            self._blocking.close()

    async def aclose(self) -> None:
        """Close what it sends by."""
        if self._asynchronous is not None:
            await self._asynchronous.aclose()


def _transports(
    target: Any, state: MutableMapping[str, Any] | None = None
) -> tuple[httpx2.BaseTransport | None, httpx2.AsyncBaseTransport | None]:
    if isinstance(target, str):
        return httpx2.HTTPTransport(), httpx2.AsyncHTTPTransport()
    if isinstance(target, httpx2.BaseTransport | httpx2.AsyncBaseTransport):
        return (
            target if isinstance(target, httpx2.BaseTransport) else None,
            target if isinstance(target, httpx2.AsyncBaseTransport) else None,
        )
    if is_asgi(target):
        return None, httpx2.ASGITransport(
            app=_logging_asgi(target, {} if state is None else state), raise_app_exceptions=False
        )
    return httpx2.WSGITransport(app=_logging_wsgi(target), raise_app_exceptions=False), _Threaded(target)


class Served:
    """An asynchronous context that asks `target`. An ASGI application is started and stopped around it."""

    def __init__(self, target: Target) -> None:
        self._lifespan = None if isinstance(target, str) or not is_asgi(target) else Lifespan(target)
        self._client = httpx2.AsyncClient(
            transport=_transports(target, None if self._lifespan is None else self._lifespan.state)[1],
            base_url=target if isinstance(target, str) else IN_PROCESS,
            timeout=LONGEST,
        )

    async def __aenter__(self) -> Served:
        if self._lifespan is not None:
            await self._lifespan.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()
        if self._lifespan is not None:
            await self._lifespan.stop()

    def request(self, method: str, url: str, **options: Any) -> httpx2.Request:
        """A request as httpx2 builds it, of `json`, `content`, `data`, `params`, `headers` ..."""
        return self._client.build_request(method, url, **options)

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer to one attempt. Redirects are not followed."""
        return await self._client.send(request)


class Lifespan:
    """Starts and stops an ASGI application as its server does. One that knows nothing of that is left in peace."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self._application = application
        self._told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._said: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.state: dict[str, Any] = {}
        """What it leaves for requests."""

    async def start(self) -> None:
        """RuntimeError where the application says that it cannot start."""
        self._task = asyncio.create_task(self._run())
        await self._tell("startup")

    async def stop(self) -> None:
        """The same for its end."""
        if self._task is not None:
            await self._tell("shutdown")
            await self._task

    async def _tell(self, what: str) -> None:
        self._told.put_nowait({"type": f"lifespan.{what}"})
        said = await self._said.get()
        if said == _NO_LIFESPAN:
            self._said.put_nowait(said)
        elif said:
            raise RuntimeError(f"the application failed in its {what}: {said}")

    async def _run(self) -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            failed = message["type"].endswith(".failed")
            self._said.put_nowait(message.get("message") or "it does not say why" if failed else "")

        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            # What an application without a lifespan raises is its own choice.
            with suppress(Exception):
                await self._application(scope, self._told.get, send)
        finally:
            self._said.put_nowait(_NO_LIFESPAN)
