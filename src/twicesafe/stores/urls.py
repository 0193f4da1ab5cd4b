"""Stores by their address, for command lines and settings. A driver is imported only when its address is used.

memory:                             this process's memory
sqlite:///records.db                a file, from the working directory; four slashes begin an absolute path
postgresql://user@host/database     psycopg where calls block, asyncpg under asyncio
mysql://user@host/database          MySQL and MariaDB: PyMySQL where calls block, asyncmy under asyncio
redis://host:6379/0                 rediss:// by TLS; +sentinel://host,host/service and +cluster://host,host as well
dynamodb://region/table             boto3 where calls block, aiobotocore under asyncio; ?endpoint=... for emulators
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from twicesafe.errors import ConfigurationError
from twicesafe.stores.contract import AsyncStore, Store


class Kind(NamedTuple):
    """One kind of address. Both functions are given the whole of it, and what its store takes besides."""

    form: str
    """As messages show it."""
    blocking: Callable[..., Store]
    asynchronous: Callable[..., AsyncStore]


def open_store(url: str, **options: Any) -> Store:
    """A blocking store. ConfigurationError for an address of another kind, or a driver that is not installed.

    `options` go to the store as they are.
    """
    return kind_of(url).blocking(url, **options)


def open_async_store(url: str, **options: Any) -> AsyncStore:
    """A store for asyncio. As `open_store`."""
    return kind_of(url).asynchronous(url, **options)


def kind_of(url: str) -> Kind:
    """What an address begins with decides. No message repeats the address: it may hold a password."""
    scheme, colon, _ = url.partition(":")
    kind = KINDS.get(scheme) if colon else None
    if kind is None:
        forms = list(dict.fromkeys([one.form for one in KINDS.values()]))
        raise ConfigurationError(f"a store's address begins with one of {', '.join(forms[:-1])} and {forms[-1]}")
    return kind


# --- memory ----------------------------------------------------------------------------------------------------------


def _memory(url: str, **options: Any) -> Store:
    _check_memory(url)
    from twicesafe.stores.memory import MemoryStore

    return MemoryStore(**options)


def _async_memory(url: str, **options: Any) -> AsyncStore:
    _check_memory(url)
    from twicesafe.stores.memory import AsyncMemoryStore

    return AsyncMemoryStore(**options)


def _check_memory(url: str) -> None:
    if url not in ("memory:", "memory://"):
        raise ConfigurationError("memory: has nothing after the colon")


# --- SQLite ----------------------------------------------------------------------------------------------------------


def _sqlite(url: str, **options: Any) -> Store:
    from twicesafe.stores.sqlite import SqliteStore

    return SqliteStore(sqlite_path(url), **options)


def _async_sqlite(url: str, **options: Any) -> AsyncStore:
    from twicesafe.stores.sqlite import AsyncSqliteStore

    return AsyncSqliteStore(sqlite_path(url), **options)


def sqlite_path(url: str) -> str:
    """The path in a SQLite store's address."""
    rest = url.partition(":")[2]
    if not rest.startswith("///") or len(rest) == 3:
        raise ConfigurationError(
            "a SQLite store's address is sqlite:///relative/path or sqlite:////absolute/path, without a host"
        )
    if "?" in rest:
        raise ConfigurationError("a SQLite store's address takes no options after a question mark")
    return rest[3:]


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def _postgresql(url: str, **options: Any) -> Store:
    with _needing("psycopg"):
        from twicesafe.stores.psycopg import PsycopgStore
    return PsycopgStore(url, **options)


def _async_postgresql(url: str, **options: Any) -> AsyncStore:
    with _needing("asyncpg"):
        from twicesafe.stores.asyncpg import AsyncpgStore
    return AsyncpgStore(url, **options)


# --- MySQL -----------------------------------------------------------------------------------------------------------


def _mysql(url: str, **options: Any) -> Store:
    with _needing("pymysql"):
        from twicesafe.stores.pymysql import PymysqlStore
    return PymysqlStore(url, **options)


def _async_mysql(url: str, **options: Any) -> AsyncStore:
    with _needing("asyncmy"):
        from twicesafe.stores.asyncmy import AsyncmyStore
    return AsyncmyStore(url, **options)


# --- DynamoDB --------------------------------------------------------------------------------------------------------


def _dynamodb(url: str, **options: Any) -> Store:
    table, where = dynamodb_table(url)
    with _needing("dynamodb"):
        from twicesafe.stores.dynamodb import DynamodbStore
    return DynamodbStore(table, **where, **options)


def _async_dynamodb(url: str, **options: Any) -> AsyncStore:
    table, where = dynamodb_table(url)
    with _needing("dynamodb"):
        from twicesafe.stores.dynamodb_async import AsyncDynamodbStore
    return AsyncDynamodbStore(table, **where, **options)


def dynamodb_table(url: str) -> tuple[str, dict[str, Any]]:
    """The table in a DynamoDB store's address, and where it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # What it says may be part of a secret that somebody took for its place.
        raise ConfigurationError("a DynamoDB store's address is dynamodb://region/table") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint = query.pop("endpoint", None)
    table = parts.path.removeprefix("/")
    if not parts.netloc or "@" in parts.netloc or not table or "/" in table or query or endpoint == "":
        raise ConfigurationError(
            "a DynamoDB store's address is dynamodb://region/table, with ?endpoint=http://host:port for an emulator; "
            "credentials come from where AWS's libraries look for them"
        )
    return table, {"region": parts.netloc, "endpoint": endpoint}


# --- Redis -----------------------------------------------------------------------------------------------------------


def _redis(url: str, **options: Any) -> Store:
    with _needing("redis"):
        from twicesafe.stores.redis import RedisStore
    return RedisStore(url, **options)


def _async_redis(url: str, **options: Any) -> AsyncStore:
    with _needing("redis"):
        from twicesafe.stores.redis import AsyncRedisStore
    return AsyncRedisStore(url, **options)


# --- all of them -----------------------------------------------------------------------------------------------------


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Around a driver's import: say which extra brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"this address needs the package {error.name}, which is not installed: pip install 'twicesafe[{extra}]'"
        ) from error


_POSTGRESQL: Final = Kind("postgresql://user@host/database", _postgresql, _async_postgresql)
_REDIS: Final = Kind("redis://host:port/0", _redis, _async_redis)

KINDS: Final[dict[str, Kind]] = {
    "memory": Kind("memory:", _memory, _async_memory),
    "sqlite": Kind("sqlite:///path", _sqlite, _async_sqlite),
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mysql": Kind("mysql://user@host/database", _mysql, _async_mysql),
    **{f"{redis}{way}": _REDIS for redis in ("redis", "rediss") for way in ("", "+sentinel", "+cluster")},
    "dynamodb": Kind("dynamodb://region/table", _dynamodb, _async_dynamodb),
}
"""By scheme."""
