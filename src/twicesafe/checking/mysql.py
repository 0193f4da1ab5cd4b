"""MySQL's throw-away places: a database, by whichever driver there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from twicesafe.checking.databases import TIMEOUT, Admin, Kind, Loop
from twicesafe.stores.mysql import address


def _mysql(url: str) -> Admin:
    try:
        import pymysql
    except ModuleNotFoundError:
        return _AsyncmyAdmin(url)
    return _PymysqlAdmin(pymysql.connect(**_mysql_settings(url), autocommit=True, connect_timeout=TIMEOUT))


def _mysql_settings(url: str) -> dict[str, Any]:
    where = address(url)
    settings: dict[str, Any] = {"host": where.host, "port": where.port, "user": where.user, "password": where.password}
    if where.unix_socket is not None:
        settings["unix_socket"] = where.unix_socket
    if where.ca is not None:
        settings["ssl"] = {"ca": where.ca}
    return settings


def _mysql_url(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


class _PymysqlAdmin:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def close(self) -> None:
        self._connection.close()


class _AsyncmyAdmin:
    def __init__(self, url: str) -> None:
        import asyncmy

        self._loop = Loop()
        try:
            self._connection = self._loop.wait(self._opened(asyncmy.connect, _mysql_settings(url)))
        except BaseException:
            self._loop.stop()
            raise

    async def _opened(self, connect: Callable[..., Any], settings: dict[str, Any]) -> Any:
        return await connect(**settings, autocommit=True, connect_timeout=TIMEOUT)

    async def _execute(self, statement: str) -> Sequence[Sequence[Any]]:
        async with self._connection.cursor() as cursor:
            await cursor.execute(statement)
            rows: Sequence[Sequence[Any]] = await cursor.fetchall()
            return rows

    def execute(self, statement: str) -> Sequence[Sequence[Any]]:
        return self._loop.wait(self._execute(statement))

    def close(self) -> None:
        with suppress(Exception):
            self._loop.wait(self._connection.ensure_closed())
        self._loop.stop()


MYSQL: Final = Kind("database", "CREATE DATABASE {}", "DROP DATABASE {}", _mysql, _mysql_url)
