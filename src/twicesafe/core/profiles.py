"""The rules of vendors and specifications as settings of a policy, made from the facts in profiles.toml.

The file is read once, when the first profile is asked for. What a fact is called there and which setting it becomes
stands here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from twicesafe.core.carriers import JsonMember
from twicesafe.core.fingerprint import ADDRESS, JSON, RAW, FingerprintRule
from twicesafe.core.first_sent import FirstSent
from twicesafe.core.keys import MAX_KEY_LENGTH, KeyRule, KeySyntax
from twicesafe.errors import ConfigurationError

Fact = Mapping[str, Any]
"""One line of a profile: what is so, and `from` where that is known or why it is `chosen`."""

RELEASED: Final = frozenset({408, 425, 429, 503})
"""What every profile releases: a handler answers these only when it did nothing, whoever's rules it follows."""

_COMPARED: Final = {"raw": RAW, "json": JSON, "address": ADDRESS}


@cache
def profiles() -> Mapping[str, Mapping[str, Any]]:
    """Every profile by name, as it stands in the file."""
    # Not before somebody wants a profile: importing twicesafe reads no file.
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("twicesafe.core").joinpath("profiles.toml").read_text("utf-8"))


def settings_of(name: str) -> dict[str, Any]:
    """The settings that differ from a policy's own. ConfigurationError, listing the names, where there is none."""
    known = profiles()
    if name not in known:
        raise ConfigurationError(f"there is no profile {name!r}; there are {', '.join(sorted(known))}")
    settings: dict[str, Any] = {}
    for axis, make in AXES.items():
        if axis in known[name]:
            settings |= make(known[name][axis])
    return settings


def statuses(named: Iterable[str]) -> frozenset[int]:
    """What "404", "4xx" and "501-599" name together."""
    found: set[int] = set()
    for text in named:
        first, _, last = text.partition("-")
        if text.endswith("xx"):
            first, last = f"{text[0]}00", f"{text[0]}99"
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _carrier(fact: Fact) -> dict[str, Any]:
    if "json" in fact:
        return {"header": "", "fields": (JsonMember(fact["json"]),)}
    return {"header": fact["header"]}


def _key(fact: Fact) -> dict[str, Any]:
    syntax = KeySyntax(fact.get("syntax", KeySyntax.OPAQUE))
    rule = KeyRule(syntax, fact.get("min", 1), fact.get("max", MAX_KEY_LENGTH), fact.get("punctuation"))
    return {"key": rule}


def _comparison(fact: Fact) -> dict[str, Any]:
    headers = tuple(name.encode("ascii") for name in fact.get("headers", ()))
    return {"fingerprint": FingerprintRule(_COMPARED[fact["by"]], headers)}


def _window(fact: Fact) -> dict[str, Any]:
    window = _duration(fact)
    return {"key_retention": window, "body_retention": window}


def _stored(fact: Fact) -> dict[str, Any]:
    rerun = statuses(fact.get("rerun", ())) - RELEASED
    return {
        "released": RELEASED | statuses(fact.get("released", ())),
        "rerun": rerun,
        # An exception is a 500 that nobody wrote down.
        "unknown_on_error": 500 in rerun,
    }


def _first_sent(fact: Fact) -> dict[str, Any]:
    return {"first_sent": FirstSent(fact["header"], _duration(fact))}


def _duration(fact: Fact) -> timedelta:
    return timedelta(**{unit: fact[unit] for unit in ("minutes", "hours", "days") if unit in fact})


AXES: Final = {
    "carrier": _carrier,
    "key": _key,
    "methods": lambda fact: {"methods": frozenset(fact["only"])},
    "required": lambda fact: {"required": fact["always"]},
    "empty": lambda fact: {"empty_is_none": fact["none"]},
    "namespace": lambda fact: {"per_operation_keys": fact["per_operation"]},
    "comparison": _comparison,
    "window": _window,
    "stored": _stored,
    "duplicates": lambda fact: {"refuse_duplicates": fact["refused"]},
    "mismatch": lambda fact: {"mismatch_status": fact["status"]},
    "in_flight": lambda fact: {"in_progress_status": fact["status"]},
    "replay": lambda fact: {"marker": fact["marker"]},
    "echo": lambda fact: {"echo_key": fact["always"]},
    "directive": lambda fact: {"retryable_header": fact["header"]},
    "result": lambda fact: {"result_header": fact["header"]},
    "first_sent": _first_sent,
}
"""What a profile can say, and the settings that follow from it."""
