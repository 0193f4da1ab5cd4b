"""What kind of callable an endpoint is, and how it is shown to a framework that reads signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from typing import Any

from twicesafe.core.policy import Operation
from twicesafe.errors import ConfigurationError


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


def name_of(endpoint: object) -> str:
    """What an endpoint is called."""
    return str(getattr(endpoint, "__name__", type(endpoint).__name__))


def check_methods(operation: Operation, methods: set[str]) -> None:
    """ConfigurationError where a route has methods that its operation takes no key with."""
    others = sorted(methods - operation.policy.methods)
    if others:
        raise ConfigurationError(
            f"{operation.name!r} stands on a route for {', '.join(others)}, but takes keys with "
            f"{', '.join(sorted(operation.policy.methods))} only. Requests that change nothing need no key; for others "
            "name the route's methods in the operation's `methods`"
        )
