"""What a storm is asked for, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says. `store` is `sqlite`, `postgresql`, `mysql`, `redis` or a URL of one.

    `stepwise`: a payment is an operation of several steps, with calls to a provider, which `provider_faults` breaks.
    `with_outbox`: a payment tells a consumer of it. `keyed`: it is one call under a derived key, as it always is on
    Redis.
    """

    store: str
    intents: int
    seed: int
    naive: bool = False
    servers: int = 3
    clients: int = 200
    stepwise: bool = False
    provider_faults: bool = False
    with_outbox: bool = False
    keyed: bool = False


@dataclass(slots=True)
class Standing:
    """How far it is, kept up to date while it runs: intents done of those that the phase is about."""

    total: int
    done: int = 0
    phase: str = "starting"
    faults: Callable[[], Counter[str]] = field(default=Counter)

    def begin(self, phase: str, total: int) -> None:
        """The next phase."""
        self.phase, self.total, self.done = phase, total, 0
