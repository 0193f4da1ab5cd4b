"""What the proxy orders a server to do to itself."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple

from twicesafe.storm.plan import Fault
from twicesafe.storm.started import die_at


class Sabotage(NamedTuple):
    """What the proxy ordered for this request."""

    fault: Fault | None
    key: str

    def die_at(self, point: Fault) -> None:
        """At the ordered point announce it and be gone."""
        if self.fault is point:
            die_at(point, self.key)


NOTHING: Final = Sabotage(None, "")

SABOTAGE: Final[ContextVar[Sabotage]] = ContextVar("twicesafe.storm.sabotage", default=NOTHING)
"""Of the request that is served. Workers have none."""
