"""redis-py, of which connections and the protocol are used: where a server is, how to talk to it, what it refuses.

Its clients are not used: they answer a lost connection by sending the command once more, which for a release would hide
that it may have been done, and they lend each task a connection of its own.
"""

# ruff: noqa: SLF001 - redis-py has no public way to a connection's socket
from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from hiredis import Reader
from redis import RedisError
from redis import connection as blocking
from redis.asyncio import connection as asynchronous
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, ResponseError

from twicesafe.errors import ConfigurationError

__all__ = [
    "FAILURES", "NOT_YET", "Address", "Kind", "Node", "Refusal", "address_of", "key_slot", "let_go", "refusal",
    "taken_over",
]  # fmt: skip

FAILURES: Final = (RedisError, OSError)
"""What a connection raises. redis-py's own time-outs and broken connections are RedisErrors."""

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379

_OPTIONS: Final = frozenset({"client_name", "socket_keepalive"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})
_TLS: Final = "ssl_"
_FORMS: Final = (
    "redis://[user:password@]host[:port][/database], rediss:// for TLS, "
    "redis+sentinel://[user:password@]host[:port],.../service[/database], or redis+cluster://[user:password@]host:port,..."
)


class Kind(Enum):
    """How a server is found."""

    SINGLE = auto()
    SENTINEL = auto()
    CLUSTER = auto()


class Node(NamedTuple):
    """One server."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, taken apart. `shown` is the URL as messages may have it."""

    kind: Kind
    nodes: tuple[Node, ...]
    service: str
    tls: bool
    options: dict[str, Any] = field(repr=False)
    sentinel_options: dict[str, Any] = field(repr=False)
    shown: str

    def connection(self, node: Node, timeout: float) -> Any:
        """A blocking connection to `node`, which connects when it is told to."""
        kind = blocking.SSLConnection if self.tls else blocking.Connection
        return kind(host=node.host, port=node.port, **_settings(timeout, timeout), **self._options(node))

    def async_connection(self, node: Node, timeout: float) -> Any:
        """The same for asyncio. Whoever uses it looks after its time-outs, but for those of connecting."""
        kind = asynchronous.SSLConnection if self.tls else asynchronous.Connection
        return kind(host=node.host, port=node.port, **_settings(None, timeout), **self._options(node))

    def _options(self, node: Node) -> dict[str, Any]:
        of_a_sentinel = self.kind is Kind.SENTINEL and node in self.nodes
        return self.sentinel_options if of_a_sentinel else self.options


def _settings(timeout: float | None, connect_timeout: float) -> dict[str, Any]:
    return {"socket_timeout": timeout, "socket_connect_timeout": connect_timeout, "protocol": 2}


