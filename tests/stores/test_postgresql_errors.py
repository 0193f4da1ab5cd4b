"""What PostgreSQL's errors mean, and that none of them tells a secret."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest

from tests.stores.claims import wish
from tests.stores.postgresql_kinds import (
    KIND,
    KINDS,
    as_async,
    whole,
)
from twicesafe.core.record import Effects
from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    ConfigurationError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.connecting import without_password
from twicesafe.stores.postgresql import Failure, store_error

TRANSACTIONAL = Effects.TRANSACTIONAL


# --- errors ----------------------------------------------------------------------------------------------------------


@KIND
def test_missing_tables_are_told_with_the_command_that_makes_them(place, kind) -> None:
    """R21, R22: without tables each call says which command makes them, and the password is not in it."""

    async def trial() -> None:
        plain = KINDS[kind][0](place.dsn_with().replace("twicesafe@", "twicesafe:secret@"))
        store = as_async(plain)
        try:
            with pytest.raises(SchemaError, match="twicesafe schema apply --store postgresql://") as checked:
                await store.check_schema()
            with pytest.raises(SchemaError, match="twicesafe schema apply --store postgresql://") as claimed:
                await store.claim(wish())
            async with store.transaction() as transaction:
                with pytest.raises(SchemaError):
                    await transaction.claim(wish())
            for caught in (checked, claimed):
                assert "secret" not in str(caught.value)
            await asyncio.gather(*(store.apply_schema() for _ in range(4)))
            await store.check_schema()
            await whole(place, store)
        finally:
            await store.aclose()

    asyncio.run(trial())


@pytest.mark.parametrize(
    ("sqlstate", "doubtful", "meaning"),
    [
        (None, True, AmbiguousWriteError),
        (None, False, StoreUnavailableError),
        ("08006", True, AmbiguousWriteError),
        ("57P01", True, AmbiguousWriteError),
        ("57P02", True, AmbiguousWriteError),
        ("57P01", False, StoreUnavailableError),
        ("40001", True, StoreUnavailableError),
        ("40P01", True, StoreUnavailableError),
        ("55P03", True, StoreUnavailableError),
        ("57014", True, StoreUnavailableError),
        ("53300", True, StoreUnavailableError),
        ("23505", True, CommitRefusedError),
        ("23505", False, StoreUnavailableError),
        ("P0001", True, CommitRefusedError),
        ("25P02", True, StoreUnavailableError),
        ("42P01", True, SchemaError),
        ("42703", True, SchemaError),
    ],
)
def test_an_error_is_known_by_its_number(sqlstate: str | None, doubtful: bool, meaning: type[StoreError]) -> None:
    """K: what an error means is decided by its SQLSTATE, in whatever language its message comes."""
    error = store_error(Failure(sqlstate, "Zulässige Verbindung abgerissen"), "postgresql://host/db", doubtful=doubtful)
    assert type(error) is meaning


@pytest.mark.parametrize("doubtful", [True, False])
def test_no_message_shows_a_value(doubtful: bool) -> None:
    """R22: of what a server says only the first line is told; DETAIL names the values of the row."""
    said = Failure("23505", "duplicate key value\nDETAIL:  Key (card)=(4242-4242-4242-4242) already exists.")
    error = str(store_error(said, "postgresql://host/db", doubtful=doubtful))
    assert "duplicate key value" in error
    assert "4242-4242-4242-4242" not in error


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://app:s3cret@host/db", "postgresql://app:***@host/db"),
        ("postgresql://app:a%40b:c@host:5432/db?sslmode=require", "postgresql://app:***@host:5432/db?sslmode=require"),
        ("postgresql://host/db?user=app&password=s3cret&x=1", "postgresql://host/db?user=app&password=***&x=1"),
        ("postgresql://app@host/db", "postgresql://app@host/db"),
        ("redis+sentinel://h/s?sentinel_password=s3cret", "redis+sentinel://h/s?sentinel_password=***"),
        ("rediss://h?ssl_password=s3cret&client_name=a", "rediss://h?ssl_password=***&client_name=a"),
        ("host=h user=u password=s3cret dbname=d", "host=h user=u password=*** dbname=d"),
        ("host=h password='s3 cret' dbname=d", "host=h password=*** dbname=d"),
        ("host=h password='s3 cret", "host=h password=***"),
        (r"host=h password=s3\ cret dbname=d", "host=h password=*** dbname=d"),
        ("host=h password=s3&cre't dbname=d", "host=h password=*** dbname=d"),
        ("host=h password=s3://cret dbname=d", "host=h password=*** dbname=d"),
        ("postgresql://app:s3@cret@host/db", "postgresql://app:***@host/db"),
        ("mysql://app:s3/cr?e#t@host/db", "mysql://app:***@host/db"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
    ],
)
def test_no_message_shows_a_password(dsn: str, shown: str) -> None:
    """R22: a DSN is shown without its password, whatever its form."""
    assert without_password(dsn) == shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_without_an_end_is_refused(kind: str) -> None:
    """C8: a time-out of nothing, or of no kind of duration, is refused where it is set."""
    for timeout in (timedelta(0), timedelta(seconds=-1), 30, None):
        with pytest.raises(ConfigurationError):
            KINDS[kind][0]("postgresql://nobody@127.0.0.1:1/x", timeout=timeout)


@KIND
def test_a_store_is_closed_twice_without_harm(place, kind) -> None:
    """C8: closing gives back every connection, and closing again does nothing."""
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"

    async def trial() -> None:
        plain = place.store(settings={"application_name": place.name})
        store = as_async(plain)
        await store.apply_schema()
        await whole(place, store)
        assert place.value(sessions, place.name) > 0
        for _ in range(2):
            if kind == "psycopg":
                plain.close()
            else:
                await plain.aclose()
        for _ in range(1000):
            if not await asyncio.to_thread(place.value, sessions, place.name):
                return
        pytest.fail("a session outlives its store")

    asyncio.run(trial())


@pytest.mark.parametrize("dsn", ["app:hunter2/@h/db", "app:hunter?2=@h/db", "[::1/db", "127.0.0.1:99999/db"])
def test_an_address_that_cannot_be_read_is_a_wrong_setting(dsn: str) -> None:
    """R22, R42: the error says how addresses are written, and repeats no part of a password."""

    async def trial() -> None:
        async with aclosing(AsyncpgStore(f"postgresql://{dsn}")) as store:
            with pytest.raises(ConfigurationError, match="%2F") as told:
                await store.now()
            assert "hunter" not in str(told.value)

    asyncio.run(trial())
