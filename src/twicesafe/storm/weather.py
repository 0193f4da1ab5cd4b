"""What surrounds a storm: the plan it goes by, its database, and what else befalls it. Ordinarily nothing does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from twicesafe.storm.company import Company
from twicesafe.storm.databases import Database, database
from twicesafe.storm.plan import Plan, draw
from twicesafe.storm.settings import Settings


class Weather:
    """The ordinary one."""

    def plan(self, settings: Settings) -> Plan:
        """What is going to happen."""
        return draw(settings.seed, settings.intents, stepwise=settings.stepwise, with_outbox=settings.with_outbox)

    def database(self, settings: Settings, folder: Path, users: int) -> AbstractAsyncContextManager[Database]:
        """The database of so many processes; what is temporary of it ends with the block."""
        return database(settings.store, folder, users)

    def told(self) -> dict[str, Any]:
        """What servers and workers are told beside."""
        return {}

    def heard(self, answer: bytes) -> None:
        """A server has given this answer, whatever becomes of it on its way."""

    async def befall(self, spell: int, company: Company) -> None:
        """Bad weather, from its beginning to its end: what a blow of kind SPELL is."""
        raise NotImplementedError

    async def calmed(self, asked: Sequence[tuple[str, str]]) -> None:
        """All is calm, and every key is asked once more. They are given with the accounts that they belong to."""
