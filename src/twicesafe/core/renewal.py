"""When the lease of a running claim is renewed (R12): at a third, so two renewals may fail before anybody takes over.

Whoever renews looks now and then at all claims. Most are over before it looks once, so one that it has not seen yet has
lived between nothing and one look. All times are in seconds.
"""

from __future__ import annotations

from typing import Final

from twicesafe.core.record import Micros

RENEW_AT: Final = 3
LOOKS: Final = 4
"""How often one looks in a third of the shortest lease."""


def third(lease_us: Micros) -> float:
    """A third of the lease."""
    return lease_us / 1_000_000 / RENEW_AT


def look_after(shortest_us: Micros) -> float:
    """From one look to the next, where the shortest lease is this."""
    return third(shortest_us) / LOOKS


def renew_after(lease_us: Micros) -> float:
    """From the look that first saw a claim, or from its last renewal, to its next."""
    return third(lease_us) * (LOOKS - 1) / LOOKS
