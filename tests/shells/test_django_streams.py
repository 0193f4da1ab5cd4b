"""Streams of Django's under ASGI: they flow, end, break, and lose their readers."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.deprecation import MiddlewareMixin

from tests.shells import django_site
from tests.shells.django_site import HERE, OURS, Site, problem
from tests.shells.django_wire import Wire, run, settled
from twicesafe.django import idempotent, threads


@pytest.fixture
def site(tmp_path):
    made = django_site.on_file(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asynchronous"])
def test_a_stream_flows_under_asgi(site: Site, blocking: bool) -> None:
    """D5, R18: each piece leaves when it is made, whatever iterator makes it; the replay is whole."""
    gates = [threading.Event() for _ in range(3)]

    def pieces() -> Any:
        for number, gate in enumerate(gates):
            assert gate.wait(30)
            yield f"piece {number} "

    async def apieces() -> AsyncIterator[str]:
        for number, gate in enumerate(gates):
            assert await asyncio.to_thread(gate.wait, 30)
            yield f"piece {number} "

    async def work(request: Any) -> HttpResponse:
        await sync_to_async(site.append)()
        return StreamingHttpResponse(pieces() if blocking else apieces(), status=201)

    async def trial() -> None:
        gates[0].set()
        first = await site.apost()
        flowing = aiter(first)
        for number, gate in enumerate(gates):
            gate.set()
            assert await anext(flowing) == f"piece {number} ".encode()
        assert [piece async for piece in flowing] == []
        await settled()
        assert (await site.apost()).content == b"piece 0 piece 1 piece 2 "

    run(site, trial, idempotent()(work))
    assert site.rows() == 1


def test_a_stream_whose_reader_goes_is_seen_through(site: Site) -> None:
    """A1, R14, R18: the client goes after the first piece; the rest is read for the record."""
    go_on = threading.Event()

    async def work(request: Any) -> HttpResponse:
        await sync_to_async(site.append)()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"one "
            await asyncio.to_thread(go_on.wait, 30)
            yield b"two"

        return StreamingHttpResponse(pieces())

    async def trial() -> None:
        wire = Wire()
        await wire.began.wait()
        await wire.hang_up()
        go_on.set()
        await settled()
        again = await site.apost()
        assert again.content == b"one two"

    run(site, trial, idempotent()(work))
    assert site.rows() == 1


def test_a_stream_that_waits_for_ever_ends_with_its_reader(site: Site, monkeypatch) -> None:
    """D5, R18: events flow live; when their reader is gone the view is told, and retries hear that it is done."""
    monkeypatch.setattr(threads, "LINGER", 0.01)
    told: list[str] = []

    async def work(request: Any) -> HttpResponse:
        await sync_to_async(site.append)()

        async def events() -> AsyncIterator[bytes]:
            try:
                yield b"data: one\n\n"
                await asyncio.Event().wait()
            finally:
                told.append("gone")

        return StreamingHttpResponse(events(), content_type="text/event-stream")

    async def trial() -> None:
        wire = Wire()
        await wire.began.wait()
        assert wire.body == b"data: one\n\n"
        await wire.hang_up()
        await settled()
        assert told == ["gone"]
        assert problem(await site.apost()) == "result-not-kept"

    run(site, trial, idempotent()(work))
    assert site.rows() == 1


class Drops(MiddlewareMixin):
    """Loses an answer without closing it."""

    def process_response(self, request: Any, response: Any) -> HttpResponse:
        return HttpResponse("instead") if response.streaming else response


def test_a_stream_that_a_layer_loses_is_seen_through(site: Site) -> None:
    """R14, R18: nobody reads it or closes it; it is read for the record all the same."""

    async def work(request: Any) -> HttpResponse:
        await sync_to_async(site.append)()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"one "
            yield b"two"

        return StreamingHttpResponse(pieces())

    async def trial() -> None:
        assert (await site.apost()).content == b"instead"
        gc.collect()
        await settled()
        assert (await site.apost()).content == b"one two"

    run(site, trial, idempotent()(work), MIDDLEWARE=[f"{HERE}.Callers", f"{__name__}.Drops", OURS])
    assert site.rows() == 1


def test_a_broken_stream_is_no_success(site: Site) -> None:
    """D5, I6: a stream that raises breaks off for its reader, and is held."""

    async def work(request: Any) -> HttpResponse:
        await sync_to_async(site.append)()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"one "
            raise ZeroDivisionError

        return StreamingHttpResponse(pieces())

    async def trial() -> None:
        first = await site.apost()
        with pytest.raises(ZeroDivisionError):
            [piece async for piece in first]
        await settled()
        assert problem(await site.apost()) == "outcome-unknown"

    run(site, trial, idempotent()(work))
    assert site.rows() == 1
