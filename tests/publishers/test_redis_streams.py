"""Redis Streams, on a real server."""

from __future__ import annotations

import asyncio

import pytest

from tests.publishers.documents import run_example
from tests.publishers.messages import PATIENT, made
from tests.servers.redis import RedisServer, replicated
from twicesafe.core.arrived import arrived
from twicesafe.errors import NotDeliveredError, RefusedError
from twicesafe.publishers.redis_streams import RedisStreamsPublisher
from twicesafe.storm.frozen import freeze


def entries(server: RedisServer, stream: str) -> list[dict[str, bytes]]:
    """What the stream holds, oldest first."""
    with server.client() as client:
        return [{name.decode(): value for name, value in found.items()} for _, found in client.xrange(stream)]


def test_a_message_arrives_whole(redis_server: RedisServer) -> None:
    """R28: an entry is the message, with all that CloudEvents says of it and its data as it is."""

    async def main() -> None:
        publisher = RedisStreamsPublisher(redis_server.url, stream=lambda message: f"whole-{message.aggregatetype}")
        message, other = made(data=b"\x00\xff"), made("b")
        assert await publisher.publish_many([message, other]) == [None, None]
        await publisher.aclose()
        first, second = entries(redis_server, "whole-orders")
        assert arrived(first, first["data"], encoded=False) == message
        assert second["ce-id"].decode() == other.id

    asyncio.run(main())


def test_one_message_does_not_stand_for_its_neighbours(redis_server: RedisServer) -> None:
    """R28: what has no stream, or whose key is no stream, is not delivered; the others are."""

    async def main() -> None:
        with redis_server.client() as client:
            client.set("taken-b", "a value")
        publisher = RedisStreamsPublisher(
            redis_server.url, stream=lambda message: f"taken-{message.aggregateid}" if message.aggregateid else ""
        )
        first, last = made("a"), made("c")
        came = await publisher.publish_many([first, made("b"), made("d")._replace(aggregateid=""), last])
        await publisher.aclose()
        assert [entries(redis_server, key)[0]["ce-id"].decode() for key in ("taken-a", "taken-c")] == [
            first.id,
            last.id,
        ]
        assert came[0] is None and came[3] is None
        assert isinstance(came[1], NotDeliveredError) and "WRONGTYPE" in str(came[1])
        assert isinstance(came[2], RefusedError)

    asyncio.run(main())


def test_nothing_of_a_message_is_in_what_redis_says() -> None:
    """R22, R28: a server without streams is named as the cause, and repeats nothing of what the message says."""

    async def main(server: RedisServer) -> None:
        publisher = RedisStreamsPublisher(server.url)
        with pytest.raises(NotDeliveredError, match=r"'orders': unknown command 'XADD'$"):
            await publisher.publish(made())
        await publisher.aclose()

    with RedisServer({"rename-command": "XADD nobody"}) as server:
        asyncio.run(main(server))


def test_a_stream_is_kept_short(redis_server: RedisServer) -> None:
    """R28: with `maxlen` the stream holds about so many entries, however many come."""

    async def main() -> None:
        publisher = RedisStreamsPublisher(redis_server.url, stream="short", maxlen=10)
        await publisher.publish_many([made(str(number)) for number in range(500)])
        await publisher.aclose()
        assert 10 <= len(entries(redis_server, "short")) < 250

    asyncio.run(main())


def test_the_documented_example_runs(durable_redis: RedisServer) -> None:
    """R28: what docs/publishers/brokers.md shows of Redis Streams works on a real server; its own assertions say so."""
    run_example("Redis Streams", ("redis://localhost:6379/0", durable_redis.url))


def test_only_what_is_acknowledged_is_delivered(durable_redis: RedisServer) -> None:
    """I9, R28: killed before it acknowledges, the server has not delivered; restarted, it gets the message again."""

    async def main() -> None:
        publisher = RedisStreamsPublisher(durable_redis.url, stream="killed")
        kept, message = made(), made()
        await publisher.publish(kept)
        freeze(int((durable_redis.directory / "server.pid").read_text()))
        trying = asyncio.create_task(publisher.publish(message))
        await asyncio.wait({trying}, timeout=0.2)
        assert not trying.done()
        await asyncio.to_thread(durable_redis.crash)
        with pytest.raises(NotDeliveredError, match="did not acknowledge"):
            await trying
        await asyncio.to_thread(durable_redis.start)
        await publisher.publish(message)
        await publisher.aclose()
        assert [entry["ce-id"].decode() for entry in entries(durable_redis, "killed")] == [kept.id, message.id]

    asyncio.run(main())


def test_replicas_have_to_have_it() -> None:
    """R28: with `replicas` a message that no replica confirms is not delivered, and one that a replica has is."""

    async def main(primary: RedisServer, replica: RedisServer) -> None:
        patient, hasty = [
            RedisStreamsPublisher(primary.url, stream="copied", replicas=1, timeout=PATIENT) for _ in range(2)
        ]
        # Redis waits no longer for replicas; its answer may take its time on a busy machine.
        hasty._timeout = 1.0
        message = made()
        await patient.publish(message)
        assert [entry["ce-id"].decode() for entry in entries(replica, "copied")] == [message.id]
        await asyncio.to_thread(replica.crash)
        with pytest.raises(NotDeliveredError, match="reached 0 of the 1 replicas"):
            await hasty.publish(made())
        await patient.aclose()
        await hasty.aclose()

    with replicated() as (primary, replica):
        asyncio.run(main(primary, replica))
