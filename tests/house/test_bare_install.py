"""What works where nothing but Python is installed."""

from __future__ import annotations

import subprocess
import sys

from tests.house.sources import PACKAGE, SOURCE, imports, modules

MUST_BE_BARE = {
    "twicesafe",
    "twicesafe.asgi",
    "twicesafe.core.exchange",
    "twicesafe.errors",
    "twicesafe.observe",
    "twicesafe.stores.contract",
    "twicesafe.stores.memory",
    "twicesafe.stores.sqlite",
}
"""The promise. Whatever else needs no third-party package today is tried too."""


def bare_modules() -> set[str]:
    """The modules that need no third-party package when they are imported, by what they and their imports say."""
    needy = {found.importer for found in imports() if found.at_start and found.third_party}
    while True:
        also = {found.importer for found in imports() if found.at_start and found.imported in needy} | needy
        also |= {name for name in modules() if name.rpartition(".")[0] in needy}
        if also == needy:
            return set(modules()) - needy
        needy = also


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that sees the package's sources and the standard library, and nothing else."""
    start = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", start + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_needs_nothing_runs_on_nothing() -> None:
    """House: every module that names no third-party package can be imported without one."""
    bare = sorted(bare_modules())
    assert set(bare) >= MUST_BE_BARE, f"no longer bare: {sorted(MUST_BE_BARE - set(bare))}"
    ran = run(f"import importlib\nfor name in {bare!r}:\n    importlib.import_module(name)\nprint('all')")
    assert (ran.returncode, ran.stdout.strip()) == (0, "all"), ran.stderr


def test_the_bare_python_is_bare() -> None:
    """House: the environment of these tests would notice a third-party import."""
    ran = run("import pytest")
    assert ran.returncode == 1
    assert "ModuleNotFoundError" in ran.stderr


def test_importing_the_package_is_quick_and_quiet() -> None:
    """House: `import twicesafe` opens nothing, prints nothing and pulls in no shell, store or event loop."""
    ran = run(f"before = set(sys.modules)\nimport {PACKAGE}\nprint(*sorted(set(sys.modules) - before), sep='\\n')")
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert f"{PACKAGE}.core.policy" in loaded
    assert not loaded & {"asyncio", "logging", "socket", "ssl", "sqlite3", "threading"}
    assert not {name for name in loaded if name.startswith((f"{PACKAGE}.stores", f"{PACKAGE}.asgi"))}


def test_an_optional_package_that_is_missing_is_named() -> None:
    """House: importing a module without its package fails with that package's own name, or with what to install."""
    packages = {found.package for found in imports() if found.third_party}
    needy = sorted({found.importer for found in imports() if found.at_start and found.third_party})
    ran = run(TRY_EACH.format(needy))
    assert ran.returncode == 0, ran.stderr
    said = dict(line.split("\t") for line in ran.stdout.splitlines())
    assert needy and list(said) == needy
    assert [(module, word) for module, word in said.items() if word not in packages and "pip install" not in word] == []


TRY_EACH = """
import importlib
for name in {!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error.name, sep="\\t")
    except SystemExit as error:
        print(name, error.code, sep="\\t")
"""
