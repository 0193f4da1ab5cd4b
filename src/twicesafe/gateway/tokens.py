"""JSON Web Tokens, verified by PyJWT. No message says anything of a token's content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import jwt

from twicesafe.errors import ConfigurationError, TwicesafeError

KeySet: TypeAlias = Mapping[str | None, Mapping[str, Any]]
"""JSON Web Keys for signatures by their id; None for the one key of a set of one."""

LEEWAY: Final = 10
"""Seconds that clocks may differ."""

_ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA"}
)


class TokenError(TwicesafeError):
    """A token that is not valid here."""


def check_algorithms(algorithms: Sequence[str]) -> None:
    """ConfigurationError for none, and for one that does not sign by a key pair."""
    wrong = [name for name in algorithms if name not in _ASYMMETRIC]
    if wrong or not algorithms:
        named = f"not {wrong[0]}" if wrong else "and one at least"
        raise ConfigurationError(f"algorithms must be of {', '.join(sorted(_ASYMMETRIC))}, {named}")


def key_set(document: Any) -> KeySet:
    """The keys of a JSON Web Key Set that signatures can be verified by. ValueError where there are none."""
    listed = document.get("keys") if isinstance(document, dict) else None
    keys: dict[str | None, Mapping[str, Any]] = {}
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
            continue
        name = one.get("kid")
        if name is not None and not isinstance(name, str):
            continue
        try:
            jwt.PyJWK(one)
        except jwt.PyJWTError:
            # Of a kind that this release does not know.
            continue
        keys[name] = one
    if len(keys) == 1:
        keys.setdefault(None, *keys.values())
    else:
        keys.pop(None, None)
    if not keys:
        raise ValueError("no key in it can verify a signature")
    return keys


def key_id(token: str) -> str | None:
    """The id of the key that a token says it is signed by. TokenError for what is no token."""
    try:
        found = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        raise TokenError("The token cannot be read.") from None
    return found if isinstance(found, str) else None


def verified(token: str, keys: KeySet, *, algorithms: Sequence[str], issuer: str, audience: str) -> Mapping[str, Any]:
    """The claims of a token whose signature, issuer, audience and expiry hold. TokenError otherwise."""
    key = keys.get(key_id(token))
    if key is None:
        raise TokenError("The token is signed by an unknown key.")
    try:
        algorithm = jwt.get_unverified_header(token).get("alg")
        if algorithm not in algorithms:
            raise TokenError("The token is signed by an algorithm that is not taken here.")
        # A key may say what it is for. One that does not is for what its kind can do and is taken here.
        return jwt.decode(
            token,
            jwt.PyJWK(dict(key), key.get("alg") or algorithm),
            algorithms=list(algorithms),
            issuer=issuer,
            audience=audience,
            leeway=LEEWAY,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
    except jwt.ExpiredSignatureError:
        raise TokenError("The token has expired.") from None
    except jwt.PyJWTError:
        raise TokenError("The token is not valid here.") from None
