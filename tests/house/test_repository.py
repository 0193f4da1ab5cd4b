"""What a stranger finds in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.files import repository
from tests.house.sources import ROOT

LONGEST = 400
"""Lines of a file that is still read in one sitting."""

LONGER: dict[str, str] = {
    "js/twicesafe.js": "One module is what a page copies and loads; its parts are in the order of the Python modules.",
    "src/twicesafe/demo/page/twicesafe.js": "The same file: a link.",
}
"""Longer all the same: file -> the reason."""

HERE = Path("tests/house/test_repository.py")

FORBIDDEN = {
    "a path of one machine": r"/home/\w+|/root/|/Users/\w+"
    + (rf"|{re.escape(str(ROOT))}/" if len(ROOT.parts) > 2 else ""),
    "a registry's host": r"pypi\.org|pythonhosted\.org|registry\.npmjs|--index-url|--extra-index",
    "a paper that readers do not have": r"\b(?:faults|limits|anchors|vendors|requirements|design)\.md\b|\.\./shared",
    "a task number of its making": r"\bissue [12]\b",
    "something left to do": r"\b(?:TODO|FIXME|XXX|HACK)\b|\(to be \w+\)",
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_the_project_speaks_only_of_itself(kind: str) -> None:
    """House: no file names a machine's path, a registry, a paper that is not here, or something left to do."""
    pattern = re.compile(FORBIDDEN[kind])
    wrong = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in repository().items()
        if path != HERE
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not wrong, f"{kind}:\n" + "\n".join(wrong)


def test_files_are_short_or_say_why() -> None:
    """House: a source file has at most 400 lines; a longer one stands in the table with its reason."""
    lines = {
        str(path): len(text.splitlines())
        for path, text in repository().items()
        if path.suffix in (".py", ".js", ".css", ".sql", ".html")
    }
    long = {name for name, count in lines.items() if count > LONGEST}
    assert long == set(LONGER), "\n".join(f"{name}: {lines.get(name)}" for name in long ^ set(LONGER))


def test_every_module_says_what_it_is_for() -> None:
    """House: each Python file begins with a docstring and has no surprises in how it ends."""
    wrong = [
        str(path)
        for path, text in repository().items()
        if path.suffix == ".py" and not text.lstrip("#!/usrbinev pytho3\n").startswith('"""')
    ]
    assert not wrong, wrong
    assert [str(path) for path, text in repository().items() if text and not text.endswith("\n")] == []


def test_scripts_can_be_run() -> None:
    """House: whoever clones the repository can run its scripts as they are."""
    for script in (".ci/run", "scripts/environment", "scripts/servers"):
        assert (ROOT / script).stat().st_mode & 0o111, script