def address_of(url: str) -> Address:
    """ConfigurationError for one that is none. No message repeats a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # What it says may be part of a password.
        raise ConfigurationError(f"a Redis store's address has one of the forms {_FORMS}") from None
    scheme, _, way = parts.scheme.partition("+")
    kind = {"": Kind.SINGLE, "sentinel": Kind.SENTINEL, "cluster": Kind.CLUSTER}.get(way)
    if scheme not in ("redis", "rediss") or kind is None:
        raise ConfigurationError(f"a Redis store's address has one of the forms {_FORMS}")
    credentials, at, hosts = parts.netloc.rpartition("@")
    default = DEFAULT_SENTINEL_PORT if kind is Kind.SENTINEL else DEFAULT_PORT
    nodes = tuple([_node(host, default) for host in hosts.split(",")])
    path = [unquote(part) for part in parts.path.split("/") if part]
    service = path.pop(0) if kind is Kind.SENTINEL and path else ""
    if (kind is Kind.SENTINEL and not service) or len(path) > 1 or (path and not path[0].isdecimal()):
        raise ConfigurationError(f"a Redis store's address has one of the forms {_FORMS}")
    if kind is Kind.CLUSTER and path not in ([], ["0"]):
        raise ConfigurationError("a Redis Cluster has one database, 0: name none")
    if kind is Kind.SINGLE and len(nodes) > 1:
        raise ConfigurationError("several servers are a redis+cluster:// or sentinels (redis+sentinel://)")
    options, sentinel_options = _options(parts.query, scheme == "rediss", kind)
    user, colon, password = credentials.partition(":")
    if user:
        options["username"] = unquote(user)
    if colon:
        options["password"] = unquote(password)
    if path:
        options["db"] = int(path[0])
    shown = f"{parts.scheme}://{user}{':***' if colon else ''}{at}{hosts}{parts.path}"
    address = Address(kind, nodes, service, scheme == "rediss", options, sentinel_options, shown)
    try:
        address.connection(Node("localhost", DEFAULT_PORT), 1.0)
    except (RedisError, TypeError, ValueError) as error:
        raise ConfigurationError(f"the address {shown} has an option that cannot be: {error}") from error
    return address


def _node(text: str, default: int) -> Node:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default)
    if not host or not port.isdecimal():
        raise ConfigurationError(f"a Redis store's address has one of the forms {_FORMS}")
    return Node(host.strip("[]"), int(port))


def _options(query: str, tls: bool, kind: Kind) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: FBT001
    given = dict(parse_qsl(query, keep_blank_values=True))
    known = _OPTIONS | (_SENTINEL_OPTIONS if kind is Kind.SENTINEL else frozenset())
    for name in given:
        if name not in known and not (tls and name.startswith(_TLS)):
            if "@" in query:
                raise ConfigurationError("in the password of a Redis store's address a question mark is written %3F")
            raise ConfigurationError(
                f"a Redis store's address takes no option {name!r}: there are {', '.join(sorted(known))}, with "
                "rediss:// also redis-py's ssl_..."
            )
    of_sentinels = {name.removeprefix("sentinel_"): given.pop(name) for name in _SENTINEL_OPTIONS if name in given}
    try:
        options: dict[str, Any] = dict(asynchronous.parse_url(f"redis://localhost?{urlencode(given)}"))
    except ValueError as error:
        raise ConfigurationError(f"an option of the Redis store's address cannot be: {error}") from error
    options.pop("host", None)
    options.setdefault("client_name", "twicesafe")
    tls_options = {name: value for name, value in options.items() if name.startswith(_TLS)}
    return options, {**tls_options, **of_sentinels, "client_name": options["client_name"]}


class Refusal(NamedTuple):
    """What a server said instead of doing it. `word` is the first of its message, which programs go by."""

    word: str
    message: str
    slot: int = -1
    node: Node | None = None
    """Where MOVED and ASK point to. An empty host is the one that was asked."""


def refusal(error: BaseException) -> Refusal | None:
    """What the server said; None where the connection failed and it said nothing."""
    word = getattr(error, "status_code", None)
    text = str(error)
    if isinstance(error, AskError):
        node = Node(error.host, error.port)
        return Refusal("MOVED" if isinstance(error, MovedError) else "ASK", text, error.slot_id, node)
    if word:
        return Refusal(str(word), f"{word} {text}")
    if isinstance(error, ResponseError):
        return Refusal(text.partition(" ")[0], text)
    return None


NOT_YET: Final = object()
"""What a Reader gets where the answer is not whole."""


def taken_over(connection: Any, protocol: asyncio.Protocol) -> tuple[asyncio.Transport, Reader]:
    """What a connected asyncio connection is written to and read by, in the hands of `protocol` from now on.

    A read_response() for each answer, and the task that awaits it, take as long as all that is done with the answer.
    redis-py shows its transport by no public name.
    """
    transport = connection._writer.transport
    transport.set_protocol(protocol)
    return transport, Reader(replyError=connection._parser.parse_error, notEnoughData=NOT_YET)


def let_go(connection: Any) -> None:
    """Close what was taken over, without a word to the server."""
    if connection.is_connected:
        connection._writer.transport.abort()
        connection._close()
