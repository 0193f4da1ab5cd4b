"""What an application is made of, as far as it concerns twicesafe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from twicesafe.core.keys import PUBLIC
from twicesafe.core.policy import Operation


class Layer(NamedTuple):
    """A middleware. `around` puts it, or another like it, around another application; None where that cannot be."""

    name: str
    around: Callable[[Any], Any] | None = None


class Route(NamedTuple):
    """What an address leads to, by methods that may change something."""

    methods: frozenset[str]
    path: str
    endpoint: Any
    operation: Operation | None


@dataclass
class Guard:
    """One part of twicesafe that claims, and where it stands."""

    name: str
    store: Any
    scope: Any
    """A function, or PUBLIC."""
    operations: list[Operation]
    outside: list[Layer] = field(default_factory=list)
    """From the server on."""
    inside: list[Layer] = field(default_factory=list)
    every_route: bool = False
    """Whether it claims whatever the route is."""
    asks: str = ""
    """What the scope is a function of: `asgi`, `environ`, `request` of Starlette, `context` of Flask, `dependency` of
    FastAPI, `django`; empty where it is not asked."""


@dataclass
class Subject:
    """An application."""

    asgi: bool
    guards: list[Guard] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    knows_callers: str = ""
    """What shows that it authenticates somebody."""


def public_or(who: Any) -> Any:
    """PUBLIC where a shell has made a function of it."""
    ours = str(getattr(who, "__module__", "")).startswith("twicesafe.")
    return PUBLIC if who is PUBLIC or (ours and getattr(who, "__name__", "") == "<lambda>") else who


def name_of(kind: Any) -> str:
    """A class's or an instance's name, with its module."""
    kind = kind if isinstance(kind, type) or hasattr(kind, "__qualname__") else type(kind)
    return f"{kind.__module__}.{kind.__qualname__}"
