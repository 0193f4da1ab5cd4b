"""A user's gateways, for mypy --strict."""

from __future__ import annotations

from pathlib import Path

from twicesafe import Effects, Policy
from twicesafe.asgi import ASGIApp, ASGIScope
from twicesafe.gateway import PUBLIC, CallerClaim, CallerHeader, Gateway, Timeouts, Upstream
from twicesafe.stores.contract import AsyncStore


async def tenant(scope: ASGIScope) -> str | None:
    """A caller's own way to say who calls."""
    return scope.get("tenant")


def applications(store: AsyncStore) -> list[ASGIApp]:
    """Each way to say who calls."""
    upstream = Upstream("https://service", timeouts=Timeouts(read=5.0), connections=10, ca=Path("ca.pem"))
    claim = CallerClaim("sub", keys="https://login.example/jwks.json", issuer="i", audience="a", algorithms=["ES256"])
    return [
        Gateway(upstream, store, caller=CallerHeader("X-User-Id"), policy=Policy(effects=Effects.KEYED)),
        Gateway("http://service", store, caller=claim),
        Gateway("http://service", store, caller=PUBLIC),
        Gateway("http://service", store, caller=tenant),
    ]
