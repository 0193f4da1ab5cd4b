"""Another system that is called under a key: where it takes the key, for how long it knows it, what its answers mean.

The rules are read from the same facts as a server's policy. They are the vendor's own; what nobody publishes is not
known here either, and is never guessed in the direction of sending twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from twicesafe.core.answers import Says, Wording, flag_in, is_replayed, judge, problem_of
from twicesafe.core.carriers import JsonMember
from twicesafe.core.contract import Contract
from twicesafe.core.keys import KeyRule, fitted
from twicesafe.core.phases import CallContract
from twicesafe.core.profiles import profiles, settings_of
from twicesafe.core.record import HeaderLines
from twicesafe.errors import ConfigurationError

TURNED_AWAY: Final = frozenset({401, 403, 407, 425, 429})
"""Not carried out, and no word on what was asked: the caller's credentials, or the hour, have to change."""

REFUSED: Final = frozenset(range(400, 500)) - TURNED_AWAY - {408, 409}
"""Not carried out, for good. 408 and 409 can be about the first of two: of a proxy that sent it twice, say."""

_SPEAKS_OF_THE_KEY: Final = frozenset({"key-reused", "in-progress", "outcome-unknown", "already-done"})
"""Kinds of problem documents."""


class Fate(Enum):
    """What became of what a call asked for."""

    UNSENT = auto()
    """Proved: not one byte of it left."""
    TURNED_AWAY = auto()
    """Not carried out this time."""
    REFUSED = auto()
    """Not carried out, for good."""
    DONE = auto()
    UNKNOWN = auto()


