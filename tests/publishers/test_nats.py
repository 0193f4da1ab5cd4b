"""NATS JetStream, on a real server."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import nats
import pytest
from nats.js.api import StreamConfig

from tests.publishers.documents import run_example
from tests.publishers.messages import PATIENT, made
from tests.servers.nats import NatsServer
from twicesafe.core.arrived import arrived
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.outbox import DeliveryPolicy, Outbox
from twicesafe.outbox.relay import Relay
from twicesafe.publishers.nats import NatsPublisher
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore


async def stream(server: NatsServer, name: str) -> None:
    """Make one that takes `name.>`."""
    client = await nats.connect(server.url)
    await client.jetstream().add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    await client.close()


async def stored(server: NatsServer, name: str) -> list[nats.js.api.RawStreamMsg]:
    """What the stream holds, oldest first."""
    client = await nats.connect(server.url)
    manager = client.jsm()
    count = (await manager.stream_info(name)).state.messages
    found = [await manager.get_msg(name, number) for number in range(1, count + 1)]
    await client.close()
    return found


def test_a_message_is_stored_whole_and_once(nats_server: NatsServer) -> None:
    """R28: what the stream holds is the message with all that CloudEvents says of it; a second copy is not stored."""

    async def main() -> None:
        await stream(nats_server, "whole")
        publisher = NatsPublisher(nats_server.url, subject=lambda message: f"whole.{message.type}", stream="whole")
        message, other = made(), made("order-2")
        await publisher.publish(message)
        assert await publisher.publish_many([message, other]) == [None, None]
        await publisher.aclose()
        first, second = await stored(nats_server, "whole")
        assert first.subject == "whole.order.placed"
        assert first.headers is not None and second.headers is not None
        assert first.headers["Nats-Msg-Id"] == f"/shop {message.id}"
        assert arrived(first.headers, first.data or b"") == message
        assert arrived(second.headers, second.data or b"").id == other.id

    asyncio.run(main())


def test_another_sources_message_is_no_copy(nats_server: NatsServer) -> None:
    """K: within the duplicate window a stream drops copies, and no other message that happens to have the same id."""

    async def main() -> None:
        await stream(nats_server, "shared")
        publisher = NatsPublisher(nats_server.url, subject="shared.orders")
        message = made()
        for sent in (message, message._replace(source="/elsewhere"), message):
            await publisher.publish(sent)
        await publisher.aclose()
        sources = [
            incoming.headers["ce-source"] for incoming in await stored(nats_server, "shared") if incoming.headers
        ]
        assert sources == ["/shop", "/elsewhere"]

    asyncio.run(main())


def test_a_subject_without_a_stream_is_not_delivered(nats_server: NatsServer) -> None:
    """R28: nobody stores it, so it is not delivered, and the error says so; a subject that cannot be is refused."""

    async def main() -> None:
        publisher = NatsPublisher(nats_server.url)
        with pytest.raises(NotDeliveredError, match=r"no stream takes subject 'order\.placed'"):
            await publisher.publish(made())
        with pytest.raises(RefusedError, match="white space"):
            await publisher.publish(made(kind="order placed"))
        with pytest.raises(RefusedError, match="wildcard"):
            await publisher.publish(made(kind="order.*"))
        await publisher.aclose()

    asyncio.run(main())


def test_no_message_is_a_command_to_the_server(nats_server: NatsServer) -> None:
    """R28: a type that names a command of JetStream's is refused, and the stream is as it was."""

    async def main() -> None:
        client = await nats.connect(nats_server.url)
        jetstream = client.jetstream()
        await jetstream.add_stream(name="kept", subjects=["kept.>"])
        publisher = NatsPublisher(nats_server.url)
        await publisher.publish(made(kind="kept.placed"))
        for command in ("$JS.API.STREAM.PURGE.kept", "$JS.API.STREAM.DELETE.kept", "$SYS.REQ.SERVER.PING"):
            outcome = (await publisher.publish_many([made(kind=command)]))[0]
            assert (await jetstream.stream_info("kept")).state.messages == 1
            assert isinstance(outcome, RefusedError)
        await publisher.aclose()
        await client.close()

    asyncio.run(main())


