"""The Python in README.md and docs/ is run, block after block, each file as one program in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def enter(namespace: dict[str, Any]) -> None:
    """Begin a document: it may write files."""
    namespace["_home"] = Path.cwd()
    namespace["_folder"] = TemporaryDirectory(prefix="twicesafe-docs-")
    os.chdir(namespace["_folder"].name)


def leave(namespace: dict[str, Any]) -> None:
    """End a document."""
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md", "docs/stores/*.md"],
    setup=enter,
    teardown=leave,
).pytest()
