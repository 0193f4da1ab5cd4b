"""A call that succeeds, over loopback: by httpx2 alone, under a retry transport, and by `send()`.

The peers are httpx-retries' transport and httpware's client, told to retry POST too; and stamina and tenacity, around
the call. They look at the method, the status or the exception, and send neither the number of the attempt nor a
deadline along. All have the same server, which answers from a thread for each connection without looking at what it is
asked. The figures are the client process's own time on the processor: on the clock the server's share would come on
top, and every ratio would look better.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import httpware
import httpx
import httpx2
import httpx_retries
import stamina
import tenacity

from benchmarks.measure import Row, Subject, interleaved, rows
from twicesafe.client import Intent
from twicesafe.client.httpx import AsyncRetryTransport, RetryTransport, asend, send

ROUNDS = 21
TIMES = 100

ANSWER = (
    b"HTTP/1.1 201 Created\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nServer: loopback\r\n"
    b'Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{"charge":1}'
)
KEY = {"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}
AMOUNT = {"amount": 100}


# --- the server -------------------------------------------------------------------------------------------------------


def serve(told: Connection) -> None:
    """Answer whatever comes, on connections that are kept; each request is smaller than a packet."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        told.send(listening.getsockname()[1])
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, suppress(OSError):
        asked = b""
        while piece := connection.recv(65536):
            asked += piece
            head, found, body = asked.partition(b"\r\n\r\n")
            _, _, length = head.lower().partition(b"content-length:")
            if found and len(body) >= int(length.split(b"\r\n", 1)[0] or 0):
                asked = b""
                connection.sendall(ANSWER)


# --- the clients ------------------------------------------------------------------------------------------------------


class Both(httpx2.HTTPTransport, httpx.BaseTransport):
    """httpx-retries takes transports of httpx only; over httpx2's all have one floor."""


class AsyncBoth(httpx2.AsyncHTTPTransport, httpx.AsyncBaseTransport):
    """Its twin."""


RETRY = httpx_retries.Retry(allowed_methods=["GET", "POST"])
AROUND = {
    "stamina": stamina.retry(on=httpx2.HTTPError),
    "tenacity": tenacity.retry(
        retry=tenacity.retry_if_exception_type(httpx2.HTTPError),
        stop=tenacity.stop_after_attempt(10) | tenacity.stop_after_delay(45),
        wait=tenacity.wait_exponential_jitter(initial=0.1, max=5),
        reraise=True,
    ),
}
"""Decorators; tenacity's with what stamina, which is built on it, has for defaults."""
METHODS = frozenset({"GET", "POST"})


def blocking(url: str) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is done once, by case and subject."""
    bare, sending = httpx2.Client(), httpx2.Client()
    clients = {
        "floor": bare,
        "RetryTransport": httpx2.Client(transport=RetryTransport(httpx2.HTTPTransport())),
        "httpx-retries": httpx2.Client(transport=httpx_retries.RetryTransport(transport=Both(), retry=RETRY)),
    }
    gets: dict[str, Callable[[], Any]] = {name: _bound(client.get, url) for name, client in clients.items()}
    posts: dict[str, Callable[[], Any]] = {
        name: _bound(client.post, url, json=AMOUNT, headers=KEY) for name, client in clients.items()
    }
    ware = httpware.Client(httpx2_client=httpx2.Client(), middleware=[httpware.Retry(retry_methods=METHODS)])
    gets |= {"httpware": _bound(ware.get, url)}
    gets |= {name: _bound(around(bare.get), url) for name, around in AROUND.items()}
    posts |= {"httpware": _bound(ware.post, url, json=AMOUNT, headers=KEY)}
    posts |= {name: _bound(around(bare.post), url, json=AMOUNT, headers=KEY) for name, around in AROUND.items()}
    gets["send()"] = lambda: send(sending, sending.build_request("GET", url)).raise_for_outcome()
    posts["send()"] = lambda: send(sending, Intent.new("POST", url, json=AMOUNT)).raise_for_outcome()
    return {"GET": gets, "POST with a key": posts}


def awaited(url: str) -> dict[str, dict[str, Callable[[], Awaitable[Any]]]]:
    """`blocking()`, for asyncio."""
    bare, sending = httpx2.AsyncClient(), httpx2.AsyncClient()
    clients = {
        "floor": bare,
        "AsyncRetryTransport": httpx2.AsyncClient(transport=AsyncRetryTransport(httpx2.AsyncHTTPTransport())),
        "httpx-retries": httpx2.AsyncClient(transport=httpx_retries.RetryTransport(transport=AsyncBoth(), retry=RETRY)),
    }
    gets: dict[str, Callable[[], Awaitable[Any]]] = {name: _bound(client.get, url) for name, client in clients.items()}
    posts: dict[str, Callable[[], Awaitable[Any]]] = {
        name: _bound(client.post, url, json=AMOUNT, headers=KEY) for name, client in clients.items()
    }
    retry = httpware.AsyncRetry(retry_methods=METHODS)
    ware = httpware.AsyncClient(httpx2_client=httpx2.AsyncClient(), middleware=[retry])
    gets |= {"httpware": _bound(ware.get, url)}
    gets |= {name: _bound(around(bare.get), url) for name, around in AROUND.items()}
    posts |= {"httpware": _bound(ware.post, url, json=AMOUNT, headers=KEY)}
    posts |= {name: _bound(around(bare.post), url, json=AMOUNT, headers=KEY) for name, around in AROUND.items()}
    gets["asend()"] = lambda: asend(sending, sending.build_request("GET", url))
    posts["asend()"] = lambda: asend(sending, Intent.new("POST", url, json=AMOUNT))
    return {"GET, asyncio": gets, "POST with a key, asyncio": posts}


def _bound(call: Callable[..., Any], *args: Any, **more: Any) -> Callable[[], Any]:
    return lambda: call(*args, **more)


async def measured(url: str) -> list[Row]:
    """All cases, each with its subjects in turns."""
    found: list[Row] = []
    for case, ways in blocking(url).items():
        subjects = [Subject(name, _blocking_run(once)) for name, once in ways.items()]
        await interleaved(subjects, rounds=ROUNDS, times=TIMES)
        found += rows(case, "us", subjects, lambda seconds: seconds * 1e6)
    for case, calls in awaited(url).items():
        subjects = [Subject(name, _awaited_run(once)) for name, once in calls.items()]
        await interleaved(subjects, rounds=ROUNDS, times=TIMES)
        found += rows(case, "us", subjects, lambda seconds: seconds * 1e6)
    return found


def _blocking_run(once: Callable[[], Any]) -> Callable[[int], Awaitable[float]]:
    async def run(times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            once()
        return (time.process_time() - began) / times

    return run


def _awaited_run(once: Callable[[], Awaitable[Any]]) -> Callable[[int], Awaitable[float]]:
    async def run(times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            await once()
        return (time.process_time() - began) / times

    return run


def run() -> list[Row]:
    """What the command prints."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        return asyncio.run(measured(f"http://127.0.0.1:{here.recv()}/charges"))
    finally:
        server.terminate()
        server.join()
