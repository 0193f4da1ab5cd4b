"""A gateway from the options of a command line. What is wrong is said under the option's name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from twicesafe.core.keys import PUBLIC, KeyRule
from twicesafe.core.limits import Limits
from twicesafe.core.policy import DEFAULT_BODY_LIMIT, DEFAULT_RELEASED, DEFAULT_RESPONSE_LIMIT, Policy
from twicesafe.errors import ConfigurationError
from twicesafe.gateway.application import NO_TRANSACTION, RERUN, Gateway
from twicesafe.gateway.callers import ALGORITHMS, CallerClaim, CallerHeader
from twicesafe.gateway.upstream import CONNECTIONS, KEEP_ALIVE, TIMEOUTS, Timeouts, Upstream, origin
from twicesafe.stores.urls import open_async_store

VARIABLE: Final = "TWICESAFE_GATEWAY"
"""How the settings reach a server's process that makes the application for itself."""


SHORTEST: Final = 0.001
"""Seconds. With no time at all every request would fail after it was sent, and nobody would know what it did."""
LONGEST: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options, by their names. Durations are in seconds, sizes in bytes; empty means: not given."""

    upstream: str
    store: str
    scope_header: str = ""
    scope_claim: str = ""
    scope_public: bool = False
    jwks: str = ""
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_algorithms: tuple[str, ...] = ALGORITHMS
    effects: str = "opaque"
    methods: tuple[str, ...] = ("POST", "PATCH")
    header: str = "Idempotency-Key"
    upstream_header: str = ""
    key_syntax: str = "opaque"
    require_key: bool = False
    retention: float = 86_400.0
    body_retention: float | None = None
    lease: float = 30.0
    wait: float = 0.0
    new_keys: int = 0
    """0 is any number, as for all callers together."""
    new_keys_in_all: int = 0
    new_keys_within: float = 60.0
    released: tuple[int, ...] = tuple(sorted(DEFAULT_RELEASED))
    rerun: tuple[int, ...] | None = None
    """None is what RERUN says of the effects."""
    store_cookies: bool = False
    body_limit: int = DEFAULT_BODY_LIMIT
    response_limit: int = DEFAULT_RESPONSE_LIMIT
    problem_base: str = "urn:twicesafe:problem:"
    connect_timeout: float = TIMEOUTS.connect
    read_timeout: float = TIMEOUTS.read
    write_timeout: float = TIMEOUTS.write
    keep_alive: float = KEEP_ALIVE
    connections: int = CONNECTIONS
    upstream_ca: str = ""
    host_header: str = "client"
    forwarded: str = "append"
    health: str = ""
    drain: float = 10.0

    def application(self) -> Gateway:
        """The gateway that they describe. ConfigurationError names the option that is wrong."""
        for option, value, choices in (
            ("--effects", self.effects, ("opaque", "keyed", "transactional", "resumable")),
            ("--host-header", self.host_header, ("client", "upstream")),
            ("--forwarded", self.forwarded, ("append", "replace")),
        ):
            if value not in choices:
                raise ConfigurationError(f"{option}: must be one of {', '.join(choices)}, not {value!r}")
        for option, seconds, least in (
            ("--connect-timeout", self.connect_timeout, SHORTEST),
            ("--read-timeout", self.read_timeout, SHORTEST),
            ("--write-timeout", self.write_timeout, SHORTEST),
            ("--keep-alive", self.keep_alive, 0.0),
            ("--drain", self.drain, 0.0),
        ):
            if not least <= seconds <= LONGEST:
                raise ConfigurationError(f"{option}: must be from {least:g} seconds to a day, not {seconds:g}")
        if self.effects not in RERUN:
            raise ConfigurationError(f"--effects: {NO_TRANSACTION}, so not {self.effects}")
        policy = self._policy()
        caller = self._caller()
        with _option("--upstream"):
            origin(self.upstream)
        with _option("--upstream-header"):
            policy.but(header=self.upstream_header or self.header)
        with _option("--store"):
            store = open_async_store(self.store)
        with _option("--upstream-ca"):
            upstream = Upstream(
                self.upstream,
                timeouts=Timeouts(self.connect_timeout, self.read_timeout, self.write_timeout),
                connections=self.connections,
                keep_alive=self.keep_alive,
                ca=Path(self.upstream_ca) if self.upstream_ca else None,
            )
        with _option("--health"):
            return Gateway(
                upstream,
                store,
                caller=caller,
                policy=policy,
                key_header=self.upstream_header,
                rewrite_host=self.host_header == "upstream",
                trust_forwarded=self.forwarded == "append",
                health=self.health,
                drain=timedelta(seconds=self.drain),
            )

    def _caller(self) -> Any:
        ways = [bool(self.scope_header), bool(self.scope_claim), self.scope_public]
        if sum(ways) != 1:
            raise ConfigurationError(
                "say who a caller is by one of --scope-header, --scope-claim and --scope-public: there is no default, "
                "because every default lets one caller see another's answers"
            )
        if self.scope_public:
            return PUBLIC
        if self.scope_header:
            with _option("--scope-header"):
                return CallerHeader(self.scope_header)
        for option, value in (
            ("--jwks", self.jwks),
            ("--jwt-issuer", self.jwt_issuer),
            ("--jwt-audience", self.jwt_audience),
        ):
            if not value:
                raise ConfigurationError(f"{option} is needed with --scope-claim")
        with _option("--jwt-algorithms"):
            return CallerClaim(
                self.scope_claim,
                keys=self.jwks,
                issuer=self.jwt_issuer,
                audience=self.jwt_audience,
                algorithms=self.jwt_algorithms,
            )

    def _limits(self) -> Limits:
        given: dict[str, dict[str, Any]] = {
            "--new-keys": {"new_keys": self.new_keys or None},
            "--new-keys-in-all": {"new_keys_in_all": self.new_keys_in_all or None},
            "--new-keys-within": {"within": _seconds(self.new_keys_within)},
        }
        for option, fields in given.items():
            with _option(option):
                Limits(**fields)
        return Limits(**{name: value for fields in given.values() for name, value in fields.items()})

    def _policy(self) -> Policy:
        retention = self.retention if self.body_retention is None else self.body_retention
        rerun = RERUN.get(self.effects, ()) if self.rerun is None else self.rerun
        settings: dict[str, dict[str, Any]] = {
            "--effects": {"effects": self.effects},
            "--methods": {"methods": frozenset(self.methods)},
            "--header": {"header": self.header},
            "--key-syntax": {"key": KeyRule(self.key_syntax)},  # type: ignore[arg-type] # checked by the policy
            "--require-key": {"required": self.require_key},
            "--retention": {"key_retention": _seconds(self.retention), "body_retention": timedelta(0)},
            "--body-retention": {"key_retention": _seconds(self.retention), "body_retention": _seconds(retention)},
            "--lease": {"lease": _seconds(self.lease)},
            "--wait": {"wait": _seconds(self.wait)},
            "--released": {"released": frozenset(self.released)},
            "--rerun": {"rerun": frozenset(rerun)},
            "--store-cookies": {"store_cookies": self.store_cookies},
            "--body-limit": {"body_limit": self.body_limit},
            "--response-limit": {"response_limit": self.response_limit},
            "--problem-base": {"problem_base": self.problem_base},
        }
        settings["--new-keys"] = {"limits": self._limits()}
        together: dict[str, Any] = {}
        for option, fields in settings.items():
            with _option(option):
                Policy(**fields)
            together.update(fields)
        with _option("--header"):
            if not self.header:
                raise ConfigurationError("a header's name is needed")
        return Policy(**together)


def _seconds(value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        return timedelta.max


@contextmanager
def _option(name: str) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error


def to_environment(settings: Settings) -> None:
    """For `from_environment`, here or in a process that this one starts."""
    os.environ[VARIABLE] = json.dumps(asdict(settings))


def from_environment() -> Gateway:
    """The gateway whose settings stand in the environment, in the order of their making."""
    values = json.loads(os.environ[VARIABLE])
    given: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Settings(**given).application()
