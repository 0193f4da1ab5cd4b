"""Requests that differ from a target's in one respect, as its description says or as can be guessed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Lines, Request
from twicesafe.conformance.target import Target, Template
from twicesafe.conformance.templates import UNIQUE, Intent

MEMBER: Final = "twicesafe_check"
"""A member that no API has: what ignores unknown members takes the request all the same."""


class Variant(NamedTuple):
    """Another request under the same key, and whose effects it would have."""

    request: Request
    intent: Intent


def changed(bench: Bench, intent: Intent, origin: Template | None = None) -> Variant | None:
    """The intent's key with a body that says something else; None where none can be made.

    `changed` in the description, or other values in the places for what is unique, or a member more.
    """
    target = bench.target
    plain = origin or target.request
    if target.changed is not None and origin is None:
        return Variant(bench.request(intent, target.changed), intent)
    if target.changed is not None:
        return Variant(bench.request(intent, replace(plain, body=target.changed.body)), intent)
    if plain.body is not None and UNIQUE.search(plain.body):
        other = bench.intent().with_key(intent.key)
        alike = replace(plain, body=None)
        return Variant(bench.request(intent, alike)._replace(body=bench.request(other, plain).body), other)
    request = bench.request(intent, plain)
    body = with_member(request.body, "other")
    return None if body is None else Variant(request._replace(body=body), intent)


def members(body: bytes) -> dict[str, Any] | None:
    """The body's members, where it is an object of JSON with at least one."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None


def with_member(body: bytes, value: object) -> bytes | None:
    """The body with one member more; None where it is no object of JSON."""
    found = members(body)
    return None if found is None else json.dumps({**found, MEMBER: value}, ensure_ascii=False).encode()


def with_query(request: Request, query: str) -> Request:
    """The request with a parameter more in its URL."""
    parts = urlsplit(request.url)
    return request._replace(url=urlunsplit(parts._replace(query=f"{parts.query}&{query}" if parts.query else query)))


def with_path(request: Request, more: str) -> Request:
    """The request to a path further down."""
    parts = urlsplit(request.url)
    return request._replace(url=urlunsplit(parts._replace(path=parts.path.rstrip("/") + more)))


def without_key(target: Target, request: Request) -> Request | None:
    """The request without its key; None where it cannot be taken out of the body."""
    if target.header:
        name = target.header.lower()
        return request._replace(lines=tuple(line for line in request.lines if line[0].lower() != name))
    found = members(request.body)
    if found is None or target.carrier not in found:
        return None
    del found[target.carrier]
    return request._replace(body=json.dumps(found, ensure_ascii=False).encode())


def without_credentials(target: Target) -> Lines | None:
    """Lines that take the caller's credentials away; None where there are none to take away."""
    found = tuple((name, "") for name, _ in target.request.lines if name.lower() in target.secret_headers)
    return found or None
