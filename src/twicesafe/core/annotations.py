"""What annotations say, each found out by itself: a name that exists for type checkers only hides no other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

from twicesafe.errors import ConfigurationError


def bare(function: Callable[..., Any]) -> Any:
    """What is called in the end: without arguments given beforehand, and without decorators."""
    return inspect.unwrap(function.func if isinstance(function, partial) else function)


def called(function: Any) -> str:
    """A function's name, or its class's."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def hints_of(function: Any) -> dict[str, Any]:
    """What is known of a function's parameters and its result. ConfigurationError for a result that cannot be known."""
    if isinstance(function, type):
        made: Any = function
        return hints_of_class(function) | _hints_of(made.__init__) | {"return": function}
    call = type(function).__call__
    # Of an object its class's annotations are those of its fields.
    annotated = call if hasattr(call, "__annotations__") else function
    hints = _hints_of(annotated)
    said = getattr(annotated, "__annotations__", {})
    if "return" in said and "return" not in hints:
        # Arguments are judged when they are there; for the result that is too late, because the work is done then.
        raise ConfigurationError(
            f"{called(function)} says that it gives {said['return']}, which cannot be found when it runs: import it "
            "for more than type checkers, so that the result can be kept"
        )
    return {"return": Any} | hints


def _hints_of(annotated: Any) -> dict[str, Any]:
    try:
        return get_type_hints(annotated)
    except Exception:  # noqa: BLE001 - annotations are the author's own words, and may come to anything
        names = getattr(annotated, "__globals__", {})
        annotations = getattr(annotated, "__annotations__", {})
        return _each(annotations, lambda one: get_type_hints(SimpleNamespace(__annotations__=one), names))


def hints_of_class(cls: type) -> dict[str, Any]:
    """What is known of a class's fields."""
    try:
        return get_type_hints(cls)
    except Exception:  # noqa: BLE001 - see above
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            found |= _each(inspect.get_annotations(base), partial(_of_field, base, {**vars(base), cls.__name__: cls}))
        return found


def _of_field(base: type, names: Mapping[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    return get_type_hints(type("Like", (), {"__module__": base.__module__, "__annotations__": one}), localns=names)


def _each(annotations: Mapping[str, Any], hints: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, hint in annotations.items():
        try:
            found |= hints({name: hint})
        except Exception:  # noqa: BLE001, S112 - what comes is judged when it is there
            continue
    return found
