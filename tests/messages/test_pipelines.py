"""Messages that are added in a pipeline of psycopg's, which sends statements and reads what came of them later."""

from __future__ import annotations

import psycopg
import pytest

from tests.messages.conftest import Databases
from tests.messages.connections import SOURCE, new_id
from twicesafe.outbox import Outbox


@pytest.mark.parametrize("given", [None, "an id"])
def test_a_pipeline_adds_as_well(databases: Databases, given: str | None) -> None:
    """R28, I9: what is written in a pipeline of psycopg's is not taken for what was there before."""
    database, aggregate = databases("postgresql"), new_id()
    with psycopg.connect(database.where) as connection, connection.pipeline():
        added = Outbox(SOURCE).add(connection, "order.placed", ("order", aggregate), {}, id=given)
        assert database.messages(aggregate) == []
    connection.close()
    assert database.messages(aggregate) == [added.id]
