"""What `manage.py check` finds wrong."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings  # type: ignore[import-untyped]
from django.core.checks import Error, Warning  # type: ignore[import-untyped] # noqa: A004 - Django's names for them

from twicesafe.django.configuration import SettingError, configured
from twicesafe.django.contract import known
from twicesafe.errors import ConfigurationError
from twicesafe.operations import check_effects

OURS: Final = "twicesafe.django.IdempotencyMiddleware"
OUTSIDE: Final = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
)
"""Their answers to a retry are the retry's own: who the caller is, which session, which cookie."""


def check_settings(**_: Any) -> list[Any]:
    """twicesafe.E001: settings.TWICESAFE is missing or wrong."""
    try:
        configured()
    except SettingError as error:
        return [Error(str(error), id="twicesafe.E001")]
    return []


def check_middleware(**_: Any) -> list[Any]:
    """twicesafe.W001, E002 and E003: where the middleware stands."""
    names = list(settings.MIDDLEWARE)
    if OURS not in names:
        return [
            Warning(
                "no request is protected: the middleware is missing",
                hint=f"Add {OURS!r} to MIDDLEWARE, as the last one.",
                id="twicesafe.W001",
            )
        ]
    if names.count(OURS) > 1:
        return [Error(f"{OURS!r} stands in MIDDLEWARE more than once", id="twicesafe.E003")]
    inside = names[names.index(OURS) + 1 :]
    return [
        Error(
            f"{OURS!r} stands before {name!r}: what that one answers would be recorded, and sent to whoever retries",
            hint=f"Make {OURS!r} the last one in MIDDLEWARE.",
            id="twicesafe.E002",
        )
        for name in OUTSIDE
        if name in inside
    ]


def check_operations(**_: Any) -> list[Any]:
    """twicesafe.E004: an operation declares what the store cannot do."""
    found = []
    for operation in list(known.values()):
        try:
            check_effects(operation, configured().shared.store)
        except SettingError:
            return []
        except ConfigurationError as error:
            found.append(Error(str(error), id="twicesafe.E004"))
    return found
