"""Who a request comes from: a header that an authenticating proxy sets, or a claim of a token that is verified here."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from twicesafe.core.keys import MAX_SCOPE_LENGTH
from twicesafe.errors import ConfigurationError, TwicesafeError
from twicesafe.gateway import tokens
from twicesafe.gateway.upstream import fetch
from twicesafe.incoming import ASGIScope

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
"""Of signatures by a key pair. Algorithms with a shared secret are refused: whoever verifies could sign."""

FRESH: Final = 300.0
"""Seconds after which a set of keys is read again, so that one taken out of it is trusted no longer."""
AGAIN: Final = 10.0
"""Seconds between two readings, at least: tokens that name unknown keys cost their senders nothing."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class CallerError(TwicesafeError):
    """Who calls cannot be said. `status` is what they are told, `challenge` what WWW-Authenticate says, if anything."""

    def __init__(self, detail: str, status: int, challenge: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.challenge = challenge


class CallerHeader:
    """The identity in a header. Anybody could write it: only a proxy in front, which writes it over whatever a caller
    sends, makes it true."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"a header's name is needed, not {name!r}")
        self._name = name.lower().encode("ascii")
        self.goes_by = frozenset({self._name})
        """Header lines that no caller may have dropped on the way."""

    def __call__(self, scope: ASGIScope) -> str | None:
        """The identity, None where the header is missing or empty. CallerError for two lines of it."""
        lines = [line for name, line in scope["headers"] if name == self._name]
        if len(lines) > 1:
            raise CallerError("The header that names the caller was sent twice.", 400)
        if not lines:
            return None
        try:
            who: str = lines[0].decode("utf-8").strip()
        except UnicodeDecodeError:
            raise CallerError("The header that names the caller is not UTF-8.", 400) from None
        if len(who) > MAX_SCOPE_LENGTH:
            raise CallerError(f"The caller's name has more than {MAX_SCOPE_LENGTH} characters.", 400)
        return who or None


class CallerClaim:
    """The identity in a claim of a bearer token, a JWT whose signature, issuer, audience and expiry are verified.

    `keys` is the URL or the file of a JSON Web Key Set. `algorithms` are the only ones that a token may be signed by.
    """

    goes_by = frozenset({b"authorization"})

    def __init__(
        self,
        claim: str,
        *,
        keys: str,
        issuer: str,
        audience: str,
        algorithms: Sequence[str] = ALGORITHMS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        for name, value in (("claim", claim), ("keys", keys), ("issuer", issuer), ("audience", audience)):
            if not value:
                raise ConfigurationError(f"{name} must not be empty")
        tokens.check_algorithms(algorithms)
        self._claim = claim
        self._issuer = issuer
        self._audience = audience
        self._algorithms = tuple(algorithms)
        self._keys = _Keys(keys, clock)

    async def __call__(self, scope: ASGIScope) -> str | None:
        """The identity, None where the token has no such claim. CallerError for no token, or one that is not valid."""
        lines = [line for name, line in scope["headers"] if name == b"authorization"]
        if len(lines) > 1:
            raise CallerError("Authorization was sent twice.", 400)
        kind, _, token = (lines[0] if lines else b"").partition(b" ")
        if kind.lower() != b"bearer" or not token.strip():
            raise CallerError("A bearer token is needed.", 401, "Bearer")
        text = token.strip().decode("latin-1")
        try:
            key_set = await self._keys.holding(tokens.key_id(text))
            claims = tokens.verified(
                text, key_set, algorithms=self._algorithms, issuer=self._issuer, audience=self._audience
            )
        except tokens.TokenError as error:
            raise CallerError(str(error), 401, f'Bearer error="invalid_token", error_description="{error}"') from error
        who = claims.get(self._claim)
        return who if isinstance(who, str) and 0 < len(who) <= MAX_SCOPE_LENGTH else None


class _Keys:
    """A set of keys and its age."""

    def __init__(self, source: str, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._reading = asyncio.Lock()
        self._found: tokens.KeySet = {}
        self._read_at = float("-inf")
        self._tried_at = float("-inf")

    async def holding(self, wanted: str | None) -> tokens.KeySet:
        """The keys, read anew where they are old or `wanted` is not among them. CallerError where there are none."""
        # While they are read, whoever is known goes by what is there.
        if self._due(wanted) and not (self._reading.locked() and wanted in self._found):
            async with self._reading:
                if self._due(wanted):
                    await self._read()
        if not self._found:
            raise CallerError("The keys that tokens are signed by cannot be had at the moment.", 503)
        return self._found

    def _due(self, wanted: str | None) -> bool:
        now = self._clock()
        if now - self._tried_at < AGAIN:
            return False
        return now - self._read_at >= FRESH or (wanted is not None and wanted not in self._found)

    async def _read(self) -> None:
        self._tried_at = self._clock()
        try:
            if self._source.startswith(("https://", "http://")):
                document = await fetch(self._source)
            else:
                document = await asyncio.to_thread(Path(self._source).read_bytes)
            self._found = tokens.key_set(json.loads(document))
        except (OSError, ValueError, RecursionError):
            # Whoever is known stays known until somebody can be asked again.
            return
        self._read_at = self._tried_at
