"""Troubles of the network between servers and database."""

from __future__ import annotations

from twicesafe.storm.chaos.link import Link
from twicesafe.storm.chaos.plan import How, Part
from twicesafe.storm.chaos.relay import Relay
from twicesafe.storm.chaos.troubles import Counted


class Cut(Counted):
    """Felt where something was sent and did not pass."""

    def __init__(self, link: Link | Relay) -> None:
        super().__init__()
        self._link = link

    async def begin(self, part: Part) -> None:
        await self._link.cut(How(part.how))
        self.figures[part.how] += 1

    async def end(self) -> None:
        passed = await self._link.mend()
        self.figures["packets refused or lost"] += passed.packets
        self.figures["connections cut"] += passed.connections
        self.count(felt=passed.packets > 0)


class SlowLink(Counted):
    """Felt where something had to wait."""

    def __init__(self, link: Link | Relay) -> None:
        super().__init__()
        self._link = link

    async def begin(self, part: Part) -> None:  # noqa: ARG002 - there is one way
        await self._link.slow()

    async def end(self) -> None:
        passed = await self._link.speed()
        self.figures[f"packets late or lost ({self._link.way})"] += passed.packets
        self.count(felt=passed.packets > 0)
