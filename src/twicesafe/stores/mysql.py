"""What both MySQL drivers share: the address, how parameters are written, and what an error means for a write.

Error numbers decide, never a message: a server may speak any language. MariaDB is meant wherever MySQL is said.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from twicesafe.core.record import StoredResponse
from twicesafe.errors import (
    AmbiguousWriteError,
    ConfigurationError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from twicesafe.stores.packing import packed_size
from twicesafe.stores.sql.mysql_transactional import ENDED_EARLY
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries
from twicesafe.stores.steps import Batch, Rows, Statement, Step

PORT: Final = 3306

# --- the address ------------------------------------------------------------------------------------------------------


class Address(NamedTuple):
    """What a mysql:// URL says. `ca` is a file of certificates that the server's has to be signed by."""

    host: str
    port: int
    user: str
    password: str
    database: str
    unix_socket: str | None
    ca: str | None


def address(url: str) -> Address:
    """mysql://user:password@host:port/database. ConfigurationError for any other; it repeats no password."""
    try:
        parts = urlsplit(url)
        port = parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        # What it says may be part of a password.
        raise ConfigurationError(
            f"a MySQL store's address is {_FORM}, and /, ? and # in a password are written %2F, %3F and %23"
        ) from None
    database = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "mysql" or not database or "/" in database or not parts.username:
        raise ConfigurationError(f"a MySQL store's address is {_FORM}")
    unknown = options.keys() - {"unix_socket", "ssl_ca"}
    if unknown:
        raise ConfigurationError(
            f"a MySQL store's address takes the options unix_socket and ssl_ca, not {', '.join(sorted(unknown))}"
        )
    if not all(options.values()):
        raise ConfigurationError("an option of a MySQL store's address is empty: leave it out, or give it a value")
    return Address(
        parts.hostname or "localhost",
        port or PORT,
        unquote(parts.username),
        unquote(parts.password or ""),
        database,
        options.get("unix_socket"),
        options.get("ssl_ca"),
    )


_FORM: Final = "mysql://user:password@host:port/database"


def settings_of(where: Address, timeout: float) -> dict[str, Any]:
    """What both drivers call it. ConfigurationError for certificates that cannot be read."""
    settings: dict[str, Any] = {
        "user": where.user,
        "password": where.password,
        "database": where.database,
        "connect_timeout": timeout,
        "autocommit": True,
    }
    if where.unix_socket is None:
        settings |= {"host": where.host, "port": where.port}
    else:
        settings["unix_socket"] = where.unix_socket
    if where.ca is not None:
        try:
            settings["ssl"] = ssl.create_default_context(cafile=where.ca)
        except OSError as error:
            raise ConfigurationError(f"the certificates of ssl_ca cannot be read: {error}") from error
    return settings


def queries(now_sql: str | None) -> Queries:
    """The statements, as both drivers want them."""
    return Queries(Dialect.MYSQL, Placeholder.PERCENT, now_sql=now_sql)


def check_pool_size(pool_size: int) -> None:
    """ConfigurationError for a pool of nothing."""
    if pool_size < 1:
        raise ConfigurationError(f"pool_size must be a whole number of 1 or more, not {pool_size!r}")


# --- what is sent -----------------------------------------------------------------------------------------------------


def text_of(statement: Statement) -> str:
    """The statement with its parameters in it: ASCII, and the same in every character set and sql_mode."""
    parameters = statement.parameters
    if not parameters:
        return statement.text % ()
    return statement.text % tuple(
        [
            value if type(value) is int else f"x'{value.hex()}'" if type(value) is bytes else _literal(value)
            for value in parameters
        ]
    )


