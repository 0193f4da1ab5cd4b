"""The documents say what the code does."""

from __future__ import annotations

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.files import each_test, files_of_tests, repository
from tests.house.sources import ROOT
from tests.house.test_tests import ALL_OF_IT, INVARIANTS, REQUIREMENTS, TRIALS, cited
from twicesafe.core import lifecycle

DOCUMENTS = [path for path in repository() if path.suffix == ".md"]


def script(name: str) -> ModuleType:
    """One of the scripts that make documents, as a module."""
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_state_diagram_is_the_table() -> None:
    """House: docs/states.svg is what the transition table draws today; `make docs` draws it anew."""
    made = script("make_state_diagram")
    assert made.TARGET.read_text(encoding="utf-8") == made.drawing()


def test_the_tables_of_the_documents_are_the_codes() -> None:
    """House: tables that are made are what code and data say today; `make docs` writes them anew."""
    made = script("make_tables")
    assert made.PAGES
    for page in made.PAGES:
        assert page.read_text(encoding="utf-8") == made.filled(page), page


def test_a_transition_without_a_place_stops_the_drawing() -> None:
    """House: the picture cannot silently leave out a transition."""
    made = script("make_state_diagram")
    made.ROUTES.popitem()
    with pytest.raises(SystemExit, match="the table changed"):
        made.drawing()


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_link_leads_somewhere(document: Path) -> None:
    """House: links within the repository name files and headings that are there."""
    text = repository()[document]
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        if not path.exists() or (heading and heading not in headings(path)):
            broken.append(target)
    assert not broken


def headings(path: Path) -> set[str]:
    """The anchors of a Markdown file, as its readers make them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_document_can_be_found() -> None:
    """House: each page of docs is linked to from the index, each decision from the list of decisions."""
    index = repository()[Path("docs/index.md")] + repository()[Path("README.md")]
    decisions = repository()[Path("docs/decisions/README.md")]
    for path in DOCUMENTS:
        if path.parent == Path("docs/decisions"):
            assert path.name == "README.md" or f"({path.name})" in decisions, path
        elif path.parent == Path("docs"):
            assert path.name == "index.md" or f"({path.name})" in index, path


def test_decisions_are_numbered_without_a_gap() -> None:
    """House: decisions count from 1, and each file's number is its title's."""
    names = sorted(path.name for path in DOCUMENTS if path.parent == Path("docs/decisions") and path.name[0].isdigit())
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for name in names:
        assert repository()[Path("docs/decisions") / name].startswith(f"# {int(name[:4])}. "), name


def stated() -> dict[str, str]:
    """The invariants as lifecycle.py states them."""
    text = (lifecycle.__doc__ or "").split("cited by tests:")[1].split("Theory of operation")[0]
    found = re.findall(r"^(I\d+)\s+(.+?)(?=^I\d|\Z)", text, re.MULTILINE | re.DOTALL)
    return {number: " ".join(sentence.split()) for number, sentence in found}


def test_the_invariants_are_quoted_word_for_word() -> None:
    """House: docs/invariants.md quotes all twelve, and the test files it names for one do cite it."""
    text = repository()[Path("docs/invariants.md")]
    assert len(stated()) == 12
    for number, sentence in stated().items():
        section = re.search(rf"^## {number}\n(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, number
        assert sentence in " ".join(section[1].split()), number
        named = re.findall(r"`(tests/\S+?\.py)`", section[1])
        assert bool(named) == (int(number[1:]) in INVARIANTS), number
        for name in named:
            assert number in citations_of(Path(name)), f"{name} does not cite {number}"


def citations_of(path: Path) -> set[str]:
    """What the tests of one file cite."""
    tree = files_of_tests().get(path, ast.Module([], []))
    docstrings = [ast.get_docstring(test) or "" for test in each_test(tree)]
    return {citation for text in docstrings for citation in cited(text.partition(":")[0])}


def test_what_the_tests_cite_is_explained() -> None:
    """House: docs/proof.md says what each number stands for, and marks with a star what no test has to prove yet."""
    rows = re.findall(r"^\| ([A-K]\d*|R\d+)(\*?) \| [^|]{5,} \|$", repository()[Path("docs/proof.md")], re.MULTILINE)
    explained = {name for name, _ in rows}
    assert explained == {f"R{n}" for n in ALL_OF_IT} | set(TRIALS) | {"A6"}
    assert {name for name, star in rows if star} == {f"R{n}" for n in ALL_OF_IT if n not in REQUIREMENTS}
