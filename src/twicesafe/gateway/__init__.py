"""A reverse proxy that makes keyed requests happen once, in front of a service in any language."""

from __future__ import annotations

from twicesafe.core.keys import PUBLIC
from twicesafe.gateway.application import Gateway
from twicesafe.gateway.callers import CallerClaim, CallerHeader
from twicesafe.gateway.upstream import Timeouts, Upstream

__all__ = ["PUBLIC", "CallerClaim", "CallerHeader", "Gateway", "Timeouts", "Upstream"]
