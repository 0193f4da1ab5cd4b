"""A Django project, as its settings and its addresses tell it. Django is there if somebody else has imported it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from twicesafe.core.keys import PUBLIC
from twicesafe.core.policy import Operation
from twicesafe.doctor.subject import Guard, Layer, Route, Subject

OURS: Final = "twicesafe.django.IdempotencyMiddleware"
LOGIN: Final = "django.contrib.auth.middleware.AuthenticationMiddleware"


def is_django(app: Any) -> bool:
    """Whether this is what get_wsgi_application() or get_asgi_application() gives."""
    return any(kind.__module__.startswith("django.core.handlers") for kind in type(app).__mro__)


def examine_django(app: Any, subject: Subject, outside: list[Layer]) -> None:
    """Add what is found. SettingError where the settings are refused."""
    subject.asgi = "asgi" in type(app).__module__.rpartition(".")[2]
    settings = sys.modules["django.conf"].settings
    names = list(settings.MIDDLEWARE)
    if LOGIN in names:
        subject.knows_callers = LOGIN
    if OURS not in names:
        return
    here = names.index(OURS)
    configured = import_module("twicesafe.django.configuration").configured()
    contract = import_module("twicesafe.django.contract")
    operations: list[Operation] = list(contract.known.values())
    if configured.every_view:
        operations.append(Operation("every view", configured.policy))
    subject.routes += _routes(import_module("django.urls").get_resolver().url_patterns, "", contract)
    subject.guards.append(
        Guard(
            OURS,
            configured.shared.store,
            PUBLIC if _is_public(configured.scope) else configured.scope,
            operations,
            outside=[*outside, *[Layer(name) for name in names[:here]]],
            inside=[Layer(name) for name in names[here + 1 :]],
            every_route=configured.every_view,
            asks="django",
        )
    )


def _is_public(scope: Any) -> bool:
    return str(scope.__module__).startswith("twicesafe.django") and scope(None) is PUBLIC


def _routes(patterns: Any, prefix: str, contract: Any) -> Iterator[Route]:
    """Views that say which methods they take: classes do."""
    for pattern in patterns:
        path = f"{prefix}{pattern.pattern}"
        within = getattr(pattern, "url_patterns", None)
        if within is not None:
            yield from _routes(within, path, contract)
            continue
        view_class = getattr(pattern.callback, "view_class", None) or getattr(pattern.callback, "cls", None)
        for method in ("POST", "PATCH"):
            declared = contract.contract_of(pattern.callback, method)
            if declared is not None:
                operation = declared.operation(pattern.callback)
                yield Route(frozenset({method}), path, pattern.callback, operation)
                if view_class is None:
                    break
            elif view_class is not None and hasattr(view_class, method.lower()):
                yield Route(frozenset({method}), path, getattr(view_class, method.lower()), None)
