"""Places for stores of every kind on PostgreSQL, and ways to do in them what handlers do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from sqlalchemy import Column, Integer, MetaData, String, Table
from sqlalchemy.orm import registry

from tests.servers.cutting import CuttingProxy
from tests.servers.postgresql import PostgresqlServer
from tests.stores import django_kinds, joined_kinds, postgresql_kinds
from tests.stores.postgresql_kinds import Place
from twicesafe.core.record import Effects
from twicesafe.stores.contract import AsyncStore, AsyncTransaction
from twicesafe.testing.threads import TransactionInThread

TRANSACTIONAL = Effects.TRANSACTIONAL
SESSIONS = ["SQLAlchemy, psycopg", "SQLAlchemy, asyncpg"]
CORE = ["SQLAlchemy Core, psycopg", "SQLAlchemy Core, asyncpg"]
DJANGO = list(django_kinds.KINDS)
NATIVE = list(postgresql_kinds.KINDS)
OF_SESSIONS = pytest.mark.parametrize("kind", SESSIONS)
OF_SQLALCHEMY = pytest.mark.parametrize("kind", [*SESSIONS, *CORE])
OF_DJANGO = pytest.mark.parametrize("kind", DJANGO)
JOINED = pytest.mark.parametrize("kind", [*SESSIONS, *CORE, *DJANGO])
EVERY = pytest.mark.parametrize("kind", [*NATIVE, *SESSIONS, *CORE, *DJANGO])


class Effect:
    """A row of the application's own, as an object."""

    def __init__(self, name: str) -> None:
        self.name = name


registry().map_imperatively(
    Effect, Table("effects", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))
)


def place_of(server: PostgresqlServer, kind: str) -> Place:
    """A place for stores of any kind."""
    if kind in NATIVE:
        return postgresql_kinds.new_place(server, kind)
    return (django_kinds if kind in DJANGO else joined_kinds).new_place(server, kind)


async def call(transaction: AsyncTransaction, work: Any, *arguments: Any) -> Any:
    """Call blocking code as a handler would: in the thread of a blocking session, or in that of an asynchronous one."""
    shown = transaction.connection
    if isinstance(transaction, TransactionInThread):
        return await transaction.run(work, shown, *arguments)
    if hasattr(shown, "run_sync"):
        return await shown.run_sync(work, *arguments)
    return await sync_to_async(work)(shown, *arguments)


async def sql_in(place: Place, transaction: AsyncTransaction, *queries: str) -> Any:
    """Run these as a handler would."""
    value = None
    for query in queries:
        value = await place.sql_in(transaction, query)
    return value


@asynccontextmanager
async def proxied(place: Place, server: PostgresqlServer) -> AsyncIterator[tuple[CuttingProxy, AsyncStore]]:
    """A store that is reached through a proxy."""
    async with CuttingProxy(server.port) as proxy, place.opened(port=proxy.port) as store:
        yield proxy, store
