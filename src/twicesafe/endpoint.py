"""What kind of callable an endpoint is, what it depends on, and how a framework that reads signatures sees it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import Parameter, Signature
from typing import Any, Final

from twicesafe.core.policy import Operation
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError

CHANGE_NOTHING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that an operation may serve beside those that it takes keys with: a form is shown and sent at one address."""


def _forms(endpoint: Callable[..., Any]) -> tuple[Any, ...]:
    """The shapes of a callable by which a framework judges how it is called."""
    while isinstance(endpoint, partial):
        endpoint = endpoint.func
    bare = inspect.unwrap(endpoint)
    return endpoint, bare, type(bare).__call__


def is_async(endpoint: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return any(map(inspect.iscoroutinefunction, _forms(endpoint)))


def yields_async(endpoint: Callable[..., Any]) -> bool:
    """Whether it is an asynchronous generator."""
    return any(map(inspect.isasyncgenfunction, _forms(endpoint)))


def yields(endpoint: Callable[..., Any]) -> bool:
    """Whether it is a generator of either kind."""
    return yields_async(endpoint) or any(map(inspect.isgeneratorfunction, _forms(endpoint)))


def signature(*parameters: Parameter, returns: Any = None) -> Signature:
    """A signature for a framework that passes everything by name. `returns` None is no annotation."""
    named = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    return Signature(named, return_annotation=Signature.empty if returns is None else returns)


def reaches(dependant: Any, call: Callable[..., Any]) -> bool:
    """Whether resolving a dependant, FastAPI's or one like it, calls `call`."""
    below = [] if dependant is None else dependant.dependencies
    return any(needed.call is call or reaches(needed, call) for needed in below)


def left_late(dependant: Any, call: Callable[..., Any]) -> str | None:
    """The name of a dependency that builds on `call` and is left only after the answer was sent, if there is one."""
    for needed in dependant.dependencies:
        if reaches(needed, call):
            # Before there were scopes, FastAPI left dependencies before it sent anything.
            late = yields(needed.call) and getattr(needed, "scope", "function") != "function"
            found = name_of(needed.call) if late else left_late(needed, call)
            if found is not None:
                return found
    return None


def name_of(endpoint: object) -> str:
    """What an endpoint is called."""
    return str(getattr(endpoint, "__name__", type(endpoint).__name__))


def qualified_name_of(endpoint: object) -> str:
    """What an endpoint is called, with its class where it is a method of one."""
    return str(getattr(endpoint, "__qualname__", None) or name_of(endpoint)).rpartition("<locals>.")[2]


def check_loop(operation: Operation, endpoint: Callable[..., Any]) -> None:
    """ConfigurationError where a transactional operation could not use its connection."""
    if operation.policy.effects is Effects.TRANSACTIONAL and not (is_async(endpoint) or yields_async(endpoint)):
        raise ConfigurationError(
            f"{operation.name!r} is transactional, and its connection belongs to the event loop: make it `async def`"
        )


def check_methods(operation: Operation, methods: set[str]) -> None:
    """ConfigurationError where a route has methods that its operation takes no key with."""
    others = sorted(methods - operation.policy.methods)
    if others:
        raise ConfigurationError(
            f"{operation.name!r} stands on a route for {', '.join(others)}, but takes keys with "
            f"{', '.join(sorted(operation.policy.methods))} only. Requests that change nothing need no key; for others "
            "name the route's methods in the operation's `methods`"
        )


def served_by(endpoint: object, its_class: type | None, methods: Iterable[str]) -> Iterator[tuple[Operation, set[str]]]:
    """The operations of a route, each with its methods that change something: of the function that serves them all, or
    of the class that has a function for each."""
    served = {method.upper() for method in methods} - CHANGE_NOTHING
    if its_class is None:
        found = [(endpoint, served)]
    else:
        found = [(getattr(its_class, method.lower(), None), {method}) for method in served]
    for function, here in found:
        operation = getattr(function, "twicesafe_operation", None)
        if operation is not None:
            yield operation, here


def check_gives_text(given: object) -> None:
    """ConfigurationError for the annotation of a scope that says it gives something else."""
    if isinstance(given, type) and not issubclass(given, str):
        raise ConfigurationError(
            f"scope must give a str that identifies the caller, not {given.__name__}: return its id, as text"
        )


def order_error(name: str) -> ConfigurationError:
    """What is wrong where the contract stands above the route's decorator."""
    return ConfigurationError(
        f"@safe.operation stands above the route's decorator on {name!r}, where the route cannot see it: put it below"
    )
