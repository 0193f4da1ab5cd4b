"""The daily layout of PostgreSQL: bodies lie in a table of their own, a partition for each day on which they end.

Theory of operation. Keys stay where they are, in one table under one unique index: that is what makes a key unique on
both sides of midnight, at every isolation level and without any lock (I1). Only bodies, which are most of the bytes,
go to `twicesafe_bodies`, partitioned by the day of `body_until`. When a day is over all of its bodies are, so its
partition is detached and dropped, at the cost of no row.

Which partition a body is in follows from its record. One whose partition is not there is kept in the record itself, as
without this layout, so nothing waits for partitions to be made: a missing one costs space, never a claim. A body that
is nowhere (its partition dropped by hand, its record written by a store without this layout) is a tombstone.

Partitions are made by attaching a table that was made before, and go by DETACH CONCURRENTLY: neither waits for claims,
nor do claims wait for them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from twicesafe.stores.sql.rows import COLUMNS
from twicesafe.stores.sql.statements import Dialect, Placeholder, Queries, Source, StatementsError, parse
from twicesafe.stores.steps import Batch, Statement, Steps

TABLE: Final = "twicesafe_bodies"

BODIES: Final = f"""\
CREATE TABLE {{place}}.{TABLE} (
    day bigint NOT NULL,
    digest bytea NOT NULL,
    owner bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (day, digest)
) PARTITION BY RANGE (day)"""

_BODY: Final = re.compile(r":body\b(?:::bytea)?")
_PARTITION: Final = f"to_regclass('{TABLE}_' || ({{now}} + :body_us::bigint) / 86400000000)"
_JOINED: Final = (
    f"twicesafe_records LEFT JOIN {TABLE} AS kept ON kept.day = twicesafe_records.body_until / 86400000000"
    " AND kept.digest = twicesafe_records.digest AND kept.owner = twicesafe_records.owner"
    " AND twicesafe_records.body_until > {now}"
)
_COLUMNS: Final = ", ".join(
    "COALESCE(twicesafe_records.body, kept.body) AS body" if name == "body" else f"twicesafe_records.{name}"
    for name in COLUMNS
)
_KEPT: Final = """\
WITH done AS (
%s AS told, twicesafe_records.digest AS digest, twicesafe_records.owner AS owner, twicesafe_records.body_until AS ends
), kept AS (
    INSERT INTO twicesafe_bodies (day, digest, owner, body)
    SELECT ends / 86400000000, digest, owner, :body::bytea FROM done
    WHERE :body::bytea IS NOT NULL AND to_regclass('twicesafe_bodies_' || ends / 86400000000) IS NOT NULL
    ON CONFLICT (day, digest) DO UPDATE SET owner = excluded.owner, body = excluded.body
)
SELECT told FROM done"""


class DailyQueries(Queries):
    """The statements of PostgreSQL for the daily layout; partitions are made for today and `days_ahead` more days."""

    def __init__(self, placeholder: Placeholder, days_ahead: int, *, now_sql: str | None = None) -> None:
        super().__init__(Dialect.POSTGRESQL, placeholder, now_sql=now_sql, rewrite=_rewritten)
        self.days_ahead: Final = days_ahead


@cache
def _own() -> tuple[Source, ...]:
    return parse(files("twicesafe.stores.sql").joinpath("daily.sql").read_text(encoding="utf-8"))


def _rewritten(every: tuple[Source, ...]) -> tuple[Source, ...]:
    """The statements that write or read a body, for where it lies; the others as they are."""
    rewrite = {"find": _find, "look": _look, "complete": _keep, "record": _keep, "settle": _keep}
    return (*(rewrite[one.name](one) if one.name in rewrite else one for one in every), *_own())


def _keep(source: Source) -> Source:
    """The body goes where it belongs, in the same statement. A key and its body end together where it stays inline."""
    text = _replaced(source, source.text, ":purge_us", ":key_us")
    inline = f"CASE WHEN {_PARTITION} IS NULL THEN :body::bytea END"
    if len(_BODY.findall(text)) != 1 or not text.endswith("{settled}"):
        raise StatementsError(f"{source.name}: the daily layout does not know where its body goes")
    return source._replace(text=_KEPT % _BODY.sub(inline, text))


def _find(source: Source) -> Source:
    text = _replaced(source, source.text, "{columns}", _COLUMNS)
    text = _replaced(source, text, "FROM twicesafe_records", f"FROM {_JOINED}")
    return source._replace(text=_replaced(source, text, "WHERE digest =", "WHERE twicesafe_records.digest ="))


def _look(source: Source) -> Source:
    text = _replaced(source, source.text, "{columns}", _COLUMNS)
    joined = f"LEFT JOIN ({_JOINED}) ON twicesafe_records.digest ="
    return source._replace(text=_replaced(source, text, "LEFT JOIN twicesafe_records ON digest =", joined))


def _replaced(source: Source, text: str, what: str, by: str) -> str:
    if what not in text:
        raise StatementsError(f"{source.name}: the daily layout looks for {what!r} in vain")
    return text.replace(what, by)


# --- partitions ------------------------------------------------------------------------------------------------------


def make_bodies(sql: DailyQueries) -> Steps[None]:
    """The table and the days to come, in the transaction that makes the other tables."""
    if not (yield sql("bodies_present"))[0][0]:
        yield _ddl(BODIES.format(place=(yield sql("place_of_records"))[0][0]))
    yield from _make_days(sql)


def days_due(sql: DailyQueries) -> Steps[list[tuple[object, ...]]]:
    """What `keep_days` has to do. Where it failed and this has changed since, somebody else is at it."""
    missing = yield sql("days_missing", days_ahead=sql.days_ahead)
    over = yield sql("days_over")
    return [tuple(row) for row in (*missing, *over)]


def keep_days(sql: DailyQueries) -> Steps[None]:
    """Make the days to come, and drop those that are over."""
    if (yield sql("days_missing", days_ahead=sql.days_ahead)):
        yield Batch((sql("begin"), sql("schema_lock")))
        yield from _make_days(sql)
        yield sql("commit")
    for name, state in (yield sql("days_over")):
        if state != "detached":
            # Waits for the transactions that may still read it, and nobody waits for this.
            how = "CONCURRENTLY" if state == "attached" else "FINALIZE"
            yield _ddl(f"ALTER TABLE {TABLE} DETACH PARTITION {name} {how}")
        yield _ddl(f"DROP TABLE IF EXISTS {name}")


def _make_days(sql: DailyQueries) -> Steps[None]:
    # Asked again under the lock: somebody else may have been at it.
    for day, place in (yield sql("days_missing", days_ahead=sql.days_ahead)):
        name = f"{place}.{TABLE}_{day}"
        yield _ddl(f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING ALL)")
        yield _ddl(f"ALTER TABLE {TABLE} ATTACH PARTITION {name} FOR VALUES FROM ({day}) TO ({day + 1})")


def _ddl(text: str) -> Statement:
    return Statement("schema", text, (), writes=True, returns=False)
