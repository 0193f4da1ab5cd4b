"""What a request through the ASGI shell waits for on PostgreSQL, counted on the wire beside the same by hand."""

from __future__ import annotations

import asyncio

from benchmarks.postgresql_round_trips import measured
from tests.servers.postgresql import PostgresqlServer
from tests.stores.postgresql_kinds import new_place


def test_a_request_takes_no_round_trip_more_than_by_hand(postgresql_server: PostgresqlServer) -> None:
    """R10: a first request waits for the database as often as by hand, and so does a replay where its original ran."""
    url = new_place(postgresql_server, "asyncpg").dsn_with()
    found = {(row["case"], row["subject"]): row["median"] for row in asyncio.run(measured(url))}
    taken = {case: (count, found[case, "floor"]) for (case, subject), count in found.items() if subject == "twicesafe"}
    assert taken == {
        # BEGIN with the lock, the look, the effect, the record, COMMIT.
        "asyncpg, transactional, one-row effect: waits": (5, 5),
        "asyncpg, leased: waits": (2, 2),
        # The look.
        "asyncpg, replay, transactional: waits": (1, 1),
        "asyncpg, replay, keyed: waits": (1, 1),
        # BEGIN with the lock, the look, ROLLBACK.
        "asyncpg, replay of another process's, transactional: waits": (3, 1),
        # A claim that finds the key taken, and the look.
        "asyncpg, replay of another process's, keyed: waits": (2, 1),
    }
