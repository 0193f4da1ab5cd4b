"""The app: tables by `migrate`, records in the admin, and mistakes found by `check`."""

from __future__ import annotations

from django.apps import AppConfig  # type: ignore[import-untyped]
from django.core.checks import register  # type: ignore[import-untyped]

from twicesafe.django.checks import check_middleware, check_operations, check_settings


class TwicesafeConfig(AppConfig):  # type: ignore[misc]
    """`"twicesafe.django"` in INSTALLED_APPS."""

    name = "twicesafe.django"
    label = "twicesafe"
    verbose_name = "Idempotency"

    def ready(self) -> None:
        for check in (check_settings, check_middleware, check_operations):
            register(check, "twicesafe")
