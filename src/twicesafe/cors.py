"""What a page of another origin has to be allowed, so that it can send a key and read what comes of it.

A browser asks first, by OPTIONS. That question never touches a store: no policy takes keys with OPTIONS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twicesafe.core.policy import Policy
from twicesafe.core.problems import CORS_ALLOW_HEADERS, CORS_ATTEMPT_HEADERS, CORS_EXPOSE_HEADERS

__all__ = ["CORS_ALLOW_HEADERS", "CORS_EXPOSE_HEADERS", "CorsHeaders", "cors_headers"]


class CorsHeaders(NamedTuple):
    """For a CORS layer's settings: names of headers."""

    allow: tuple[str, ...]
    """What the page may send (Access-Control-Allow-Headers)."""
    expose: tuple[str, ...]
    """What the page may read (Access-Control-Expose-Headers)."""


def cors_headers(*policies: Policy) -> CorsHeaders:
    """The headers of requests and answers under these policies; of the default one, where none is named."""
    allow: list[str] = []
    expose: list[str] = []
    for policy in policies or (Policy(),):
        allow += [policy.header, "" if policy.first_sent is None else policy.first_sent.header]
        expose += [policy.marker, policy.retention_header, policy.retryable_header, policy.result_header]
        expose += [policy.header or "Idempotency-Key"] if policy.echo_key else []
    return CorsHeaders(_once([*allow, *CORS_ATTEMPT_HEADERS]), _once([*expose, "Retry-After", "Location"]))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple({name.lower(): name for name in reversed([name for name in names if name])}.values())[::-1]
