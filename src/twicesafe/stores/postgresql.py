"""What both PostgreSQL drivers share: the statements, and what an error means for a write.

SQLSTATE decides, never a message: a server may speak any language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from twicesafe.errors import (
    AmbiguousWriteError,
    CommitRefusedError,
    ConfigurationError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.connecting import without_password
from twicesafe.stores.sql.daily import DailyQueries
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries, inlined
from twicesafe.stores.steps import Batch, Rows, Statement, Step

LONGEST_DAILY: Final = timedelta(days=400)
"""A partition for each day: planning a statement takes longer with every hundred of them."""

AGAIN: Final = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock: the server has rolled back and asks to be asked again. In the leased way that is
done at once; in a transaction it is the handler's work that would have to run again, so its caller is told."""
ROUNDS: Final = 16

ENDS: Final = frozenset({"commit", "rollback"})

_SETTLING: Final = frozenset({"complete", "release", "hold", "record", "settle", "settle_not_done"})
"""Those that return {settled}."""

CHANNEL: Final = "twicesafe_settled"
"""On which those who wait for somebody else's key are told."""

_CONNECTION_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
"""Connection exceptions; server shut down, crashed or not up yet; session ended for idling."""
_NO_TABLES: Final = frozenset({"42P01", "3F000"})
_CONSTRAINTS: Final = ("23", "P0")
"""Integrity constraints, and what constraint triggers raise; at a COMMIT, deferred ones of the application's own."""
_WITH_VALUES: Final = ("22", "P0")
"""What cannot be a value of its type, and what triggers raise: their first line may hold values, too."""
_OTHER_TABLES: Final = frozenset({"42703"})
_OTHER_SESSION: Final = frozenset({"26000", "42P05"})
"""A prepared statement is not there, or is there already: somebody else had this session in between."""

_DAYS = re.compile(r"([?&])daily_bodies=([^&]*)")


def queries(placeholder: Placeholder, now_sql: str | None, daily_bodies: timedelta | None = None) -> Queries:
    """The statements, in a driver's own style."""
    if daily_bodies is None:
        return Queries(Dialect.POSTGRESQL, placeholder, now_sql=now_sql)
    return DailyQueries(placeholder, days_ahead(daily_bodies), now_sql=now_sql)


def days_ahead(longest: timedelta) -> int:
    """For how many days partitions are made, for bodies that are kept as long as this: a day longer than one needs.

    ConfigurationError where that makes no sense.
    """
    given: object = longest
    if not isinstance(given, timedelta) or not timedelta(0) < given <= LONGEST_DAILY:
        raise ConfigurationError(
            f"daily_bodies must be the longest body_retention in use, up to {LONGEST_DAILY.days} days, not {given!r}"
        )
    return -(-given // timedelta(days=1)) + 1


def shown_url(database: object) -> str:
    """How messages name a store: its DSN without the password, or nearly nothing where it was given a pool."""
    return without_password(database) if isinstance(database, str) else "postgresql://..."


def with_days(url: str, daily_bodies: timedelta | None) -> str:
    """The address that says which layout it is about, for commands that messages name."""
    if daily_bodies is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}daily_bodies={-(-daily_bodies // timedelta(days=1))}"


def without_days(database: Any, daily_bodies: timedelta | None) -> tuple[Any, timedelta | None]:
    """What the driver is to have, and the daily layout as an address with ?daily_bodies=DAYS asks for it."""
    if not isinstance(database, str) or (found := _DAYS.search(database)) is None:
        return database, daily_bodies
    if not found[2].isdecimal():
        raise ConfigurationError("daily_bodies in a store's address must be a number of days, such as daily_bodies=1")
    before, after = database[: found.start()], database[found.end() :]
    rest = f"{before}{found[1]}{after[1:]}" if after else before
    return rest, timedelta(days=int(found[2]))


def in_doubt(statement: Statement, *, in_transaction: bool) -> bool:
    """Whether a lost answer leaves open what became of the write."""
    return statement.name == "commit" if in_transaction else statement.writes


class Failure(NamedTuple):
    """What became of a statement. `sqlstate` None: the connection failed, or nobody answered in time."""

    sqlstate: str | None
    message: str


def store_error(failure: Failure, url: str, *, doubtful: bool) -> StoreError:
    """What a failed statement means."""
    sqlstate, message = failure
    if sqlstate is None or sqlstate.startswith(_CONNECTION_LOST):
        # The server may have done what it was asked, and could not say so.
        if doubtful:
            return AmbiguousWriteError(f"the connection to PostgreSQL failed, and the write may stand: {message}")
        return StoreUnavailableError(f"the connection to PostgreSQL failed before anything was changed: {message}")
    if sqlstate in _NO_TABLES:
        return SchemaError(f"the tables of twicesafe are missing: run `twicesafe schema apply --store {url}`")
    if sqlstate in _OTHER_TABLES:
        return SchemaError(
            f"the tables of twicesafe are of another version: run `twicesafe schema apply --store {url}`"
        )
    if sqlstate in _OTHER_SESSION:
        return StoreUnavailableError(
            f"a pooler gives each transaction another session, where statements prepared in the last one are not known "
            f"({sqlstate}), and nothing was changed: pass prepared=False to the store, or, where the pool is your own, "
            "statement_cache_size=0 (asyncpg) or prepare_threshold=None (psycopg) to it"
        )
    message = without_values(sqlstate, message)
    if doubtful and sqlstate.startswith(_CONSTRAINTS):
        return CommitRefusedError(f"PostgreSQL refused the commit and rolled it back ({sqlstate}): {message}")
    return StoreUnavailableError(f"PostgreSQL refused, and changed nothing ({sqlstate}): {message}")


def without_values(sqlstate: str, message: str) -> str:
    """As much of what the server said as may be logged: below its first line stand DETAIL and CONTEXT, with rows."""
    if sqlstate.startswith(_WITH_VALUES):
        return "its words may hold values; the cause of this error has them"
    return message.partition("\n")[0]


UNREADABLE: Final = (
    "the address of a PostgreSQL store cannot be read: it is postgresql://user:password@host:port/database, and /, ? "
    "and # in a password are written %2F, %3F and %23"
)


def joined(statements: Iterable[Statement]) -> str:
    """Several statements as one text; their parameters are whole numbers or none."""
    return "; ".join([inlined(statement) for statement in statements])


def parts(step: Step) -> tuple[tuple[Statement, ...], Statement]:
    """What goes before, and the statement whose answer is wanted."""
    if isinstance(step, Batch):
        return step.statements[:-1], step.statements[-1]
    return (), step


def ended(end: Statement, reset_sql: str) -> Statement:
    """The end of a transaction, and what cleans the connection behind it."""
    return end._replace(text=f"{end.text}; {reset_sql}") if reset_sql else end


def waited_for(statement: Statement, rows: Rows) -> bytes | None:
    """The key of which a statement that settles has told that somebody waits for it."""
    return rows[0][0] if rows and statement.name in _SETTLING else None
