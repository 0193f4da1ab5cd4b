"""The relay that is cut where no namespaces may be made: as both of its ends see it, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from twicesafe.storm.chaos.plan import How
from twicesafe.storm.chaos.relay import Relay

SOON = 60.0
"""Seconds that everything that has to come may take on a busy machine."""


class Database:
    """It keeps what it is told, and says it back."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(100):
                self.heard.put_nowait(data)
                writer.write(data)
        self.heard.put_nowait(b"")
        writer.close()


Talk = Callable[[Relay, Database, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def over_a_relay(talk: Talk) -> None:
    async def trial() -> None:
        database = Database()
        server = await asyncio.start_server(database.serve, "127.0.0.1", 0)
        relay = Relay(server.sockets[0].getsockname()[1])
        await relay.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"hello")
        assert await reader.read(100) == b"hello" == await database.heard.get()
        try:
            await talk(relay, database, reader, writer)
        finally:
            writer.transport.abort()
            await relay.close()
            server.close()

    asyncio.run(asyncio.wait_for(trial(), SOON))


def test_silence_keeps_back_both_ways() -> None:
    """R42: what is sent into a cut network arrives when it is mended, and not before; it is counted."""

    async def talk(
        relay: Relay, database: Database, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await relay.cut(How.SILENCE)
        writer.write(b"pay")
        while not relay.held:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        assert database.heard.empty()
        assert await relay.mend() == (1, 1)
        assert await reader.read(100) == b"pay" == await database.heard.get()

    over_a_relay(talk)


def test_answers_alone_are_kept_back() -> None:
    """R42, A7: the database does what it was asked for, and nobody is told before the network is mended."""

    async def talk(
        relay: Relay, database: Database, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await relay.cut(How.ANSWERS)
        writer.write(b"pay")
        assert await database.heard.get() == b"pay"
        while not relay.held:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        answer = asyncio.ensure_future(reader.read(100))
        await asyncio.sleep(0)
        assert not answer.done()
        await relay.mend()
        assert await answer == b"pay"

    over_a_relay(talk)


def test_a_reset_is_one_for_whoever_asks() -> None:
    """R42: connections are reset, and new ones as well, until it is mended; the database hears of it only then."""

    async def talk(
        relay: Relay, database: Database, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
    ) -> None:
        await relay.cut(How.RESET)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        again, line = await asyncio.open_connection("127.0.0.1", relay.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await again.readexactly(1)
        line.close()
        assert database.heard.empty()
        assert (await relay.mend()).packets == 2
        assert await database.heard.get() == b""
        again, line = await asyncio.open_connection("127.0.0.1", relay.port)
        line.write(b"pay")
        assert await again.read(100) == b"pay"
        line.close()

    over_a_relay(talk)


def test_what_is_late_is_counted() -> None:
    """R42: a slow network passes everything on, and says how much of it was late."""

    async def talk(
        relay: Relay, _database: Database, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await relay.slow()
        writer.write(b"pay")
        assert await reader.read(100) == b"pay"
        assert await relay.speed() == (2, 1)

    over_a_relay(talk)
