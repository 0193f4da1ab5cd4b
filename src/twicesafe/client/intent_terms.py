"""What is agreed when an intent is reserved, and holds for whoever sends it later: where its key goes, for how long
its server knows it, and how it may be repeated."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from twicesafe.client._underway import carried
from twicesafe.client.intents import Intent
from twicesafe.core.contract import Contract, contract_of
from twicesafe.core.keys import check_key
from twicesafe.core.provider import Provider
from twicesafe.core.remembered import checked_retention
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.routes import Route, Routes, Terms
from twicesafe.errors import ConfigurationError

_PLAIN: Final = RetryPolicy()


class Agreed(NamedTuple):
    """An intent whose contract is said, and the carrier of its key: a header, or a member of its JSON body."""

    intent: Intent
    header: str
    member: str
    remembers: timedelta | None


def agreed(intent: Intent, policy: RetryPolicy, remembers: timedelta | None) -> Agreed:
    """What holds for an intent under this policy. `remembers` is the caller's or the route's, whichever is shorter.

    ConfigurationError, InvalidKeyError for what another process could not send, or could send elsewhere.
    """
    try:
        address = urlsplit(intent.url)
        _ = address.port
    except ValueError as error:
        raise ConfigurationError(f"the intent's address is none: {error}") from error
    if address.scheme.lower() not in ("http", "https") or not address.hostname:
        raise ConfigurationError(
            "an intent that outlives its process needs its whole address, https://host/path: a path alone could go to "
            "another server later, where it would be a new operation"
        )
    if address.username is not None or address.password is not None:
        raise ConfigurationError("an address that is kept holds no name or password: give them to the client (auth=)")
    checked_retention("remembers", remembers)
    terms = _terms(policy, intent)
    said = carried(intent, policy, *_place(intent)).said or terms.contract
    lines = [(name.encode("latin-1", "replace"), line.encode("latin-1", "replace")) for name, line in intent.headers]
    contract = said or contract_of(intent.method, lines, keyed=terms.honoured)
    if contract is Contract.SAFE:
        raise ConfigurationError("what changes nothing needs no intent that is kept: ask again as often as you like")
    if contract is Contract.KEYED:
        check_key(intent.key, terms.key)
        said_so = [one for one in (remembers, _known_for(policy, intent)) if one is not None]
        remembers = min(said_so, default=None)
        if remembers is None:
            raise ConfigurationError(
                "say for how long the server knows keys: remembers=timedelta(hours=24), or in a route of the policy. A "
                "key that is sent later than that is a new operation"
            )
    return Agreed(replace(intent, contract=contract, chosen=True), *_carrier(terms), remembers)


def carrying(policy: RetryPolicy, intent: Intent, header: str, member: str) -> RetryPolicy:
    """The policy, with the key where it was put the first time. ConfigurationError where it says another place."""
    kept, terms = (header, member), _terms(policy, intent)
    if _same(_carrier(terms), kept):
        return policy
    if not _same(_carrier(terms), (_PLAIN.header, "")):
        raise ConfigurationError(
            f"the intent's key goes into {member or header}, and this policy says {terms.member or terms.header}"
        )
    if not member:
        return policy.but(header=header)
    provider = Provider(name="as it was sent first", member=member, methods=frozenset({intent.method}))
    return policy.but(routes=Routes(Route(intent.method, "/{path:path}", profile=provider), *(policy.routes or ())))


def _terms(policy: RetryPolicy, intent: Intent) -> Terms:
    return policy.terms_of(intent.method, *_place(intent))


def _carrier(terms: Terms) -> tuple[str, str]:
    return ("" if terms.member else terms.header), terms.member


def _same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0].lower() == other[0].lower() and one[1] == other[1]


def _known_for(policy: RetryPolicy, intent: Intent) -> timedelta | None:
    route = None if policy.routes is None else policy.routes.find(intent.method, *_place(intent))
    if route is None:
        return None
    return route.retention or (None if route.provider is None else route.provider.remembers)


def _place(intent: Intent) -> tuple[str, str]:
    """The server and the path, as routes know them."""
    address = urlsplit(intent.url)
    host, usual = address.hostname or "", {"http": 80, "https": 443}.get(address.scheme.lower())
    host = f"[{host}]" if ":" in host else host
    port = address.port
    return (host if port in (None, usual) else f"{host}:{port}"), address.path or "/"
