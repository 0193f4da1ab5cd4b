"""The contract of an operation. Every default argues for itself; a wrong setting is refused where it is made.

There is no global configuration: pass a Policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from twicesafe.core.fingerprint import FingerprintRule
from twicesafe.core.keys import KeyRule, plain_key
from twicesafe.core.record import Effects, Micros
from twicesafe.core.replay import forgotten
from twicesafe.errors import ConfigurationError

DEFAULT_LEASE: Final = timedelta(seconds=30)
"""Renewed at a third, so two renewals may fail before anybody takes over. A crash blocks its key for this long and no
longer; a web server's usual request time-out is the same half minute."""

DEFAULT_RETENTION: Final = timedelta(hours=24)
"""Stripe v1, Dwolla, Checkout.com and ACP's floor. Longer than any retry path of an interactive client; batch clients
that come back after a weekend want 72 hours, and payment ledgers 30 days."""

DEFAULT_RELEASED: Final = frozenset({408, 425, 429, 503})
"""Answers that a handler gives only when it did nothing (R15). Stored, they would return for a day, however long the
client backs off."""

REFUSED_BEFORE_WORK: Final = frozenset({401, 405, 413, 415})
"""Answers that HTTP defines as refusals of the request itself. Where a shell cannot see whether the handler was
entered, these are taken to mean that it was not."""

DEFAULT_BODY_LIMIT: Final = 1024 * 1024
"""nginx's client_max_body_size. The whole body is read before anything is claimed, so it has to have a limit."""

DEFAULT_RESPONSE_LIMIT: Final = 1024 * 1024
"""A larger answer reaches its first caller whole; retries are told that it is done and not kept (R18)."""

MIN_LEASE: Final = timedelta(milliseconds=100)
"""Below this a garbage collection in the owner looks like its death."""

