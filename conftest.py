"""The Python in README.md and docs/ is run, block after block, each file as one program in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from twicesafe.client._left_open import LEFT_OPEN
from twicesafe.client.budgets import OF_THIS_PROCESS

pytest_plugins = ["tests.collecting", "tests.parsing"]


def enter(namespace: dict[str, Any]) -> None:
    """Begin a document: it may write files, its functions are those of a program, and no other has sent anything."""
    LEFT_OPEN.known.clear()
    OF_THIS_PROCESS.spent.clear()
    namespace["__name__"] = "__main__"
    namespace["_home"] = Path.cwd()
    namespace["_folder"] = TemporaryDirectory(prefix="twicesafe-docs-")
    os.chdir(namespace["_folder"].name)


def leave(namespace: dict[str, Any]) -> None:
    """End a document."""
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()


FRAMEWORKS = [f"docs/frameworks/{name}.md" for name in ("falcon", "flask", "wsgi")]
"""Those whose example runs beside others in one process."""

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md", "docs/stores/*.md", "docs/migrating/*.md", *FRAMEWORKS],
    # Its examples are tests of pytest's, which run in a pytest of their own: tests/testing/test_documents.py.
    exclude="docs/testing.md",
    setup=enter,
    teardown=leave,
).pytest()
