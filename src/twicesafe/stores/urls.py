"""Stores by their address, for command lines and settings. A driver is imported only when its address is used.

memory:                             this process's memory
sqlite:///records.db                a file, from the working directory; four slashes begin an absolute path
postgresql://user@host/database     psycopg where calls block, asyncpg under asyncio
"""

from __future__ import annotations

from typing import Final

from twicesafe.errors import ConfigurationError
from twicesafe.stores.contract import AsyncStore, Store

KNOWN: Final = "memory:, sqlite:///path and postgresql://user@host/database"


def open_store(url: str) -> Store:
    """A blocking store. ConfigurationError for an address of another kind, or a driver that is not installed."""
    scheme, rest = _split(url)
    if scheme == "memory":
        from twicesafe.stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from twicesafe.stores.sqlite import SqliteStore

        return SqliteStore(_path(rest))
    try:
        from twicesafe.stores.psycopg import PsycopgStore
    except ModuleNotFoundError as error:
        raise _not_installed(error, "psycopg") from error
    return PsycopgStore(url)


def open_async_store(url: str) -> AsyncStore:
    """A store for asyncio. ConfigurationError as for `open_store`."""
    scheme, rest = _split(url)
    if scheme == "memory":
        from twicesafe.stores.memory import AsyncMemoryStore

        return AsyncMemoryStore()
    if scheme == "sqlite":
        from twicesafe.stores.sqlite import AsyncSqliteStore

        return AsyncSqliteStore(_path(rest))
    try:
        from twicesafe.stores.asyncpg import AsyncpgStore
    except ModuleNotFoundError as error:
        raise _not_installed(error, "asyncpg") from error
    return AsyncpgStore(url)


def _split(url: str) -> tuple[str, str]:
    """Scheme and rest. No message repeats the address: it may hold a password."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in ("memory", "sqlite", "postgresql", "postgres"):
        raise ConfigurationError(f"a store's address begins with one of {KNOWN}")
    if scheme == "memory" and rest not in ("", "//"):
        raise ConfigurationError("memory: has nothing after the colon")
    return scheme, rest


def _path(rest: str) -> str:
    if not rest.startswith("///") or len(rest) == 3:
        raise ConfigurationError(
            "a SQLite store's address is sqlite:///relative/path or sqlite:////absolute/path, without a host"
        )
    if "?" in rest:
        raise ConfigurationError("a SQLite store's address takes no options after a question mark")
    return rest[3:]


def _not_installed(error: ModuleNotFoundError, extra: str) -> ConfigurationError:
    return ConfigurationError(
        f"this address needs the package {error.name}, which is not installed: pip install 'twicesafe[{extra}]'"
    )
