"""The contract of an operation. Every default argues for itself; a wrong setting is refused where it is made.

There is no global configuration: pass a Policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from twicesafe.core.carriers import Field
from twicesafe.core.fingerprint import FingerprintRule
from twicesafe.core.first_sent import FirstSent
from twicesafe.core.keys import KeyRule, plain_key
from twicesafe.core.limits import Limits
from twicesafe.core.problems import PROBLEMS, problem
from twicesafe.core.profiles import settings_of
from twicesafe.core.record import Effects, HeaderLines, Micros, StoredResponse
from twicesafe.core.replay import forgotten
from twicesafe.errors import ConfigurationError

DEFAULT_LEASE: Final = timedelta(seconds=30)
"""Renewed at a third, so two renewals may fail before anybody takes over. A crash blocks its key for this long and no
longer; a web server's usual request time-out is the same half minute."""

DEFAULT_RENEWED_FOR: Final = timedelta(hours=1)
"""Longer than any request is waited for. Work that hangs would keep its key for as long as its process lives (R27)."""

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

DEFAULT_HEADER_LIMIT: Final = 64 * 1024
"""Twice what the most generous of proxies pass on of an answer's header lines."""

MIN_LEASE: Final = timedelta(milliseconds=100)
"""Below this a garbage collection in the owner looks like its death."""

LONGEST: Final = timedelta(days=36_525)
"""A century. `timedelta.max` from now is an instant that no database can hold."""


