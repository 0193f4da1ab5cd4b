"""The package as text: which modules there are, and what each imports, wherever in it the import stands."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.parsing import parse

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = "twicesafe"


class Import(NamedTuple):
    """One import, by absolute name. `at_start`: it happens when the module is imported, in every environment."""

    importer: str
    imported: str
    line: int
    at_start: bool

    @property
    def package(self) -> str:
        """The installed package that is imported from."""
        return self.imported.partition(".")[0]

    @property
    def of_the_house(self) -> bool:
        return self.package == PACKAGE

    @property
    def third_party(self) -> bool:
        return not self.of_the_house and self.package not in sys.stdlib_module_names

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported} (line {self.line})"


@cache
def modules() -> Mapping[str, ast.Module]:
    """Every module of the package by its dotted name, parsed."""
    found = {}
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = parse(path.read_text(encoding="utf-8"), str(path))
    return found


def path_of(module: str) -> Path:
    """Where a module of the package is written."""
    stem = SOURCE.joinpath(*module.split("."))
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


@cache
def imports() -> tuple[Import, ...]:
    """Every import of the package, those inside functions and under TYPE_CHECKING included."""
    return tuple(found for name, tree in modules().items() for found in _imports_of(name, tree))


def _imports_of(module: str, tree: ast.Module) -> Iterator[Import]:
    later = {id(node) for scope in ast.walk(tree) if _runs_later(scope) for node in ast.walk(scope)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [_target(module, node, alias.name) for alias in node.names]
        else:
            continue
        for target in dict.fromkeys(targets):
            yield Import(module, target, node.lineno, id(node) not in later)


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _target(module: str, node: ast.ImportFrom, name: str) -> str:
    """`from package import module` imports the module, `from module import name` the module too."""
    origin = node.module or ""
    if node.level:
        package = module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        origin = f"{package}.{origin}" if origin else package
    return f"{origin}.{name}" if f"{origin}.{name}" in modules() else origin