def _literal(value: Any) -> str:
    """Drivers escape by backslashes, which NO_BACKSLASH_ESCAPES and some character sets take otherwise."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return f"_utf8mb4 x'{value.encode().hex()}'"
    raise TypeError(f"a parameter of type {type(value).__name__} cannot be sent")


def size_of(statement: Statement) -> int:
    """More bytes than it takes, as a text or prepared."""
    return LITTLE + 2 * sum(map(getsizeof, statement.parameters))


def patience(timeout: float | None) -> Statement:
    """How long to wait for locks: less than the store waits for its answer, or with None as the server's settings say.

    InnoDB's own 50 seconds are for handlers; nobody waits that long to be told that somebody else is at it.
    """
    seconds = "DEFAULT" if timeout is None else max(1, int(timeout / 2))
    text = f"SET SESSION innodb_lock_wait_timeout = {seconds}"
    return Statement("patience", text, (), writes=False, returns=False)


LITTLE: Final = 4096
"""More than a statement has besides its answer."""


def fitting(response: StoredResponse, largest: int) -> StoredResponse:
    """The answer without its body, where the server takes no packet that could hold it (R18)."""
    body = response.body
    if body is None or 2 * (len(body) + packed_size(response.headers)) + LITTLE < largest:
        return response
    return response._replace(body=None)


def statements_of(step: Step) -> tuple[Statement, ...]:
    """In the order in which they are performed."""
    return step.statements if isinstance(step, Batch) else (step,)


# --- what comes back --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reply:
    """What came back so far of what was sent."""

    statements: Sequence[Statement]
    answered: int = 0
    """How many were performed."""
    rows: Rows = ()
    """What the last of those answered that reads or writes rows."""

    @property
    def next(self) -> Statement:
        """The first that was not performed, as far as is known."""
        return self.statements[self.answered]

    @property
    def committed(self) -> bool:
        """Whether COMMIT was among those performed."""
        return any(statement.name == "commit" for statement in self.statements[: self.answered])

    def take(self, rows: Rows, insert_id: int, affected: int) -> None:
        """The next answer. Of a statement that writes: what LAST_INSERT_ID left in it, or how many rows."""
        statement = self.statements[self.answered]
        self.answered += 1
        if statement.returns:
            self.rows = rows
        elif statement.writes:
            self.rows = ((insert_id,),) if insert_id else ((),) * affected


# --- what goes wrong --------------------------------------------------------------------------------------------------

ROUNDS: Final = 16
DEADLOCK: Final = 1213
LOCK_WAIT: Final = 1205
CHANGED_SINCE: Final = 1020
AGAIN: Final = {DEADLOCK: 1, CHANGED_SINCE: 1, LOCK_WAIT: ROUNDS // 2}
"""Nothing was done, and it can be asked again: how much of ROUNDS that costs. In a transaction it is the handler's work
that would have to run again, so its caller is told."""

_DUPLICATE: Final = 1062
_NO_SAVEPOINT: Final = 1305
_TOO_LARGE: Final = 1153
_WITH_VALUES: Final = frozenset({1062, 1064, 1292, 1366, 1411, 1586, 1644})
"""A row that is there already, a text that cannot be parsed, values that are none of their type, and what a trigger
signals: each is told with what was given."""
_NO_TABLES: Final = frozenset({1146, 1049})
_OTHER_TABLES: Final = frozenset({1054})
_LOST: Final = frozenset({1053, 1079, 1152, 1158, 1159, 1160, 1161, 1180, 1317, 1927, 3169, 4031})
"""Server shutting down, network errors, an error during COMMIT, query or connection killed, session timed out."""


class Failure(NamedTuple):
    """What became of a statement. `code` None: the connection failed, or nobody answered in time."""

    code: int | None
    message: str


def failure_of(code: object, message: str) -> Failure:
    """By the number that a driver gives; its own, 2000 to 2999, are about connections."""
    if not isinstance(code, int) or code in _LOST or code < 1000 or 2000 <= code < 3000:
        return Failure(None, message)
    return Failure(code, message)


def stopped(reply: Reply, failure: Failure) -> Rows | None:
    """The rows of a reply that a failure ended where that is an answer too. RuntimeError: see ENDED_EARLY."""
    statement = reply.next
    if failure.code == _DUPLICATE and statement.text.startswith("INSERT"):
        return ()
    if failure.code == _NO_SAVEPOINT and statement.name == "still_open":
        raise RuntimeError(ENDED_EARLY)
    return None


def store_error(failure: Failure, reply: Reply, url: str, *, in_transaction: bool) -> StoreError:
    """What a failure means."""
    code, message = failure
    statements = reply.statements
    if code is None:
        if any(s.name == "commit" for s in statements) if in_transaction else any(s.writes for s in statements):
            # The server may have done what it was asked, and could not say so.
            return AmbiguousWriteError(f"the connection to MySQL failed, and the write may stand: {message}")
        return StoreUnavailableError(f"the connection to MySQL failed before anything was changed: {message}")
    if code in _NO_TABLES:
        return SchemaError(f"the tables of twicesafe are missing: run `twicesafe schema apply --store {url}`")
    if code in _OTHER_TABLES:
        return SchemaError(
            f"the tables of twicesafe are of another version: run `twicesafe schema apply --store {url}`"
        )
    if code == _TOO_LARGE:
        return too_large()
    if code in _WITH_VALUES:
        message = "its words may hold values; the cause of this error has them"
    return StoreUnavailableError(f"MySQL refused, and changed nothing ({code}): {message}")


def too_large() -> StoreUnavailableError:
    """What cannot be sent, less its body."""
    return StoreUnavailableError(
        "the record is larger than the server's max_allowed_packet, and nothing was changed: raise that setting to "
        "more than twice the size of the largest answer's headers and of the largest request that is kept"
    )
