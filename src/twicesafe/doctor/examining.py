"""Takes an application apart without running it. Frameworks are known by what their objects have; none is imported.

What stands outside is first: a chain of middlewares each of which has the next one in an attribute, down to an
application of a framework, which has a list of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from twicesafe.core.keys import PUBLIC
from twicesafe.core.policy import Operation
from twicesafe.doctor.djangos import examine_django, is_django
from twicesafe.doctor.elsewhere import guards_in
from twicesafe.doctor.subject import Guard, Layer, Route, Subject, name_of, public_or

CHANGING: Final = frozenset({"POST", "PATCH"})
"""PUT and DELETE are idempotent by what HTTP says of them."""
WITHIN: Final = ("app", "_app", "wsgi_app", "application", "_application", "wrapped", "inner", "get_response")
"""Attributes in which middlewares keep what they stand around."""
DEPTH: Final = 50


def examine(app: Any) -> Subject:
    """What it is made of."""
    subject, whole = Subject(asgi=True), app
    outside: list[Layer] = []
    for _ in range(DEPTH):
        if is_django(app):
            examine_django(app, subject, outside)
            break
        if hasattr(app, "user_middleware") and hasattr(app, "routes"):
            _examine_starlette(app, subject, outside)
            break
        if hasattr(app, "wsgi_app") and hasattr(app, "url_map"):
            subject.asgi = False
            _examine_flask(app, subject, outside)
            break
        outside, app, ended = _step_inside(app, subject, outside)
        if ended:
            break
    if not subject.guards:
        subject.guards += guards_in(whole)
    return subject


def _step_inside(app: Any, subject: Subject, outside: list[Layer]) -> tuple[list[Layer], Any, bool]:
    """One middleware further in."""
    guard = _middleware(app)
    held = next((name for name in WITHIN if callable(getattr(app, name, None))), None)
    if guard is not None:
        guard.outside = list(outside)
        subject.guards.append(guard)
        subject.asgi = guard.asks == "asgi"
    elif held is not None:
        outside = [*outside, Layer(name_of(app), _held_by(app, held))]
        for earlier in subject.guards:
            earlier.inside.append(outside[-1])
    return outside, app if held is None else getattr(app, held), held is None


def _held_by(layer: Any, name: str) -> Callable[[Any], Any]:
    """The layer itself, around another application for one call."""

    def around(inner: Any) -> Any:
        def call(*arguments: Any) -> Any:
            before = getattr(layer, name)
            setattr(layer, name, inner)
            try:
                return layer(*arguments)
            finally:
                # A coroutine has only begun by now; it is run while its layer is looked at and nothing else.
                if not hasattr(inner, "is_asynchronous"):
                    setattr(layer, name, before)

        return call

    return around


def _middleware(app: Any) -> Guard | None:
    """One of twicesafe's two middlewares for any application."""
    module = type(app).__module__
    if type(app).__name__ != "IdempotencyMiddleware" or module not in ("twicesafe.asgi", "twicesafe.wsgi"):
        return None
    operation = app._operation  # noqa: SLF001 - of the house
    return Guard(
        name_of(app),
        app._shared.store,  # noqa: SLF001 - of the house
        public_or(app._who),  # noqa: SLF001 - of the house
        [] if operation is None else [operation],
        every_route=operation is not None,
        asks="asgi" if module == "twicesafe.asgi" else "environ",
    )


# --- Starlette and FastAPI -------------------------------------------------------------------------------------------


def _examine_starlette(app: Any, subject: Subject, outside: list[Layer]) -> None:
    layers = list(outside)
    for entry in app.user_middleware:
        guard = _guard_of(entry)
        if guard is None:
            layers.append(Layer(name_of(entry.cls), partial(_built, entry)))
            for earlier in subject.guards:
                earlier.inside.append(layers[-1])
        else:
            guard.outside = list(layers)
            subject.guards.append(guard)
    subject.routes += _starlette_routes(app, "")
    for guard in subject.guards:
        if not guard.every_route:
            guard.operations = guard.operations or [one.operation for one in subject.routes if one.operation]
    subject.knows_callers = subject.knows_callers or _secured(app)


def _built(entry: Any, inner: Any) -> Any:
    return entry.cls(inner, *entry.args, **entry.kwargs)


