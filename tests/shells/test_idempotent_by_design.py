"""The page about operations that need no key: its code, as it stands there, on PostgreSQL. SQLite is the page's own."""

from __future__ import annotations

import re

from tests.house.sources import ROOT
from tests.servers.postgresql import PostgresqlServer

PAGE = (ROOT / "docs" / "idempotent_by_design.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"^```python\n(.+?)^```|^<!-- invisible-code-block: python\n(.+?)^-->", re.DOTALL | re.MULTILINE)


def test_the_page_runs_on_postgresql(postgresql_server: PostgresqlServer) -> None:
    """R30: PUT with a client-made id, a natural unique key and a desired state happen once, five at a time, on
    PostgreSQL as on SQLite; the page's own trial asserts it."""
    source = "\n".join(shown or hidden for shown, hidden in BLOCKS.findall(PAGE))
    address = postgresql_server.create_database().replace("postgresql://", "postgresql+asyncpg://")
    assert source.count('"sqlite+aiosqlite:///shop.db"') == 1
    names = {"__name__": "shop"}
    exec(
        compile(
            source.replace('"sqlite+aiosqlite:///shop.db"', repr(address)), "docs/idempotent_by_design.md", "exec",
            dont_inherit=True,
        ),
        names,
    )  # fmt: skip
    assert "trial" in names
