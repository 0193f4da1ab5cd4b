"""The store's tables by Django's migrations: the same statements that `twicesafe schema apply` sends."""

from __future__ import annotations

from typing import Any, Final

from django.db import router  # type: ignore[import-untyped]
from django.db.migrations.operations.base import Operation  # type: ignore[import-untyped]

from twicesafe.stores.sql.schema import schema_text
from twicesafe.stores.sql.statements import Dialect

DIALECTS: Final = {"postgresql": Dialect.POSTGRESQL, "sqlite": Dialect.SQLITE}
"""By the name of Django's vendor. In other databases twicesafe's Django store keeps nothing."""


TABLES: Final = {
    1: ("twicesafe_records", "twicesafe_schema"),
    2: ("twicesafe_audit",),
    3: ("twicesafe_outbox", "twicesafe_relay_shards", "twicesafe_inbox", "twicesafe_inbox_cursor"),
}
"""What each version brought, and takes away with it."""


class MakeTables(Operation):  # type: ignore[misc]
    """Make the tables of one version out of those of the version before. Tables that are there already are kept."""

    reversible = True
    reduces_to_sql = True

    def __init__(self, version: int) -> None:
        self.version = version

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [], {"version": self.version}

    def describe(self) -> str:
        return f"Make twicesafe's tables of version {self.version}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model's business: Record is not managed."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - of Operation
        for text in self._statements(app_label, schema_editor, present=False):
            schema_editor.execute(text, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - of Operation
        if not self._statements(app_label, schema_editor, present=True):
            return
        for table in TABLES[self.version]:
            schema_editor.execute(f"DROP TABLE {table}", params=None)
        if self.version > 1:
            schema_editor.execute(
                f"DELETE FROM twicesafe_schema WHERE version = {self.version:d}",  # noqa: S608 - a whole number
                params=None,
            )

    def _statements(self, app_label: str, schema_editor: Any, *, present: bool) -> list[str]:
        """What makes this version, where it is wanted, and is there or not."""
        connection = schema_editor.connection
        dialect = DIALECTS.get(connection.vendor)
        if dialect is None or not router.allow_migrate(connection.alias, app_label, model_name="record"):
            return []
        if not schema_editor.collect_sql and self._there(connection) is not present:
            return []
        return statements(dialect, self.version)

    def _there(self, connection: Any) -> bool:
        with connection.cursor() as cursor:
            if "twicesafe_schema" not in connection.introspection.table_names(cursor):
                return False
            cursor.execute("SELECT count(*) FROM twicesafe_schema WHERE version >= %s", [self.version])
            return bool(cursor.fetchone()[0])


def statements(dialect: Dialect, version: int) -> list[str]:
    """What makes the tables of `version` out of those of the version before."""
    text = "\n".join(line for line in schema_text(dialect).splitlines() if not line.startswith("--"))
    parts = [part.strip() for part in text.split(";")]
    found: list[str] = []
    at = 1
    for part in parts:
        if part in ("", "BEGIN", "COMMIT"):
            continue
        if at == version:
            found.append(part)
        if part.startswith("INSERT INTO twicesafe_schema "):
            at += 1
    return found
