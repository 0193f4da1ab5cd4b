"""Stores behind PgBouncer in transaction mode: each place is a role of its own, for a pooler passes no settings on."""

from __future__ import annotations

from typing import Any

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgresqlServer
from tests.stores import joined_kinds, postgresql_kinds
from tests.stores.joined_kinds import JoinedPlace
from tests.stores.postgresql_kinds import Place

NATIVE = postgresql_kinds.KINDS
JOINED = ("SQLAlchemy, psycopg", "SQLAlchemy, asyncpg")


def new_place(server: PostgresqlServer, pooler: PgBouncer, kind: str, **role: str) -> Place:
    """A new one; `role` are settings of its role."""
    made = (joined_kinds if kind in JOINED else postgresql_kinds).new_place(server, kind)
    made.admin.execute(f"CREATE ROLE {made.name} LOGIN SUPERUSER")
    for name, value in {"search_path": made.name, **role}.items():
        made.admin.execute(f"ALTER ROLE {made.name} SET {name} = '{value}'")
    cls = PooledJoined if kind in JOINED else Pooled
    place = cls(made.admin, made.name, made.dsn.replace("twicesafe@", f"{made.name}@"), made.kind)
    place.pooler = pooler
    return place


class Pooled(Place):
    """Native stores."""

    pooler: PgBouncer

    def store(self, **options: Any) -> Any:
        """A store of the kind under test, by way of the pooler."""
        return super().store(port=self.pooler.port, **{"prepared": False, **options})


class PooledJoined(JoinedPlace):
    """Stores of SQLAlchemy."""

    pooler: PgBouncer

    def store(self, **options: Any) -> Any:
        """A store of the kind under test, by way of the pooler."""
        if "asyncpg" in self.kind:
            settings: dict[str, Any] = {
                "server_settings": {},
                "prepared_statement_cache_size": 0,
                "statement_cache_size": 0,
                "prepared_statement_name_func": str,
            }
        else:
            settings = {"prepare_threshold": None}
        return super().store(port=self.pooler.port, connect=settings, **options)
