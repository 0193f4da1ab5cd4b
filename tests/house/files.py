"""The repository as text: every file that is or may be committed."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

from tests.house.sources import ROOT
from tests.parsing import parse

Test: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def repository() -> Mapping[Path, str]:
    """Path, relative to the root, to text; binary files left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    found = {}
    for name in sorted({name for name in listed.decode().split("\0") if name}):
        path = ROOT / name
        if path.is_file():
            data = path.read_bytes()
            if b"\0" not in data:
                found[Path(name)] = data.decode("utf-8")
    return found


@cache
def files_of_tests() -> Mapping[Path, ast.Module]:
    """Every file of tests, parsed."""
    return {
        path: parse(text, str(path))
        for path, text in repository().items()
        if path.parts[0] == "tests" and path.name.startswith("test_") and path.suffix == ".py"
    }


def each_test(tree: ast.Module) -> Iterator[Test]:
    """The test functions and methods of one file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node