LONGEST: Final = timedelta(days=36_525)
"""A century. `timedelta.max` from now is an instant that no database can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What twicesafe does for one operation, or for all that name no other.

    `effects` is the one thing only the application knows; the default assumes the worst. `wait` makes a duplicate wait
    for the first attempt instead of being told 409 at once; it costs a connection of the caller's, none of the store's.
    `repeatable` names statuses released in addition to `released`; `commits` names statuses of 400 and above whose
    effects a transactional operation keeps (a declined attempt that must leave a row), because by default a failure
    answer rolls its effects back.
    """

    effects: Effects = Effects.OPAQUE
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    required: bool = False
    header: str = "Idempotency-Key"
    key: KeyRule = KeyRule()
    per_operation_keys: bool = False
    fingerprint: FingerprintRule = FingerprintRule()
    lease: timedelta = DEFAULT_LEASE
    key_retention: timedelta = DEFAULT_RETENTION
    body_retention: timedelta = DEFAULT_RETENTION
    released: frozenset[int] = DEFAULT_RELEASED
    repeatable: frozenset[int] = frozenset()
    commits: frozenset[int] = frozenset()
    body_limit: int = DEFAULT_BODY_LIMIT
    response_limit: int = DEFAULT_RESPONSE_LIMIT
    wait: timedelta = timedelta(0)
    store_cookies: bool = False
    """Whether a replay hands out the first answer's Set-Cookie lines again. They may be a session of the past (D3)."""
    unknown_on_error: bool = False
    """An exception of an opaque handler makes the outcome unknown instead of a stored 500 (R16). For operations whose
    unknown outcomes somebody settles: a reconciler, or an operator."""
    problem_base: str = "urn:twicesafe:problem:"
    """What problem types begin with; point it at your own documentation."""

    lease_us: Micros = field(init=False, repr=False, compare=False)
    key_us: Micros = field(init=False, repr=False, compare=False)
    body_us: Micros = field(init=False, repr=False, compare=False)
    wait_us: Micros = field(init=False, repr=False, compare=False)
    header_name: bytes = field(init=False, repr=False, compare=False)
    """The carrier's name in lower case, as ASGI spells header names."""
    plain_key: Callable[[bytes], object] = field(init=False, repr=False, compare=False)
    """Truth for a header line that is a key as it stands. Of any other line it says nothing: see keys.parse_key."""
    forgotten: frozenset[bytes] = field(init=False, repr=False, compare=False)
    """Names of header lines, in lower case, that no replay sends again."""
    unrecorded: frozenset[int] = field(init=False, repr=False, compare=False)
    """Statuses that say that nothing was done, or may say it: what is not in here is recorded."""

    def __post_init__(self) -> None:
        write = object.__setattr__
        try:
            write(self, "effects", Effects(self.effects))
        except ValueError:
            choices = ", ".join(Effects)
            raise ConfigurationError(f"effects must be one of {choices}, not {self.effects!r}") from None
        methods: object = self.methods
        # A single string would be a set of letters, none of which is a method.
        if not isinstance(methods, frozenset | set | tuple | list) or not all(
            isinstance(name, str) for name in methods
        ):
            raise ConfigurationError(f"methods must be a set of method names, not {methods!r}")
        write(self, "methods", frozenset(method.upper() for method in self.methods))
        write(self, "key", self.key.checked())
        write(self, "fingerprint", self.fingerprint.checked())
        for name in ("released", "repeatable", "commits"):
            write(self, name, _checked_statuses(name, getattr(self, name)))
        both = self.commits & (self.released | self.repeatable)
        if both:
            raise ConfigurationError(
                f"commits must not name {min(both)}, which is released or repeatable: an answer cannot both keep "
                "effects and say that nothing was done"
            )
        for name, least in (
            ("lease", MIN_LEASE),
            ("key_retention", timedelta(seconds=1)),
            ("body_retention", timedelta(0)),
            ("wait", timedelta(0)),
        ):
            _check_duration(name, getattr(self, name), least)
        if self.body_retention > self.key_retention:
            raise ConfigurationError("body_retention must not be longer than key_retention: the body goes with its key")
        for name in ("body_limit", "response_limit"):
            limit = getattr(self, name)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
                raise ConfigurationError(f"{name} must be a number of bytes, 0 or more, not {limit!r}")
        header: object = self.header
        if not isinstance(header, str) or _FIELD_NAME.fullmatch(header) is None:
            raise ConfigurationError(f"header must be a header name, not {header!r}")
        write(self, "lease_us", self.lease // _MICROSECOND)
        write(self, "key_us", self.key_retention // _MICROSECOND)
        write(self, "body_us", self.body_retention // _MICROSECOND)
        write(self, "wait_us", self.wait // _MICROSECOND)
        write(self, "header_name", self.header.lower().encode("ascii"))
        write(self, "plain_key", plain_key(self.key))
        write(self, "forgotten", forgotten(store_cookies=self.store_cookies))
        write(self, "unrecorded", self.released | self.repeatable | REFUSED_BEFORE_WORK)

    def keeps_effects(self, status: int) -> bool:
        """Whether a transactional operation that answers `status` commits what it did."""
        return status < 400 or status in self.commits

    def but(self, **changes: Any) -> Policy:
        """This policy with some settings changed; checked again."""
        return replace(self, **changes)


_MICROSECOND: Final = timedelta(microseconds=1)
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _check_duration(name: str, value: object, least: timedelta) -> None:
    # None and 0 must never come to mean "free now" or "for ever".
    if not isinstance(value, timedelta) or not least <= value <= LONGEST:
        raise ConfigurationError(f"{name} must be a timedelta of at least {least} and at most a century, not {value!r}")


def _checked_statuses(name: str, value: Iterable[object]) -> frozenset[int]:
    try:
        statuses = frozenset(value)
    except TypeError:
        raise ConfigurationError(f"{name} must be a set of statuses, not {value!r}") from None
    checked = frozenset(status for status in statuses if isinstance(status, int) and 200 <= status <= 599)
    if checked != statuses:
        raise ConfigurationError(f"{name} must hold statuses from 200 to 599, not {value!r}")
    return checked


@dataclass(frozen=True, slots=True)
class Operation:
    """A named operation and its policy. The name is what operators see and, by choice, part of the key's identity."""

    name: str
    policy: Policy = Policy()

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not 1 <= len(name) <= 200:
            raise ConfigurationError(f"an operation's name must have 1 to 200 characters, not {name!r}")
        # Of a StrEnum, say, its text alone: stores know no other types.
        object.__setattr__(self, "name", str.__str__(name))