def test_what_a_stream_refuses_is_not_delivered(nats_server: NatsServer) -> None:
    """R28: a stream that does not take more, or is another than the one asked for, has not got the message."""

    async def main() -> None:
        await stream(nats_server, "mine")
        publisher = NatsPublisher(nats_server.url, subject="mine.orders", stream="other")
        (came,) = await publisher.publish_many([made()])
        assert isinstance(came, NotDeliveredError) and "expected stream does not match" in str(came)
        with pytest.raises(RefusedError, match="max_payload"):
            await publisher.publish(made()._replace(data=b"x" * 1_100_000))
        await publisher.aclose()
        assert await stored(nats_server, "mine") == []

    asyncio.run(main())


def test_the_documented_example_runs(nats_server: NatsServer) -> None:
    """R28, K: what docs/publishers/brokers.md shows of NATS works on a real server; its own assertions say so."""
    run_example("NATS JetStream", ("nats://localhost:4222", nats_server.url))


def test_only_what_is_acknowledged_is_delivered(nats_server: NatsServer) -> None:
    """I9, R28: killed before it acknowledges, the server has not delivered; restarted, it gets the message again."""

    async def main() -> None:
        await stream(nats_server, "killed")
        publisher = NatsPublisher(nats_server.url, subject="killed.orders", timeout=PATIENT)
        kept, message = made(), made()
        await publisher.publish(kept)
        nats_server.freeze()
        publisher._timeout = 1.0
        trying = asyncio.create_task(publisher.publish(message))
        await asyncio.wait({trying}, timeout=0.2)
        nats_server.kill()
        with pytest.raises(NotDeliveredError, match="did not acknowledge"):
            await trying
        nats_server.restart()  # in this thread, which lasts
        publisher._timeout = PATIENT.total_seconds()
        for _ in range(30):
            (came,) = await publisher.publish_many([message])
            if came is None:
                break
            assert isinstance(came, NotDeliveredError)
        await publisher.aclose()
        ids = [incoming.headers["ce-id"] for incoming in await stored(nats_server, "killed") if incoming.headers]
        assert ids == [kept.id, message.id]

    asyncio.run(main())


def test_a_relay_brings_every_message_over_a_restart(nats_server: NatsServer, tmp_path: Path) -> None:
    """I9, R28: with the server away in between, the stream has each message once, in its aggregate's order."""
    path = str(tmp_path / "shop.db")
    with closing(SqliteStore(path)) as store:
        store.apply_schema()
    outbox = Outbox("/shop")
    with closing(sqlite3.connect(path)) as connection, connection:
        sent = [outbox.add(connection, "order.moved", ("order", f"o-{n % 4}"), {"n": n}) for n in range(40)]

    async def main() -> None:
        await stream(nats_server, "relayed")
        publisher = NatsPublisher(nats_server.url, subject="relayed.orders", timeout=PATIENT)
        store = AsyncSqliteStore(path)
        policy = DeliveryPolicy(
            attempts=1000, first_delay=timedelta(milliseconds=1), longest_delay=timedelta(milliseconds=10)
        )
        relay = Relay(store, publisher, policy=policy, batch=15)
        rounds = [await relay.run_once()]
        nats_server.kill()
        publisher._timeout = 1.0
        rounds.append(await relay.run_once())
        nats_server.start()
        publisher._timeout = PATIENT.total_seconds()
        while sum(done.delivered for done in rounds) < len(sent) and len(rounds) < 2000:
            rounds.append(await relay.run_once())
        await relay.aclose()
        await publisher.aclose()
        await store.aclose()
        found = [arrived(incoming.headers or {}, b"") for incoming in await stored(nats_server, "relayed")]
        assert rounds[0].delivered and rounds[1] == (0, rounds[1].failed, rounds[1].more)
        assert sorted(message.id for message in found) == sorted(message.id for message in sent)
        for number in range(4):
            ids = [message.id for message in found if message.aggregateid == f"o-{number}"]
            assert ids == [message.id for message in sent if message.aggregateid == f"o-{number}"]

    asyncio.run(main())
