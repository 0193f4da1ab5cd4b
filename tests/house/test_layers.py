"""The floors of the house: who may import whom. The table is the rule."""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.sources import PACKAGE, Import, imports, modules

FLOORS = (
    {"errors"},
    {"core"},
    {"stores", "observe"},
    {
        "asgi",
        "blocking",
        "bound",
        "called",
        "cancelling",
        "client",
        "contracts",
        "cors",
        "daemons",
        "dealings",
        "declared",
        "django",
        "eager",
        "elapsed",
        "endpoint",
        "exchanging",
        "falcon",
        "fastapi",
        "files",
        "flask",
        "inbox",
        "incoming",
        "keyed",
        "litestar",
        "lookup",
        "once",
        "openapi",
        "opentelemetry",
        "operations",
        "outbox",
        "owners",
        "publishers",
        "quart",
        "reached",
        "reaper",
        "receiving",
        "reconcile",
        "renewals",
        "resuming",
        "rounds",
        "routes",
        "starlette",
        "structlog",
        "telemetry",
        "testing",
        "worker",
        "wsgi",
    },
    {"checking", "conformance", "dashboard", "demo", "doctor", "gateway", "pytest_plugin", "storm"},
    {"cli"},
    {"__main__"},
)  # fmt: skip
"""From the ground up, by the first name below the package. A module imports from lower floors and, where it is allowed
to, from its own."""

MUTUAL = (3, 4)
"""Floors whose parts may build on one another, as fastapi does on asgi. The others' parts do not know each other."""

ROOT_SEES = {"errors", "core"}
"""`import twicesafe` has to work everywhere and do nothing."""

CONTRACT = "twicesafe.stores.contract"

SENDS_STATEMENTS = {
    "twicesafe.django.tables",
    "twicesafe.inbox",
    "twicesafe.outbox.adding",
    "twicesafe.outbox.operators",
    "twicesafe.outbox.relay",
}
"""No shells: Django's migrations send the statements that the store's schema is, and messages are written on the
application's own connection, where there is no store; relays and operators read them in a store's transaction."""

ONE_HOME: dict[str, dict[str, str]] = {
    "sqlalchemy": {
        "twicesafe.stores.sqlalchemy": "what users make",
        "twicesafe.stores.sqlalchemy_work": "what a transaction of a session is",
        "twicesafe.stores.sqlalchemy_databases": "what depends on the database behind it",
        "twicesafe.stores.sqlalchemy_versions": "what a version column says, in terms of HTTP",
    },
    "django": {
        "twicesafe.stores.django": "what users make",
        "twicesafe.stores.django_work": "what a transaction of a connection is",
        "twicesafe.django.admin": "the app's admin, which Django looks for under this name",
        "twicesafe.django.answers": "responses",
        "twicesafe.django.apps": "the app, which Django looks for under this name",
        "twicesafe.django.checks": "the app's checks",
        "twicesafe.django.configuration": "settings",
        "twicesafe.django.contract": "views",
        "twicesafe.django.incoming": "requests",
        "twicesafe.django.middleware": "the middleware",
        "twicesafe.django.migrations.0001_records": "a migration, which Django looks for under this name",
        "twicesafe.django.migrations.0002_audit": "a migration, which Django looks for under this name",
        "twicesafe.django.migrations.0003_messages": "a migration, which Django looks for under this name",
        "twicesafe.django.models": "the app's model, which Django looks for under this name",
        "twicesafe.django.tables": "what its migrations do",
        "twicesafe.django.threads": "the connections of a thread",
        "twicesafe.django.visit": "transactions and signals of a request",
    },
    "redis": {
        "twicesafe.stores.redis_driver": "the store's connections",
        "twicesafe.publishers.redis_streams": "a client, which a publisher does not mind",
    },
    "opentelemetry": {
        "twicesafe.client.opentelemetry": "spans of a client's operations",
        "twicesafe.opentelemetry": "everything else, which knows nothing of clients",
    },
    "httpx2": {
        "twicesafe.publishers.webhooks": "what sends webhooks",
        "twicesafe.testing.served": "what asks the application under test",
    },
    "asgiref": {
        "twicesafe.stores.django": "the thread of a transaction",
        "twicesafe.django.threads": "the thread of a request",
    },
}
"""A third-party package is imported in one module. Where it has to be more: package -> module -> the reason."""

APPLICATIONS = 4
"""From this floor up, each part is a program as a user would write it, on the library and on others, and counts by
itself."""

IMPURE = {
    "asyncio", "concurrent", "http", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time",
    "urllib", "warnings",
}  # fmt: skip
"""What core does without: clocks, randomness, files, sockets, processes, async and logs. urllib.parse only parses."""

