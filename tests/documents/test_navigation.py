"""The site: what its navigation names, and how docstrings become its reference."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.house.files import repository
from tests.house.public_api import LIST
from tests.house.sources import ROOT
from tests.house.test_documents import script

FRONT = {"README", "docs/index"}
"""The front page and the list of all pages, which the navigation hangs on."""


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    """The site's settings, which need no Sphinx to be read."""
    return script("../docs/conf")


def test_the_navigation_names_every_page_once(conf: ModuleType) -> None:
    """House: docs/index.md has each page in exactly one group; decisions and modules have a list of their own."""
    named = [page for _, pages in conf.groups(repository()[Path("docs/index.md")]) for page in pages]
    there = {
        str(path.with_suffix(""))
        for path in repository()
        if path.suffix == ".md" and (path.parts[0] == "docs" or len(path.parts) == 1)
    }
    listed = {page for page in there if page.startswith("docs/decisions/0")}
    missing = there - listed - FRONT - set(named)
    assert not missing, f"docs/index.md lacks {', '.join(sorted(missing))}"
    assert len(named) == len(set(named))
    assert set(named) <= there, f"docs/index.md names {', '.join(sorted(set(named) - there))}, which is not there"


def test_no_group_is_empty(conf: ModuleType) -> None:
    """House: each title of the navigation has pages below it."""
    groups = dict(conf.groups(repository()[Path("docs/index.md")]))
    assert len(groups) >= 9
    assert [title for title, pages in groups.items() if not pages] == []


def test_a_page_of_the_site_is_what_the_repository_shows(conf: ModuleType) -> None:
    """House: what the site adds to a page is a tree that is not shown, after the page's own text."""
    source = [repository()[Path("README.md")]]
    noted: list[str] = []
    environment = SimpleNamespace(note_dependency=lambda path, docname: noted.append(path))
    conf.with_trees(SimpleNamespace(env=environment), "README", source)
    assert noted == ["docs/index.md"]
    assert source[0].startswith(repository()[Path("README.md")])
    assert source[0].count(":hidden:") == source[0].count("{toctree}") > 9


def test_the_reference_is_the_public_interface() -> None:
    """House: the reference has exactly the names that users may import, module by module."""
    made = [f"{module}.{name}" for module, names in script("make_reference").public().items() for name in names]
    assert made == [line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


DOCSTRING = """\
Handles `a*b` once; **kwargs and _names stay.

    with begin() as *connection:
        work()

    done()

401  nobody is known
403  somebody is, and may not
"""

AS_READ = r"""Handles `a*b` once; \*\*kwargs and \_names stay.

.. code-block:: python

    with begin() as *connection:
        work()

    done()

.. code-block:: text

    401  nobody is known
    403  somebody is, and may not
"""


def test_docstrings_are_read_as_they_are_written() -> None:
    """House: code stays code and columns stay columns, and no mark of a docstring becomes another's markup."""
    lines = DOCSTRING.splitlines()
    script("make_reference").as_restructured_text(None, "module", "x", None, None, lines)
    assert "\n".join(lines).rstrip() == AS_READ.rstrip()


def test_what_python_says_of_a_nameless_field_is_left_out() -> None:
    """House: a field without a docstring is shown without one."""
    lines = ["Alias for field number 3"]
    script("make_reference").as_restructured_text(None, "attribute", "x.y", None, None, lines)
    assert lines == []


def test_the_site_keeps_nothing_that_is_made() -> None:
    """House: pages of modules are made with the site and are not in the repository."""
    assert [path for path in repository() if path.parent == Path("docs/reference")] == [
        Path("docs/reference/README.md")
    ]
    assert (ROOT / "docs" / "reference" / "README.md").is_file()
