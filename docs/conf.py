"""Sphinx's settings: README.md is the site's front page, docs/index.md its navigation, docstrings its reference.

Used by `make site`. The pages are plain Markdown that is read in the repository as well, so nothing in them is meant
for Sphinx only; what it wants besides (trees of pages, a page for each public module) is added while it reads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts import make_reference  # noqa: E402
from twicesafe import __version__  # noqa: E402

project = "twicesafe"
author = "the authors of twicesafe"
project_copyright = f"{datetime.now(UTC):%Y}, {author}"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "js", "scripts", "benchmarks", "docs/conf.py"]
suppress_warnings = [
    "ref.python",  # what a docstring calls `type` may be an attribute of several classes
]

myst_heading_anchors = 4
default_role = "code"
add_module_names = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "twicesafe"
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> dict[str, bool]:
    """What is added to the pages while they are read."""
    app.connect("source-read", with_trees)
    app.connect("autodoc-process-docstring", make_reference.as_restructured_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def with_trees(app: Any, name: str, source: list[str]) -> None:
    """The navigation: what docs/index.md lists, group by group; decisions below their list, modules below theirs."""
    if name == root_doc:
        index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
        app.env.note_dependency("docs/index.md", docname=name)  # the front page is read anew when that changes
        source[0] += tree("", ["docs/index"]) + "".join(tree(title, pages) for title, pages in groups(index))
    elif name == "docs/decisions/README":
        source[0] += tree("", sorted(path.stem for path in (ROOT / "docs/decisions").glob("0*.md")))
    elif name == "docs/reference/README":
        app.env.note_dependency("tests/house/public_api.txt", docname=name)
        source[0] += "\n" + make_reference.table() + tree("", make_reference.pages())


def groups(index: str) -> Iterator[tuple[str, list[str]]]:
    """Titles of docs/index.md, and the pages in the first column of the table below each, as Sphinx names them."""
    for title, below in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", index, re.MULTILINE | re.DOTALL):
        rows = re.findall(r"^\|(.+?)\|", below, re.MULTILINE)
        linked = [name for row in rows for name in re.findall(r"\]\(([^)#]+)\.md\)", row)]
        yield title, [name.removeprefix("../") if name.startswith("../") else f"docs/{name}" for name in linked]


def tree(caption: str, pages: list[str]) -> str:
    """A tree of pages that is not shown where it stands."""
    titled = f":caption: {caption}\n" if caption else ""
    return "\n\n```{toctree}\n:hidden:\n" + titled + "\n" + "\n".join(pages) + "\n```\n"
