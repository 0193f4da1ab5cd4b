"""PostgreSQL's throw-away places: a schema, by whichever driver there is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from twicesafe.checking.databases import TIMEOUT, Admin, Kind, Loop


def _postgresql(url: str) -> Admin:
    try:
        import psycopg
    except ModuleNotFoundError:
        return _AsyncpgAdmin(url)
    return _PsycopgAdmin(psycopg.connect(url, autocommit=True, connect_timeout=TIMEOUT))


def _postgresql_url(url: str, name: str) -> str:
    """The schema comes first where names are looked up, whatever else the address sets."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query["options"] = f"{query.get('options', '')} -c search_path={name}".strip()
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))


class _PsycopgAdmin:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        cursor = self._connection.execute(statement)
        return cursor.fetchall() if cursor.description else ()

    def close(self) -> None:
        self._connection.close()


class _AsyncpgAdmin:
    def __init__(self, url: str) -> None:
        import asyncpg

        self._loop = Loop()
        try:
            self._connection = self._loop.wait(asyncpg.connect(url, timeout=TIMEOUT))
        except BaseException:
            self._loop.stop()
            raise

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        rows: Any = self._loop.wait(self._connection.fetch(statement))
        return [tuple(row) for row in rows]

    def close(self) -> None:
        with suppress(Exception):
            self._loop.wait(self._connection.close())
        self._loop.stop()


POSTGRESQL: Final = Kind("schema", "CREATE SCHEMA {}", "DROP SCHEMA {} CASCADE", _postgresql, _postgresql_url)