class Duplicates(StrEnum):
    """Which answer a duplicate gets of an operation with a `rebuild`."""

    STORED = "stored"
    """The first one; one made anew only where its body is not kept."""
    REBUILT = "rebuilt"
    """One made anew: the state of today, under a status and a Location of its own."""


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
    """The header that carries the key; "" where only `fields` do."""
    fields: tuple[Field, ...] = ()
    """Where else it may stand. Keys in a body are looked for once the whole body is there."""
    key: KeyRule = KeyRule()
    empty_is_none: bool = False
    """Takes an empty key for none instead of refusing it. For callers of an API that has always done so (Square)."""
    per_operation_keys: bool = False
    fingerprint: FingerprintRule = FingerprintRule()
    lease: timedelta = DEFAULT_LEASE
    renewed_for: timedelta = DEFAULT_RENEWED_FOR
    """For how long a lease is renewed at most. Work that takes longer counts as broken off, as after a crash, whether
    or not it still goes on; jobs of hours have to say so here."""
    key_retention: timedelta = DEFAULT_RETENTION
    body_retention: timedelta = DEFAULT_RETENTION
    released: frozenset[int] = DEFAULT_RELEASED
    repeatable: frozenset[int] = frozenset()
    commits: frozenset[int] = frozenset()
    rerun: frozenset[int] = frozenset()
    """Failures, 400 and above, after which the next attempt runs again. Transactional work was rolled back and keyed
    work meets its derived keys; of opaque work nobody knows what it did, so its outcome is held as unknown."""
    body_limit: int = DEFAULT_BODY_LIMIT
    response_limit: int = DEFAULT_RESPONSE_LIMIT
    header_limit: int = DEFAULT_HEADER_LIMIT
    """Bytes of names and values of the header lines that are kept of an answer. With more, it is told as done and not
    kept, as one whose body is over `response_limit` is."""
    wait: timedelta = timedelta(0)
    limits: Limits = Limits()
    """How many keys callers may use for the first time, and how many duplicates may wait. By default new keys are not
    counted: how many are too many is known to nobody but the application."""
    store_cookies: bool = False
    """Whether a replay hands out the first answer's Set-Cookie lines again. They may be a session of the past (D3)."""
    unknown_on_error: bool = False
    """An exception of an opaque handler makes the outcome unknown instead of a stored 500 (R16). For operations whose
    unknown outcomes somebody settles: a reconciler, or an operator."""
    problem_base: str = "urn:twicesafe:problem:"
    """What problem types begin with; point it at your own documentation."""
    mismatch_status: int = 422
    in_progress_status: int = 409
    marker: str = "Idempotent-Replayed"
    """The header, always with the value `true`, that tells a replay. "" leaves replays unmarked: clients that take the
    marker for final (R37) then have to ask on."""
    retention_header: str = "Idempotency-Key-Retention"
    """Announces on every answer for how many seconds a key is remembered (R20). "" announces nothing."""
    echo_key: bool = False
    """Every answer names the key in the header that it came by (Adyen): the request was dealt with under it."""
    refuse_duplicates: bool = False
    """Who asks again for what is done is told `already-done`, 409, and where it is, instead of getting the first answer
    (GoCardless, Moov). Failures that were stored are replayed all the same: they are not done."""
    retryable_header: str = ""
    """The header in which a problem says `true` or `false`: whether to send the same request again
    (Stripe-Should-Retry). "" leaves it to the document's `retryable`."""
    result_header: str = ""
    """The header in which every answer says `accepted`, or `rejected` where the request was refused
    (Repeatability-Result)."""
    first_sent: FirstSent | None = None
    """A second header that every keyed request has to carry, and for how long it is good (OASIS Repeatable Requests).
    Needs `clock`."""
    duplicates: Duplicates = Duplicates.STORED
    """What an operation that rebuilds its answers gives a duplicate (R19)."""
    clock: Callable[[], float] | None = None
    """Seconds since the Unix epoch: `time.time`. For `first_sent` only, whose time is the caller's; leases and
    retention end on the store's clock (I12)."""

    lease_us: Micros = field(init=False, repr=False, compare=False)
    renewed_us: Micros = field(init=False, repr=False, compare=False)
    key_us: Micros = field(init=False, repr=False, compare=False)
    body_us: Micros = field(init=False, repr=False, compare=False)
    wait_us: Micros = field(init=False, repr=False, compare=False)
    header_name: bytes = field(init=False, repr=False, compare=False)
    """The carrier's name in lower case, as ASGI spells header names."""
    plain_key: Callable[[bytes], object] = field(init=False, repr=False, compare=False)
    """Truth for a header line that is the key as it stands; never where `fields` may name one as well. Of any other
    line it says nothing: see core.presented."""
    forgotten: frozenset[bytes] = field(init=False, repr=False, compare=False)
    """Names of header lines, in lower case, that no replay sends again."""
    marked: HeaderLines = field(init=False, repr=False, compare=False)
    """The line that tells a replay, or none."""
    announced: HeaderLines = field(init=False, repr=False, compare=False)
    """What every answer says of the contract. Added as it is sent, never recorded."""
    result: tuple[bytes, bytes] = field(init=False, repr=False, compare=False)
    """The line that tells what is no refusal."""
    key_name: str = field(init=False, repr=False, compare=False)
    """What problem documents call the key's carrier."""
    counts_keys: bool = field(init=False, repr=False, compare=False)
    """Whether a new key may be refused for want of room."""
    unrecorded: frozenset[int] = field(init=False, repr=False, compare=False)
    """Statuses that say that nothing was done, or may say it: what is not in here is recorded."""

    def __post_init__(self) -> None:
        write = object.__setattr__
        _as_member(self, "effects", Effects)
        _as_member(self, "duplicates", Duplicates)
        methods: object = self.methods
        # A single string would be a set of letters, none of which is a method.
        if not isinstance(methods, frozenset | set | tuple | list) or not all(
            isinstance(name, str) for name in methods
        ):
            raise ConfigurationError(f"methods must be a set of method names, not {methods!r}")
        write(self, "methods", frozenset(method.upper() for method in self.methods))
        if "OPTIONS" in self.methods:
            raise ConfigurationError(
                "methods must not name OPTIONS: it asks about other requests, and no preflight is ever claimed"
            )
        if "HEAD" in self.methods:
            raise ConfigurationError(
                "methods must not name HEAD: it does nothing, and what it tells of an answer is not that answer"
            )
        write(self, "key", self.key.checked())
        write(self, "fingerprint", self.fingerprint.checked())
        for name in ("released", "repeatable", "commits", "rerun"):
            write(self, name, _checked_statuses(name, getattr(self, name)))
        if any(status < 400 for status in self.rerun):
            raise ConfigurationError(
                f"rerun must hold statuses from 400 to 599, not {min(self.rerun)}: it names failures"
            )
        both = self.commits & self.rerun
        if both:
            raise ConfigurationError(
                f"commits must not name {min(both)}, which is in rerun: what is run again must not have kept effects"
            )
        both = self.commits & (self.released | self.repeatable)
        if both:
            raise ConfigurationError(
                f"commits must not name {min(both)}, which is released or repeatable: an answer cannot both keep "
                "effects and say that nothing was done"
            )
        for name, least in (
            ("lease", MIN_LEASE),
            ("renewed_for", timedelta(0)),
            ("key_retention", timedelta(seconds=1)),
            ("body_retention", timedelta(0)),
            ("wait", timedelta(0)),
        ):
            _check_duration(name, getattr(self, name), least)
        if self.body_retention > self.key_retention:
            raise ConfigurationError("body_retention must not be longer than key_retention: the body goes with its key")
        for name in ("body_limit", "response_limit", "header_limit"):
            limit = getattr(self, name)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
                raise ConfigurationError(f"{name} must be a number of bytes, 0 or more, not {limit!r}")
        write(self, "fields", _checked_fields(self.fields))
        if self.first_sent is not None:
            self.first_sent.check_rule(self.key_retention)
            if self.clock is None:
                raise ConfigurationError("first_sent compares times: pass clock=time.time")
        limits: object = self.limits
        if not isinstance(limits, Limits):
            raise ConfigurationError(f"limits must be a Limits, not {limits!r}")
        for name in ("header", "marker", "retention_header", "retryable_header", "result_header"):
            _check_header(name, getattr(self, name))
        if not self.header and not self.fields:
            raise ConfigurationError("header is empty and fields names nothing: the key has to stand somewhere")
        for name in ("mismatch_status", "in_progress_status"):
            status = getattr(self, name)
            if not isinstance(status, int) or not 400 <= status <= 499:
                raise ConfigurationError(f"{name} must be a status from 400 to 499, not {status!r}")
        write(self, "lease_us", self.lease // _MICROSECOND)
        write(self, "renewed_us", self.renewed_for // _MICROSECOND)
        write(self, "key_us", self.key_retention // _MICROSECOND)
        write(self, "body_us", self.body_retention // _MICROSECOND)
        write(self, "wait_us", self.wait // _MICROSECOND)
        write(self, "header_name", self.header.lower().encode("ascii"))
        write(self, "plain_key", _NEVER if self.fields or self.first_sent else plain_key(self.key))
        write(self, "unrecorded", self.released | self.repeatable | self.rerun | REFUSED_BEFORE_WORK)
        write(self, "marked", ((self.marker.lower().encode("ascii"), b"true"),) if self.marker else ())
        seconds = self.key_retention // timedelta(seconds=1)
        retention = (self.retention_header.lower().encode("ascii"), b"%d" % seconds)
        write(self, "announced", (retention,) if self.retention_header else ())
        own = [name for name, _ in (*self.marked, *self.announced)]
        write(self, "forgotten", forgotten(store_cookies=self.store_cookies, own=own))
        write(self, "result", (self.result_header.lower().encode("ascii"), b"accepted"))
        write(self, "counts_keys", self.limits.counts_keys)
        write(self, "key_name", self.header or self.fields[0].name)

    @classmethod
    def profile(cls, name: str, **changes: Any) -> Policy:
        """The rules of a vendor or a specification: "stripe-v1", "ietf", "acp" ... (docs/profiles.md lists them).

        `changes` are settings of the caller's own, `effects` for one. ConfigurationError for an unknown name.
        """
        return cls(**{**settings_of(name), **changes})

    def takes(self, method: str) -> bool:
        """Whether keys are taken with this method, in whatever case: to some frameworks and proxies `post` is POST."""
        return method.upper() in self.methods

    def keeps_effects(self, status: int) -> bool:
        """Whether a transactional operation that answers `status` commits what it did."""
        return status < 400 or status in self.commits

    @property
    def records_exceptions(self) -> bool:
        """Whether what a framework answers to an exception that nobody handled is the recorded answer (R16), for shells
        that see that answer. Otherwise what is open to another attempt is left open, and the answer sent as it is."""
        return self.effects is Effects.OPAQUE and not self.unknown_on_error

    def announcements(self, key: str, sent: Sequence[tuple[bytes, bytes]] = ()) -> HeaderLines:
        """The lines that every answer to a request under `key` gets as it is sent; "" is no key.

        `sent` are the lines it has: a refusal has said already that it is one.
        """
        lines = self.announced
        if self.echo_key and key:
            lines = (*lines, (self.header_name or b"idempotency-key", key.encode("ascii")))
        if self.result_header and all(name != self.result[0] for name, _ in sent):
            lines = (*lines, self.result)
        return lines

    def problem(
        self,
        kind: str,
        *,
        detail: str | None = None,
        status: int | None = None,
        retry_after: int | None = None,
        final: bool | None = None,
    ) -> tuple[int, HeaderLines, bytes]:
        """Status, header lines and body of a problem document, told as this policy tells its problems."""
        code, lines, body = problem(
            kind,
            header=self.key_name,
            base=self.problem_base,
            detail=detail,
            status=status,
            retry_after=retry_after,
            final=final,
        )
        if self.retryable_header:
            again = b"true" if PROBLEMS[kind].retryable else b"false"
            lines = (*lines, (self.retryable_header.lower().encode("ascii"), again))
        if self.result_header and kind not in _ACCEPTED:
            lines = (*lines, (self.result[0], b"rejected"))
        return code, lines, body

    def but(self, **changes: Any) -> Policy:
        """This policy with some settings changed; checked again."""
        return replace(self, **changes)


_MICROSECOND: Final = timedelta(microseconds=1)
_ACCEPTED: Final = frozenset({"handler-failed", "result-not-kept"})
"""Problems that are the operation's own answer, first or again."""
_NEVER: Final = re.compile(rb"(?!)").fullmatch
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _as_member(policy: Policy, name: str, choices: type[StrEnum]) -> None:
    value = getattr(policy, name)
    try:
        object.__setattr__(policy, name, choices(value))
    except ValueError:
        raise ConfigurationError(f"{name} must be one of {', '.join(choices)}, not {value!r}") from None


def _check_duration(name: str, value: object, least: timedelta) -> None:
    # None and 0 must never come to mean "free now" or "for ever".
    if not isinstance(value, timedelta) or not least <= value <= LONGEST:
        raise ConfigurationError(f"{name} must be a timedelta of at least {least} and at most a century, not {value!r}")


def _check_header(name: str, value: object) -> None:
    if not isinstance(value, str) or (value and _FIELD_NAME.fullmatch(value) is None):
        raise ConfigurationError(f"{name} must be a header name, not {value!r}")


def _checked_fields(fields: object) -> tuple[Field, ...]:
    if not isinstance(fields, tuple | list) or not all(isinstance(one, Field) and one.name for one in fields):
        raise ConfigurationError(
            f"fields must be a tuple of JsonMember, FormField and QueryParameter, each with a name, not {fields!r}"
        )
    return tuple(fields)


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
    rebuild: Callable[[StoredResponse, Any], Any] | None = field(default=None, compare=False, repr=False)
    """Makes the answer to a duplicate anew, out of what is stored of the first one, whose body may not be, and the
    duplicate's own request. It has to change nothing: see core.rebuilding."""

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not 1 <= len(name) <= 200:
            raise ConfigurationError(f"an operation's name must have 1 to 200 characters, not {name!r}")
        # Of a StrEnum, say, its text alone: stores know no other types.
        object.__setattr__(self, "name", str.__str__(name))