def _guard_of(entry: Any) -> Guard | None:
    """Ours, out of an entry of `user_middleware`."""
    made = entry.cls
    if name_of(made).startswith("twicesafe.asgi.IdempotencyMiddleware"):
        return _middleware(_built(entry, _nothing))
    if not str(getattr(made, "__module__", "")).startswith(("twicesafe.fastapi", "twicesafe.starlette")):
        return None
    safe = next((cell.cell_contents for cell in made.__closure__ or ()), None)
    if safe is None:
        return None
    fastapi = type(safe).__module__ == "twicesafe.fastapi"
    scope: Any = PUBLIC
    if not fastapi:
        scope = public_or(safe._who)  # noqa: SLF001 - of the house
    elif safe._caller:  # noqa: SLF001 - of the house
        scope = safe._caller[0].default.dependency  # noqa: SLF001 - of the house
    return Guard(
        name_of(safe),
        safe._shared.store,  # noqa: SLF001 - of the house
        scope,
        list(safe._operations.values()),  # noqa: SLF001 - of the house
        asks="dependency" if fastapi else "request",
    )


async def _nothing(*_: Any) -> None:
    """An application, for a middleware that is made to be looked at."""


def _starlette_routes(routed: Any, prefix: str) -> Iterator[Route]:
    for route in getattr(routed, "routes", None) or ():
        path = prefix + str(getattr(route, "path", ""))
        yield from _starlette_routes(route, path)
        endpoint = getattr(route, "endpoint", None)
        if endpoint is None:
            continue
        if isinstance(endpoint, type):
            for method in CHANGING:
                function = getattr(endpoint, method.lower(), None)
                if function is not None:
                    yield Route(frozenset({method}), path, function, operation_of(function))
        elif methods := CHANGING & set(getattr(route, "methods", None) or ()):
            yield Route(frozenset(methods), path, endpoint, operation_of(endpoint))


def operation_of(endpoint: Any) -> Operation | None:
    """The operation that an endpoint is."""
    found = getattr(endpoint, "twicesafe_operation", None)
    return found if isinstance(found, Operation) else None


def _secured(app: Any) -> str:
    """A dependency of a FastAPI route that asks for credentials."""
    for route in getattr(app, "routes", ()):
        left = [getattr(route, "dependant", None)]
        while left:
            one = left.pop()
            if one is not None:
                left += one.dependencies
                kind = type(one.call)
                if any(base.__module__.startswith("fastapi.security") for base in kind.__mro__):
                    return f"{kind.__name__} on {route.path}"
    return ""


# --- Flask -----------------------------------------------------------------------------------------------------------


def _examine_flask(app: Any, subject: Subject, outside: list[Layer]) -> None:
    layers, held = list(outside), app.wsgi_app
    known = dict.fromkeys(app.extensions.get("twicesafe", ()))
    for _ in range(DEPTH):
        within = getattr(held, "_app", None) if type(held).__module__ == "twicesafe.flask" else None
        if within is not None:
            safe = next((one for one in known if one._contracts is held._contracts), None)  # noqa: SLF001 - of the house
            subject.guards.append(_of_flask(safe, held, layers))
            held = within
            continue
        guard = _middleware(held)
        name = next((name for name in WITHIN if callable(getattr(held, name, None))), None)
        if name is None:
            break
        if guard is not None:
            guard.outside = list(layers)
            subject.guards.append(guard)
        else:
            layers.append(Layer(name_of(held), _held_by(held, name)))
            for earlier in subject.guards:
                earlier.inside.append(layers[-1])
        held = getattr(held, name)
    every = [guard for guard in subject.guards if guard.asks == "context" and guard.every_route]
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        methods = CHANGING & set(rule.methods or ())
        if view is not None and methods:
            operation = operation_of(view) or (every[0].operations[0] if every and every[0].operations else None)
            subject.routes.append(Route(frozenset(methods), str(rule.rule), view, operation))
    if "flask_login" in sys.modules and hasattr(app, "login_manager"):
        subject.knows_callers = "flask_login"


def _of_flask(safe: Any, layer: Any, layers: list[Layer]) -> Guard:
    operations = list(safe._contracts.operations.values())  # noqa: SLF001 - of the house
    every = safe._every_view  # noqa: SLF001 - of the house
    if every:
        operations.append(Operation("every view", safe._contracts.policy))  # noqa: SLF001 - of the house
    return Guard(
        "twicesafe.flask.Idempotency",
        layer._shared.store,  # noqa: SLF001 - of the house
        public_or(safe._scope),  # noqa: SLF001 - of the house
        operations,
        outside=list(layers),
        every_route=every,
        asks="context",
    )
