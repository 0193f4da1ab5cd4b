"""Messages to Redis Streams, by redis-py: one entry each, with CloudEvents' attributes as fields and `data` as it is.

Redis acknowledges an entry when it is in memory. What a crash or a failover then forgets was reported as delivered: run
the server with `appendonly yes` and `appendfsync always`, and ask for `replicas` where one may take over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as LateError
from redis.typing import EncodableT, FieldT

from twicesafe.core.message import Message, attributes
from twicesafe.errors import ConfigurationError, NotDeliveredError
from twicesafe.publishers.destinations import DEFAULT_TIMEOUT, Destination, naming, seconds

__all__ = ["RedisStreamsPublisher"]

_Fields: TypeAlias = dict[FieldT, EncodableT]
_SHARE_FOR_REPLICAS: Final = 0.8
"""Of the timeout, so that Redis says how many there are before the client gives up."""


class RedisStreamsPublisher:
    """A Publisher to streams of one server. Belongs to the event loop that it first publishes in.

    `server` is its URL, or a redis.asyncio client of yours, from a sentinel say, which stays yours to close. `stream`
    is one stream's key, or by default the message's aggregate type. `maxlen` keeps about so many entries in each, read
    or not. `replicas` have to have received a message before it counts as delivered.
    """

    def __init__(
        self,
        server: str | Redis,
        *,
        stream: Destination = lambda message: message.aggregatetype,
        maxlen: int | None = None,
        replicas: int = 0,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        if replicas < 0 or (maxlen is not None and maxlen < 1):
            raise ConfigurationError("replicas must be 0 or more, and maxlen 1 or more")
        self._stream = naming("stream", stream)
        self._maxlen = maxlen
        self._replicas = replicas
        self._timeout = seconds(timeout)
        self._own = isinstance(server, str)
        # Without retries of its own: whoever publishes tries again, and knows that a lost answer may leave two entries.
        self._redis = (
            Redis.from_url(
                server,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
            )
            if isinstance(server, str)
            else server
        )

    async def publish(self, message: Message) -> None:
        """Returns when the server has the entry, and as many replicas as asked for."""
        (came_of_it,) = await self.publish_many([message])
        if came_of_it is not None:
            raise came_of_it

    async def publish_many(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """In one round trip."""
        named = [_attempted(self._stream, message) for message in messages]
        pipeline = self._redis.pipeline(transaction=False)
        for message, stream in zip(messages, named, strict=True):
            if isinstance(stream, str):
                pipeline.xadd(stream, fields(message), maxlen=self._maxlen, approximate=True)
        if self._replicas:
            pipeline.wait(self._replicas, int(self._timeout * 1000 * _SHARE_FOR_REPLICAS))
        try:
            answers = list(await pipeline.execute(raise_on_error=False)) if len(pipeline) else []
        except (LostError, LateError, OSError) as error:
            return [stream if isinstance(stream, Exception) else _lost(error) for stream in named]
        reached = answers.pop() if self._replicas else 0
        came = iter(answers)
        return [
            stream if isinstance(stream, Exception) else self._came_of(stream, next(came), reached) for stream in named
        ]

    def _came_of(self, stream: str, answer: object, reached: object) -> BaseException | None:
        if isinstance(answer, ResponseError):
            # Of a command that it does not know it repeats what came with it, which is the message.
            said = str(answer).partition(", with args")[0]
            return NotDeliveredError(f"Redis did not take the message for stream {stream!r}: {said}")
        if isinstance(answer, Exception):
            return answer
        if not isinstance(reached, int) or reached < self._replicas:
            return NotDeliveredError(f"the message reached {reached} of the {self._replicas} replicas it has to reach")
        return None

    async def aclose(self) -> None:
        """Close the connections that are this publisher's own. A later publish opens others."""
        if self._own:
            await self._redis.aclose()


def fields(message: Message) -> _Fields:
    """An entry's fields: CloudEvents' attributes by their names over HTTP, as they are, and the data."""
    found: _Fields = {f"ce-{name}": text for name, text in attributes(message)}
    return {**found, "content-type": message.datacontenttype, "data": message.data}


def _attempted(stream: Callable[[Message], str], message: Message) -> str | Exception:
    try:
        return stream(message)
    except Exception as error:  # noqa: BLE001 - it is this message's own, and the others go on
        return error


def _lost(error: Exception) -> NotDeliveredError:
    lost = NotDeliveredError(f"Redis did not acknowledge the message: {error}")
    lost.__cause__ = error
    return lost
