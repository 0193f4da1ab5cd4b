"""The private PostgreSQL server that a storm restarts and crashes."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from twicesafe.storm.postgresql import PrivatePostgreSQL


def ask(url: str, sql: str) -> object:
    """The one value that `sql` answers with."""

    async def ask() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_what_is_committed_outlives_both_kinds_of_restart() -> None:
    """R42: stopped in good order or crashed, it comes back at the same address with what was committed."""
    with PrivatePostgreSQL() as server:
        url = server.url
        ask(url, "CREATE TABLE kept (n int)")
        ask(url, "INSERT INTO kept VALUES (1)")
        started = [ask(url, "SELECT pg_postmaster_start_time()")]
        for how in ("fast", "immediate"):
            server.restart(how)
            assert ask(url, "SELECT sum(n) FROM kept") == 1
            started.append(ask(url, "SELECT pg_postmaster_start_time()"))
        assert len(set(started)) == 3
    with pytest.raises(OSError):
        ask(url, "SELECT 1")


def test_nobody_else_gets_in() -> None:
    """House: it listens on 127.0.0.1 only, and wants its own random password."""
    with PrivatePostgreSQL() as server:
        password = server.url.partition(":")[2].partition(":")[2].partition("@")[0]
        assert len(password) >= 20
        assert ask(server.url, "SHOW listen_addresses") == "127.0.0.1"
        assert ask(server.url, "SHOW unix_socket_directories") == ""
        with pytest.raises(asyncpg.InvalidPasswordError):
            ask(server.url.replace(password, "wrong"), "SELECT 1")
