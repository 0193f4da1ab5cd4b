"""The tables: how they are made, upgraded, printed, and checked.

Each file under schema/<dialect>/ is one version, numbered from 1; a file that was released never changes.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from twicesafe.errors import SchemaError, StoreUnavailableError
from twicesafe.stores.sql.daily import DailyQueries, make_bodies
from twicesafe.stores.sql.statements import NOW, Dialect, Queries
from twicesafe.stores.steps import Batch, Statement, Steps

VERSIONS_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS twicesafe_schema (
    version {integer} NOT NULL PRIMARY KEY,
    applied_at {integer} NOT NULL
)"""

_INTEGER: Final = {Dialect.SQLITE: "INTEGER", Dialect.POSTGRESQL: "bigint", Dialect.MYSQL: "BIGINT"}
_FILE = re.compile(r"(\d{4})_[a-z_]+\.sql")


class Version(NamedTuple):
    """One version of the tables."""

    number: int
    text: str

    def statements(self) -> tuple[Statement, ...]:
        """What makes it out of the version before."""
        lines = [line for line in self.text.splitlines() if not line.startswith("--")]
        return tuple(_ddl(part.strip()) for part in "\n".join(lines).split(";") if part.strip())


@cache
def versions(dialect: Dialect) -> tuple[Version, ...]:
    """Every version, oldest first."""
    found = []
    for file in files("twicesafe.stores.sql").joinpath("schema", dialect.value).iterdir():
        name = _FILE.fullmatch(file.name)
        if name is not None:
            found.append(Version(int(name[1]), file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def schema_text(dialect: Dialect) -> str:
    """The tables as a script, for those who apply it by other means. It leaves what `apply_schema` would leave."""
    begin, commit = ("", "") if dialect is Dialect.MYSQL else ("BEGIN;\n\n", "COMMIT;\n")
    parts = [f"{begin}{_versions_table(dialect).text};\n"]
    clock = {Dialect.SQLITE: "CAST(strftime('%s', 'now') AS INTEGER) * 1000000"}.get(dialect, NOW[dialect])
    for version in versions(dialect):
        parts.append(version.text)
        parts.append(f"INSERT INTO twicesafe_schema (version, applied_at) VALUES ({version.number}, {clock});\n")  # noqa: S608 - whole numbers
    if commit:
        parts.append(commit)
    return "\n".join(parts)


def check_schema(sql: Queries, url: str) -> Steps[None]:
    """See Store.check_schema. `url` is how the message names the store; it holds no password."""
    newest = versions(sql.dialect)[-1].number
    found = yield from _version(sql)
    if found == newest and (not isinstance(sql, DailyQueries) or (yield sql("bodies_present"))[0][0]):
        return
    command = f"twicesafe schema apply --store {url}"
    if found in (0, newest):
        raise SchemaError(f"the tables of twicesafe are missing: run `{command}`")
    if found < newest:
        raise SchemaError(f"the tables are of version {found}, this release needs {newest}: run `{command}`")
    raise SchemaError(
        f"the tables are of version {found}, which a newer release made; this one knows {newest}: upgrade twicesafe "
        f"here, then `{command}` has nothing left to do"
    )


def apply_schema(sql: Queries) -> Steps[None]:
    """See Store.apply_schema. One transaction, one process at a time; newer tables are left alone.

    On MySQL, where tables are made outside any transaction, what was begun and broke off is finished the next time.
    """
    if sql.dialect is Dialect.MYSQL:
        if not (yield sql("schema_lock"))[0][0]:
            raise StoreUnavailableError("another process is making the tables, and takes longer than 5 s: run it again")
    else:
        yield Batch((sql("begin"), sql("schema_lock")))
    found = yield from _version(sql)
    if not found:
        # A session that has seen that the table is not there may go on believing it; one that makes it looks anew.
        yield _versions_table(sql.dialect)
        found = (yield sql("schema_version"))[0][0] or 0
    for version in versions(sql.dialect):
        if version.number > found:
            for statement in version.statements():  # noqa: UP028 - a tuple cannot be sent rows
                yield statement
            yield sql("schema_applied", version=version.number)
    if isinstance(sql, DailyQueries):
        yield from make_bodies(sql)
    yield sql("unlock" if sql.dialect is Dialect.MYSQL else "commit")


def _version(sql: Queries) -> Steps[int]:
    """0 where there are no tables."""
    if not (yield sql("schema_present"))[0][0]:
        return 0
    return (yield sql("schema_version"))[0][0] or 0


def _versions_table(dialect: Dialect) -> Statement:
    return _ddl(VERSIONS_TABLE.format(integer=_INTEGER[dialect]))


def _ddl(text: str) -> Statement:
    return Statement("schema", text, (), writes=True, returns=False)
