"""The daily layout of PostgreSQL where a search path has several schemas."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.servers.postgresql import PostgresqlServer
from tests.stores.claims import ANSWER, wish
from tests.stores.postgresql_kinds import MANUAL_CLOCK, new_place, won
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict

DAY = timedelta(days=1)
DAY_US = DAY // timedelta(microseconds=1)
MIDNIGHT = 20_800 * DAY_US
BOTH = ["asyncpg", "psycopg"]


@pytest.mark.parametrize("kind", BOTH)
def test_bodies_are_made_where_the_records_are(postgresql_server: PostgresqlServer, kind: str) -> None:
    """R20, R14: a schema that came to stand first in the search path, as "$user" does, takes no bodies to itself."""

    async def trial() -> None:
        place = new_place(postgresql_server, kind)
        place.set_clock(MIDNIGHT)
        async with place.opened(now_sql=MANUAL_CLOCK) as plain:
            await plain.check_schema()
        first = f"{place.name}_first"
        place.admin.execute(f"CREATE SCHEMA {first}")
        path = {"search_path": f"{first},{place.name}"}
        async with place.opened(now_sql=MANUAL_CLOCK, settings=path, daily_bodies=DAY) as store:
            await store.apply_schema()
            place.set_clock(MIDNIGHT + 3 * DAY_US)
            await store.purge()
            own = await won(store)
            await store.complete(own, ANSWER, DAY_US, DAY_US)
            found = await store.claim(wish())
            assert isinstance(found, Existing) and found.verdict is Verdict.REPLAY
        assert place.value("SELECT count(*) FROM twicesafe_bodies") == 1
        assert place.value(f"SELECT count(*) FROM pg_class WHERE relnamespace = '{first}'::regnamespace") == 0
        assert place.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'twicesafe_bodies'::regclass") == 3
        place.admin.close()

    asyncio.run(trial())