class Heard(NamedTuple):
    """What one answer tells."""

    fate: Fate
    replayed: bool = False
    """It is the recorded answer to every attempt, and so tells of all of them."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """What is known of another system. `Provider.of("stripe-v1")` is a vendor's, by the name of its profile.

    The key goes into `header`, or into the member `member` of a JSON body where that is named. It is taken with
    `methods`; PUT and DELETE, which may be repeated anyway, go out with others too. `remembers` is for how long it is
    known; None: nothing is ever sent twice. `refuses` are the statuses by which the provider says no for good,
    `turns_away` those by which it says not now; all others of an error leave open what came of it. So do errors that
    hold one of the codes `about_keys`. `in_progress` is the status by which it says that an earlier attempt is at work,
    and `directive` the header by which it says whether to try again; a client that retries obeys them.
    """

    name: str
    header: str = "Idempotency-Key"
    member: str = ""
    key: KeyRule = KeyRule()
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    remembers: timedelta | None = None
    refuses: frozenset[int] = REFUSED
    turns_away: frozenset[int] = TURNED_AWAY
    about_keys: tuple[str, ...] = ()
    marker: str = "Idempotent-Replayed"
    in_progress: int | None = None
    directive: str = ""

    def __post_init__(self) -> None:
        if not self.member and (not self.header or not self.header.isascii() or any(c in self.header for c in " \t:")):
            raise ConfigurationError(f"header must be a header name, not {self.header!r}")
        if self.refuses & self.turns_away:
            raise ConfigurationError("a status either refuses for good or turns away: name it in one of the two")
        object.__setattr__(self, "key", self.key.checked())
        # Every derived key is as long: what takes one takes all.
        fitted(str(UUID(int=0)), self.key)
        CallContract(self.remembers)

    @classmethod
    def of(cls, profile: str, **changes: Any) -> Provider:
        """A vendor, by the name of its profile, with `changes`. ConfigurationError for one that no key can be sent to.

        `remembers` is the vendor's published window; None where the vendor publishes none, or one for each interface
        apart: then say it.
        """
        known = _known_of_callers().get(profile, {})
        directive = known.get("directive", {}).get("header", "")
        if "keys" in known:
            return cls(name=profile, methods=frozenset(), directive=directive).but(**changes)
        settings = settings_of(profile)
        if "first_sent" in settings:
            raise ConfigurationError(f"{profile} compares the time of the first attempt, which no client here sends")
        facts: Mapping[str, Any] = profiles()[profile]
        # A retry may be answered by the status that says "at work", or by that of a mismatch.
        open_ = {settings.get("in_progress_status", 409)}
        at_work = settings.get("in_progress_status") if "from" in facts.get("in_flight", {}) else None
        # Where a mismatch or a duplicate has the same status, that one is final.
        if settings.get("refuse_duplicates") or at_work == settings.get("mismatch_status", 422):
            at_work = None
        if settings.get("refuse_duplicates"):
            open_.add(settings.get("mismatch_status", 409))
        fields = settings.get("fields", ())
        made = cls(
            name=profile,
            header=settings.get("header", "Idempotency-Key"),
            member=next((field.name for field in fields if isinstance(field, JsonMember)), ""),
            key=settings.get("key", KeyRule()),
            methods=settings.get("methods", frozenset({"POST", "PATCH"})),
            remembers=_published(facts.get("window", {}), settings.get("key_retention")),
            refuses=REFUSED - open_,
            turns_away=TURNED_AWAY - open_,
            about_keys=tuple(known.get("about_keys", {}).get("codes", ())),
            marker=settings.get("marker", cls.marker),
            in_progress=at_work,
            directive=directive or settings.get("retryable_header", ""),
        )
        return made.but(**changes)

    def but(self, **changes: Any) -> Provider:
        """This provider with some of it changed; checked again."""
        return replace(self, **changes)

    def takes_keys_as(self, other: Provider) -> bool:
        """Whether it is the same system, whatever else is known of it."""
        return (self.name, self.header, self.member, self.key) == (other.name, other.header, other.member, other.key)

    def fitted(self, key: str) -> str:
        """A derived key as this provider takes it: `unknown.derived_key("charge")`, say, to ask for it by."""
        return fitted(key, self.key)

    def hear(self, status: int, headers: HeaderLines, body: bytes | None) -> Heard:
        """What an answer tells. `body` is an error's decoded body, or None where it was not read."""
        replayed = self._is_replayed(headers)
        if status < 400:
            says = judge(status, headers, None, contract=Contract.KEYED).says
            if replayed or says is Says.DONE:
                return Heard(Fate.DONE, replayed)
            return Heard(Fate.TURNED_AWAY if says is Says.NOT_DONE else Fate.UNKNOWN)
        problem = problem_of(headers, body)
        if problem.kind in _SPEAKS_OF_THE_KEY or problem.safe_new_key is False or self._names_the_key(body):
            return Heard(Fate.UNKNOWN)
        if status in self.turns_away:
            return Heard(Fate.TURNED_AWAY)
        if status in self.refuses:
            return Heard(Fate.REFUSED, replayed)
        return Heard(Fate.UNKNOWN)

    def wording(self) -> Wording:
        """What a client that retries has to know of its answers."""
        return Wording(
            self.marker.lower().encode("ascii"),
            self.directive.lower().encode("ascii"),
            self.in_progress or 0,
            tuple(code.encode("ascii") for code in self.about_keys),
        )

    def _is_replayed(self, headers: HeaderLines) -> bool:
        return is_replayed(headers) or flag_in(headers, self.marker.lower().encode("ascii")) is True

    def _names_the_key(self, body: bytes | None) -> bool:
        """Whether the error speaks of the key. A code that stands there by chance holds a call, and charges nobody."""
        return body is not None and any(code.encode("ascii") in body for code in self.about_keys)


def _published(fact: Mapping[str, Any], window: timedelta | None) -> timedelta | None:
    return window if "from" in fact else None


@cache
def _known_of_callers() -> Mapping[str, Mapping[str, Any]]:
    """providers.toml, as it stands."""
    # Not before somebody wants a provider: importing twicesafe reads no file.
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("twicesafe.core").joinpath("providers.toml").read_text("utf-8"))
