"""What settings.TWICESAFE says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from django.conf import settings  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]
from django.core.signals import setting_changed  # type: ignore[import-untyped]
from django.utils.module_loading import import_string  # type: ignore[import-untyped]

from twicesafe.blocking.dealings import Shared
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Policy
from twicesafe.errors import ConfigurationError
from twicesafe.observe import log_events

SETTING: Final = "TWICESAFE"
KNOWN: Final = ("STORE", "SCOPE", "POLICY", "EVERY_VIEW", "OBSERVER")
DJANGO_STORE: Final = "twicesafe.stores.django.DjangoStore"
OPENS_URLS: Final = "twicesafe.stores.urls.open_store"

ScopeOf: TypeAlias = Callable[[Any], "Scope | None"]
"""Who the caller of an HttpRequest is."""


class SettingError(ConfigurationError, ImproperlyConfigured):  # type: ignore[misc]
    """A setting in TWICESAFE is missing or wrong. The message names it."""


class Configured(NamedTuple):
    """What the requests of one process have in common."""

    shared: Shared
    scope: ScopeOf
    policy: Policy
    every_view: bool


@cache
def configured() -> Configured:
    """The settings, read and checked once; SettingError. Nothing is connected to."""
    said = _said()
    every_view = said.get("EVERY_VIEW", False)
    if not isinstance(every_view, bool):
        raise _wrong("EVERY_VIEW", f"must be True or False, not {every_view!r}")
    observer = _found("OBSERVER", said.get("OBSERVER", log_events))
    if not callable(observer):
        raise _wrong("OBSERVER", "must be a function that takes an Event, or its dotted path")
    if "SCOPE" not in said:
        raise _wrong(
            "SCOPE",
            "is missing: give the dotted path of a function that says who the caller of a request is, or "
            '"twicesafe.PUBLIC" where everybody may share keys. There is no default, because every default lets one '
            "caller see another's answer",
        )
    return Configured(
        Shared(_store(said.get("STORE", "default")), observer), who_is(said["SCOPE"]), default_policy(), every_view
    )


@cache
def default_policy() -> Policy:
    """What operations that say nothing else go by."""
    policy = _found("POLICY", _said().get("POLICY", {}))
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, Mapping) or not all(isinstance(name, str) for name in policy):
        raise _wrong("POLICY", f"must be a Policy, its dotted path, or a dict of a Policy's settings, not {policy!r}")
    try:
        return Policy(**policy)
    except (ConfigurationError, TypeError) as error:
        raise _wrong("POLICY", f"is refused: {error}") from error


def who_is(scope: object) -> ScopeOf:
    """A function of HttpRequest that says who the caller is; by a dotted path, or PUBLIC."""
    found = _found("SCOPE", scope)
    if found is PUBLIC:
        return lambda _: PUBLIC
    if not callable(found):
        raise _wrong("SCOPE", "must be a function of HttpRequest, its dotted path, or PUBLIC")
    called: ScopeOf = found
    return called


def _said() -> Mapping[str, Any]:
    said = getattr(settings, SETTING, None)
    if said is None:
        raise SettingError(f'settings.{SETTING} is missing: it must be a dict with at least "SCOPE"')
    if not isinstance(said, Mapping):
        raise SettingError(f"settings.{SETTING} must be a dict, not {type(said).__name__}")
    for name in said:
        if name not in KNOWN:
            raise SettingError(f"settings.{SETTING} has no {name!r}: it takes {', '.join(KNOWN)}")
    return said


def _store(named: object) -> Any:
    """The store: of a database alias of Django's, by its URL, or by the dotted path of one or of what makes one."""
    try:
        if isinstance(named, str) and ":" in named:
            return import_string(OPENS_URLS)(named)
        if isinstance(named, str) and "." not in named:
            return import_string(DJANGO_STORE)(named)
    except ConfigurationError as error:
        raise _wrong("STORE", f"cannot be used: {error}") from error
    store = _found("STORE", named)
    if callable(store):
        store = store()
    if hasattr(store, "aclose"):
        raise _wrong("STORE", f"must be a blocking store, not {type(store).__name__}: Django's threads call it")
    if not hasattr(store, "claim"):
        raise _wrong("STORE", f"must be a database alias, a URL, or the dotted path of a store, not {named!r}")
    return store


def _found(name: str, value: object) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        raise _wrong(name, f"names {value!r}, which cannot be imported: {error}") from error


def _wrong(name: str, why: str) -> SettingError:
    return SettingError(f'settings.{SETTING}["{name}"] {why}')


def _forget(*, setting: str, **_: object) -> None:
    if setting == SETTING:
        configured.cache_clear()
        default_policy.cache_clear()


setting_changed.connect(_forget, dispatch_uid="twicesafe")