IMPURE_NAMES = {"now", "utcnow", "today", "fromtimestamp", "uuid1", "uuid4", "urandom", "open", "print", "input"}


def floor(module: str) -> int:
    """Which floor a module is on."""
    part = part_of(module)
    for number, parts in enumerate(FLOORS):
        if part in parts:
            return number
    pytest.fail(f"{module} has no place in the house: add {part!r} to FLOORS")


def part_of(module: str) -> str:
    """The first name below the package; empty for the package itself."""
    return module.removeprefix(PACKAGE).lstrip(".").partition(".")[0]


def own_imports() -> list[Import]:
    """Imports of one module of the package by another."""
    return [found for found in imports() if found.of_the_house]


def test_every_import_goes_down() -> None:
    """House: errors < core < stores, observe < shells < applications < command line; nothing imports upward."""
    wrong = []
    for found in own_imports():
        here, there = part_of(found.importer), part_of(found.imported)
        if not there:
            # The version is the one thing the root says that others may want.
            fine = not here or floor(found.importer) >= 4
        elif not here:
            fine = there in ROOT_SEES
        elif here == there:
            fine = True
        else:
            below = floor(found.importer) - floor(found.imported)
            fine = below > 0 or (below == 0 and floor(found.importer) in MUTUAL)
        if not fine:
            wrong.append(str(found))
    assert own_imports() and not wrong, "\n".join(wrong)


def test_the_checker_uses_nothing_of_what_it_checks() -> None:
    """R43: what twicesafe gets wrong, its checker does not get wrong in the same way: it shares no line with it."""
    inside = [found for found in own_imports() if part_of(found.importer) == "conformance"]
    wrong = [str(found) for found in inside if part_of(found.imported) != "conformance"]
    assert inside and not wrong, "\n".join(wrong)


def test_no_module_reaches_itself() -> None:
    """House: the imports form no loop, not even through functions or TYPE_CHECKING."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in own_imports():
        assert found.imported in graph, f"{found}: there is no such module"
        graph[found.importer].add(found.imported)
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as loop:
        pytest.fail(" -> ".join(loop.args[1]))
    assert set(order) == set(modules())


def test_shells_see_only_the_contract_of_stores() -> None:
    """House: a shell works on every store, because it knows none."""
    wrong = [
        str(found)
        for found in own_imports()
        if floor_or_ground(found.importer) == 3
        and part_of(found.imported) == "stores"
        and found.imported != CONTRACT
        and found.importer not in SENDS_STATEMENTS
    ]
    assert not wrong, "\n".join(wrong)


def floor_or_ground(module: str) -> int:
    """Like floor(), with the package itself on the ground."""
    return floor(module) if part_of(module) else 0


def test_a_third_party_package_has_one_home() -> None:
    """House: each third-party package is imported in exactly one module, so that its change is one module's change."""
    homes: dict[tuple[str, str], set[str]] = {}
    for found in imports():
        if found.third_party:
            program = part_of(found.importer) if floor_or_ground(found.importer) >= APPLICATIONS else ""
            homes.setdefault((program, found.package), set()).add(found.importer)
    wrong = []
    for (program, package), importers in homes.items():
        excused = set() if program else ONE_HOME.get(package, {}).keys()
        if importers != excused if excused else len(importers) > 1:
            wrong.append(f"{package} is imported by {', '.join(sorted(importers))}")
    assert not wrong, "\n".join(wrong)
    assert {("", package) for package in ONE_HOME} <= set(homes), "an exception that is no longer needed"


def test_core_is_pure() -> None:
    """House: core imports the standard library only, and of it nothing that has a clock, chance, or an outside."""
    wrong = [
        str(found)
        for found in imports()
        if part_of(found.importer) in ("core", "errors")
        and not found.of_the_house
        and (found.package not in sys.stdlib_module_names or found.package in IMPURE)
        and found.imported != "urllib.parse"
    ]
    assert not wrong, "\n".join(wrong)


def test_core_asks_nobody_for_the_time() -> None:
    """I12: no code in core reads a clock, draws a number or awaits, by whatever import it might come."""
    wrong = []
    for name, tree in modules().items():
        if part_of(name) not in ("core", "errors"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                wrong.append(f"{name}:{node.lineno} is asynchronous")
            elif isinstance(node, ast.Call):
                called = node.func
                word = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if word in IMPURE_NAMES:
                    wrong.append(f"{name}:{node.lineno} calls {word}()")
    assert not wrong, "\n".join(wrong)


def test_errors_import_nothing() -> None:
    """House: the error tree is the ground; it stands on nothing."""
    assert [found.imported for found in imports() if found.importer == f"{PACKAGE}.errors"] == ["__future__"]
