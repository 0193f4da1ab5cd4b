"""What errors of MySQL mean for a write, and what is asked again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from datetime import timedelta
from typing import Any

import asyncmy.errors
import pymysql
import pytest

from tests.stores.claims import ANSWER, BODY, KEY, wish
from tests.stores.mysql_kinds import KIND, as_async, won
from twicesafe.core.claims import Claimed
from twicesafe.core.record import Effects
from twicesafe.errors import AmbiguousWriteError, ConfigurationError, SchemaError, StoreUnavailableError
from twicesafe.stores.asyncmy import AsyncmyStore
from twicesafe.stores.mysql import AGAIN, DEADLOCK, LOCK_WAIT, ROUNDS, Failure, Reply, address, failure_of, store_error
from twicesafe.stores.pymysql import PymysqlStore
from twicesafe.stores.steps import Statement
from twicesafe.storm.frozen import freeze

TRANSACTIONAL = Effects.TRANSACTIONAL

LOOK = Statement("look", "SELECT 1", (), writes=False, returns=True)
WRITE = Statement("complete", "UPDATE", (), writes=True, returns=False)
COMMIT = Statement("commit", "COMMIT", (), writes=False, returns=False)


def meaning(code: object, *statements: Statement, in_transaction: bool = False) -> type[Exception]:
    """Of an error of this number, while these statements were under way."""
    failure = failure_of(code, "said so")
    return type(store_error(failure, Reply(statements), "mysql://...", in_transaction=in_transaction))


@pytest.mark.parametrize("code", [2006, 2013, 2055, 1053, 1927, 3169, 4031, 1317, 1180, 0, None, "no number"])
def test_a_lost_connection_leaves_writes_in_doubt_and_nothing_else(code: object) -> None:
    """R23, K: with the server gone a write may stand, in a transaction only where COMMIT was asked for."""
    assert meaning(code, WRITE) is AmbiguousWriteError
    assert meaning(code, LOOK) is StoreUnavailableError
    assert meaning(code, WRITE, in_transaction=True) is StoreUnavailableError
    assert meaning(code, WRITE, COMMIT, in_transaction=True) is AmbiguousWriteError


@pytest.mark.parametrize("code", [DEADLOCK, LOCK_WAIT, 1020, 1040, 1290, 1836, 3024])
def test_a_refusal_changed_nothing(code: int) -> None:
    """R23: what a living server refuses is no matter of doubt, COMMIT included."""
    assert meaning(code, WRITE) is StoreUnavailableError
    assert meaning(code, WRITE, COMMIT, in_transaction=True) is StoreUnavailableError


@pytest.mark.parametrize(("code", "words"), [(1146, "missing"), (1049, "missing"), (1054, "of another version")])
def test_tables_that_are_not_there_are_named_with_their_remedy(code: int, words: str) -> None:
    """R42: a missing table or column says which command makes it."""
    error = store_error(Failure(code, ""), Reply((WRITE,)), "mysql://app@host/shop", in_transaction=False)
    assert isinstance(error, SchemaError)
    assert words in str(error)
    assert "twicesafe schema apply --store mysql://app@host/shop" in str(error)


def failing(plain: Any, kind: str, code: int, times: int) -> list[int]:
    """Have the store's connections answer so many times with this error of the driver's; who was asked is told."""
    error = (pymysql if kind == "pymysql" else asyncmy.errors).OperationalError(code, "so it goes")
    send = plain._connections.send
    asked: list[int] = []

    def fails(reply: Reply) -> bool:
        if not reply.statements[-1].writes and reply.statements[-1].name != "commit":
            return False
        asked.append(code)
        return len(asked) <= times

    def blocking(connection: Any, reply: Reply) -> None:
        if fails(reply):
            raise error
        send(connection, reply)

    async def asynchronous(connection: Any, reply: Reply) -> None:
        if fails(reply):
            raise error
        await send(connection, reply)

    plain._connections.send = blocking if kind == "pymysql" else asynchronous
    return asked


@KIND
@pytest.mark.parametrize(("code", "often"), [(DEADLOCK, 3), (LOCK_WAIT, 1)])
def test_what_the_server_asks_to_be_asked_again_is_asked_again(mysql_place, kind, code, often) -> None:
    """K: a leased claim that was a deadlock's victim, or waited too long, is made all the same, once."""

    async def trial() -> None:
        plain = mysql_place.store()
        store = as_async(plain)
        await store.apply_schema()
        asked = failing(plain, kind, code, often)
        found = await store.claim(wish())
        assert isinstance(found, Claimed)
        assert len(asked) == often + 1
        assert mysql_place.value("SELECT count(*) FROM twicesafe_records") == 1
        await store.aclose()

    asyncio.run(trial())


