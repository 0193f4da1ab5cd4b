"""What ASGI lets applications send: numbers, bytes and lists of other types than the plain ones."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from http import HTTPStatus

import pytest

from tests.shells.probe import post
from tests.shells.rig import Failing, Rig
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.policy import Operation, Policy
from twicesafe.stores.asyncmy import AsyncmyStore

LINES = [(b"content-length", b"6"), (b"link", b"<a>"), (b"link", b"<b>")]


class Name(StrEnum):
    ADA = "ada"
    CHARGE = "charge"


async def in_one_piece(scope, receive, send):
    buffer = bytearray(b"answer")
    await send({"type": "http.response.start", "status": HTTPStatus.CREATED, "headers": iter(LINES)})
    await send({"type": "http.response.body", "body": memoryview(buffer)})
    buffer[:] = b"reused"


async def in_pieces(scope, receive, send):
    buffer = bytearray(3)
    await send({"type": "http.response.start", "status": HTTPStatus.CREATED, "headers": iter(LINES)})
    for piece in (b"ans", b"wer"):
        buffer[:] = piece
        await send({"type": "http.response.body", "body": buffer, "more_body": piece == b"ans"})
    buffer[:] = b"xxx"


async def streamed(scope, receive, send):
    buffer = bytearray(3)
    await send({"type": "http.response.start", "status": HTTPStatus.CREATED, "headers": iter(LINES[1:])})
    for piece in (b"ans", b"wer"):
        buffer[:] = piece
        await send({"type": "http.response.body", "body": memoryview(buffer), "more_body": True})
    await send({"type": "http.response.body"})


async def proved(store, app, lines):
    calls = []

    async def counted(scope, receive, send):
        calls.append(1)
        await app(scope, receive, send)

    operation = Operation(Name.CHARGE, Policy())
    safe = IdempotencyMiddleware(counted, store, scope=lambda _: Name.ADA, operation=operation)
    first, again = await post(safe), await post(safe)
    assert len(calls) == 1
    assert (again.status, again.replayed) == (201, True)
    assert (type(first.status), first.status, again.body) == (int, 201, b"answer")
    assert app is streamed or first.body == b"answer"
    assert [line for line in first.lines if line in lines] == lines
    assert [line for line in again.lines if line in lines] == lines


@pytest.mark.parametrize("app", [in_one_piece, in_pieces, streamed])
def test_views_iterators_and_enumerations_are_recorded_as_what_they_are(app):
    """R14, R17, D1, D4: whatever ASGI lets an answer be made of, there is one effect, one answer, one replay."""

    async def trial():
        await proved(Rig().store, app, LINES[1:] if app is streamed else LINES)

    asyncio.run(trial())


@pytest.mark.parametrize("app", [in_one_piece, in_pieces, streamed])
def test_a_server_that_is_told_literals_is_told_them_too(mariadb_server, app):
    """R14, R17: the same by a store that writes each value into its statement."""

    async def trial():
        store = AsyncmyStore(f"mysql://twicesafe@127.0.0.1:{mariadb_server.port}/{mariadb_server.create_database()}")
        await store.apply_schema()
        try:
            await proved(store, app, LINES[1:] if app is streamed else LINES)
        finally:
            await store.aclose()

    asyncio.run(trial())


def test_an_error_that_no_store_may_raise_is_the_one_that_is_seen():
    """R14, R44: what a store raises without being a StoreError reaches the server as it is, and nothing runs again."""

    async def trial():
        rig = Rig()
        failing = Failing(rig.store)
        failing.fail("complete", TypeError("no such type"))
        rig.safe._shared.store = failing
        with pytest.raises(TypeError, match="no such type"):
            await post(rig.safe)
        again = await post(rig.safe)
        assert rig.effects == 1
        assert (again.status, again.kind) == (409, "in-progress")

    asyncio.run(trial())
