"""What the storm of messages writes beside the outbox, on every database that it can be asked for."""

from __future__ import annotations

from tests.messages.conftest import Databases
from tests.messages.relaying import EACH, rigged, trial
from twicesafe.storm.messages.books import ConsumerBooks, SenderBooks


@EACH
def test_the_books_of_a_storm_open_on_every_database(databases: Databases, dialect: str) -> None:
    """R28, R42: a storm begins with its own tables, whatever the driver says of a statement that makes one."""

    async def run() -> None:
        async with rigged(databases, dialect) as rig:
            await SenderBooks(rig.store).create(2)
            await ConsumerBooks(rig.store).create()
            assert rig.database.ask("SELECT count(*) FROM storm_sent") == [(0,)]
            assert await ConsumerBooks(rig.store).arrived() == (0, 0)
            assert rig.database.ask("SELECT count(*) FROM storm_places") == [(2,)]

    trial(run)