@KIND
@pytest.mark.parametrize("code", AGAIN)
def test_asking_again_comes_to_an_end(mysql_place, kind, code) -> None:
    """C8, K: what goes on failing is told, before anybody is tired of waiting."""

    async def trial() -> None:
        plain = mysql_place.store()
        store = as_async(plain)
        await store.apply_schema()
        asked = failing(plain, kind, code, 1000)
        with pytest.raises(StoreUnavailableError, match=str(code)):
            await store.claim(wish())
        assert len(asked) == ROUNDS // AGAIN[code]
        await store.aclose()

    asyncio.run(trial())


def test_an_option_without_a_value_is_refused() -> None:
    """R42: ssl_ca with nothing behind it, from a setting that is not set, does not mean a connection without TLS."""
    for wrong in ("ssl_ca=", "unix_socket=", "ssl_ca=&unix_socket=/run/socket"):
        with pytest.raises(ConfigurationError, match="empty"):
            address(f"mysql://app@host/shop?{wrong}")


def test_a_password_is_shown_to_nobody() -> None:
    """R22: an address that is wrong in any part is refused without being repeated."""
    for wrong in ("mysql://app:hunter2@host:port/shop", "mysql://app:hunter2@host/", "mysql://app:hunter2@host/a?x=1"):
        with pytest.raises(ConfigurationError) as refused:
            address(wrong)
        assert "hunter2" not in str(refused.value)


@KIND
def test_an_address_that_leads_nowhere_is_unavailable(mysql_place, kind) -> None:
    """R22, R23: who is not let in, or finds nobody, is told so without a word of passwords."""

    async def trial() -> None:
        base = mysql_place.server.dsn(mysql_place.name)
        for url in (base.replace("twicesafe@", "nobody:hunter2@"), base.replace(mysql_place.name, "nowhere")):
            store = as_async(type(mysql_place.store())(url))
            with pytest.raises((StoreUnavailableError, SchemaError)) as refused:
                await won(store)
            assert "hunter2" not in str(refused.value)
            await store.aclose()

    asyncio.run(trial())


@pytest.mark.parametrize("store_of", [AsyncmyStore, PymysqlStore])
def test_who_takes_a_connection_and_says_nothing_is_unavailable(store_of) -> None:
    """C8: a server that is frozen is given up when the store's time is over, also before it has said a word."""

    async def trial() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            store = as_async(store_of(f"mysql://app@127.0.0.1:{port}/shop", timeout=timedelta(milliseconds=50)))
            with pytest.raises(StoreUnavailableError):
                await won(store)
            await store.aclose()

    asyncio.run(trial())


@KIND
def test_who_takes_no_more_of_a_large_answer_leaves_it_in_doubt(mysql_place, kind) -> None:
    """C8, R14: a server that freezes in the middle of an answer is given up, and the record is read when it is back."""

    async def trial() -> None:
        store = as_async(mysql_place.store(timeout=timedelta(seconds=1)))
        await store.apply_schema()
        own = await won(store)
        large = ANSWER._replace(body=bytes(7_500_000))
        freeze(mysql_place.server.pid)
        try:
            with pytest.raises(AmbiguousWriteError):
                await store.complete(own, large, KEY, BODY)
        finally:
            os.kill(mysql_place.server.pid, signal.SIGCONT)
        await store.complete(own, large, KEY, BODY)
        record = (await store.read(own.digest)).record
        assert record is not None
        assert record.response == large
        await store.aclose()

    asyncio.run(trial())


@KIND
def test_a_read_has_no_more_patience_than_its_store(mysql_place, kind) -> None:
    """R23, B6: with a time-out below 5 s a read says that a transaction is under way, and costs no connection."""

    async def trial() -> None:
        store = as_async(mysql_place.store(timeout=timedelta(seconds=2)))
        await store.apply_schema()
        async with store.transaction() as transaction:
            own = await won(transaction, effects=TRANSACTIONAL)
            with pytest.raises(StoreUnavailableError, match="under way"):
                await store.read(own.digest)
            await transaction.complete(own, ANSWER, KEY, BODY)
        assert (await store.read(own.digest)).record.response == ANSWER
        await store.aclose()

    asyncio.run(trial())
