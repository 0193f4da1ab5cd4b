"""What a case is, and all there are."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import isfunction
from typing import NamedTuple, TypeAlias, TypeVar

from tests.behaviour.client import Client, Ledger

Run: TypeAlias = Callable[[Client, Ledger], None]
R = TypeVar("R", bound=Run)

THEMES = ("identity", "fingerprint", "stored", "transactions", "fidelity", "streams", "lost", "plumbing", "crash")
"""The modules of cases/, in the order in which they run. A crash comes last: it costs a start of the server."""


class Case(NamedTuple):
    """`needs` are features that an application may lack. `everywhere`: it compares bytes, so it runs on every server,
    and sends one request at a time, so it can. `of_servers`: it could, too, but takes so long that it runs once on each
    kind of server."""

    name: str
    check: Run
    needs: frozenset[str]
    everywhere: bool
    of_servers: bool

    def missing(self, not_offered: dict[str, str]) -> str:
        """Why it cannot run on an application; empty where it can."""
        return "; ".join(sorted({not_offered[feature] for feature in self.needs & not_offered.keys()}))


def needs(*features: str) -> Callable[[R], R]:
    """Marks a case with the features it needs besides what every application offers."""

    def mark(run: R) -> R:
        run.needs = frozenset(features)
        return run

    return mark


def everywhere(run: R) -> R:
    """Marks a case that runs on every server, one request at a time."""
    run.everywhere = True
    return run


def of_servers(run: R) -> R:
    """Marks a case that runs on one server of each kind, besides every application's first."""
    run.of_servers = True
    return run


def cases() -> list[Case]:
    """Every case: the public functions of the modules of cases/."""
    found = []
    for theme in THEMES:
        module = import_module(f"tests.behaviour.cases.{theme}")
        for name, run in vars(module).items():
            if isfunction(run) and run.__module__ == module.__name__ and not name.startswith("_"):
                marks = vars(run)
                found.append(
                    Case(
                        f"{theme}: {name.replace('_', ' ')}",
                        run,
                        marks.get("needs", frozenset()),
                        everywhere=marks.get("everywhere", False),
                        of_servers=marks.get("of_servers", False),
                    )
                )
    return found
