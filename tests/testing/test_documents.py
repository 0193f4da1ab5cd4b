"""The page on testing: its files are written into a folder, and its tests are run there."""

from __future__ import annotations

import re

import pytest

from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "testing.md"

FAILS = "test_unsafe.py"


def files() -> dict[str, str]:
    """The files that the page shows, by the names in their first lines."""
    return dict(re.findall(r"(?ms)^```python\n# (\S+\.py)\n(.*?)^```", PAGE.read_text(encoding="utf-8")))


def test_the_page_shows_files_only() -> None:
    """R42: no example of the page goes without being run."""
    assert len(files()) == PAGE.read_text(encoding="utf-8").count("```python")


def test_the_examples_pass(pytester: pytest.Pytester) -> None:
    """R42, I1: every test that the page shows passes as it stands, in a folder that was empty."""
    shown = files()
    tests = [name for name in shown if name.startswith("test_") and name != FAILS]
    for name, text in shown.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    pytester.makeini("[pytest]\nfilterwarnings = error")
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", *tests)
    passed = ran.parseoutcomes()
    assert passed.keys() == {"passed"} and passed["passed"] >= len(tests), ran.stdout.str()


def test_the_message_shown_is_the_message(pytester: pytest.Pytester) -> None:
    """R42: an unsafe endpoint fails with the words that the page shows."""
    (pytester.path / FAILS).write_text(files()[FAILS], encoding="utf-8")
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    ran.assert_outcomes(failed=1)
    message = re.search(r"^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert message is not None
    said = "\n".join(line.removeprefix("E").strip() for line in ran.stdout.lines if line.startswith("E "))
    for line in message[1].split("\n"):
        assert line.strip() in said, line
