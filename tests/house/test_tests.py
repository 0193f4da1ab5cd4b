"""Tests of the tests: what they must say, what they must not do, and what they must have proved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.collecting import FIRST
from tests.house.files import each_test, files_of_tests, repository
from tests.parsing import parse

ALL_OF_IT = range(1, 45)

REQUIREMENTS = (*range(1, 28), *range(29, 45))
"""What this release builds of R1 to R44, in its first form at least; docs/proof.md says what they are."""

INVARIANTS = range(1, 13)
"""I1 to I12."""

TRIALS = (
    "A1", "A3", "A4", "A6", "A7",
    "B1", "B4", "B5", "B6", "B7",
    "C1", "C2", "C4", "C6", "C8",
    "D1", "D2", "D3", "D4", "D5", "D6",
    "E1", "E2", "E3", "E4",
    "F1", "F2", "F3", "F5", "F6", "F8",
    "G1", "G2", "G5", "G6", "G8",
    "H1", "H2",
    "J1", "J2",
    "K",
)  # fmt: skip
"""Faults that were reported of other implementations, each with a trial that this one has to pass."""

EVASIONS = {
    "pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail", "pytest.xfail", "pytest.importorskip",
    "unittest.mock", "time.sleep",
}  # fmt: skip
"""A test that does not run proves nothing, a mock proves the mock, and a sleep proves that the machine was idle."""

REAL_PROCESSES = ("tests/cli/", "tests/demo/", "tests/servers/", "tests/storm/")
"""Where a bounded wait may look again after a moment: a process of another program cannot be told to say when."""

CITATION = re.compile(r"\b([RI])(\d+)(?:\s*(?:-|to|–)\s*[RI]?(\d+))?\b|\b([A-HJ]\d|K)\b")


def cited(text: str) -> Iterator[str]:
    """`R18, A4` and `I1 to I3`, one by one."""
    for letter, first, last, trial in CITATION.findall(text):
        if trial:
            yield trial
        else:
            for number in range(int(first), int(last or first) + 1):
                yield f"{letter}{number}"


def citations() -> set[str]:
    """Everything that some test's docstring cites."""
    return {
        citation
        for tree in files_of_tests().values()
        for test in each_test(tree)
        for citation in cited((ast.get_docstring(test) or "").partition(":")[0])
    }


def test_every_test_says_what_it_proves() -> None:
    """House: each test has a docstring of a sentence that states the behaviour, not the code."""
    wrong = [
        f"{path}:{test.lineno} {test.name}"
        for path, tree in files_of_tests().items()
        for test in each_test(tree)
        if len((ast.get_docstring(test) or "").split()) < 4
    ]
    assert not wrong, "\n".join(wrong)


def test_every_test_can_fail() -> None:
    """House: each file of tests asserts something, and each test in it calls on an assertion by some way."""
    empty = [str(path) for path, tree in files_of_tests().items() if not any(_asserts(node) for node in ast.walk(tree))]
    assert not empty, "\n".join(empty)
    idle = [
        f"{path}:{test.lineno} {test.name}"
        for path, tree in files_of_tests().items()
        for test in each_test(tree)
        if not any(_asserts(node) or isinstance(node, ast.Call) for node in ast.walk(test))
    ]
    assert not idle, "\n".join(idle)


def _asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    return isinstance(node, ast.Call) and re.search(r"raises|check|assert|fail", ast.unparse(node.func)) is not None


def test_no_test_evades() -> None:
    """House: no test is skipped, expected to fail, mocked or put to sleep."""
    wrong = []
    for path, text in repository().items():
        if path.parts[0] != "tests" or path.suffix != ".py":
            continue
        evasions = EVASIONS - {"time.sleep"} if str(path).startswith(REAL_PROCESSES) else EVASIONS
        last_words = {evasion.rpartition(".")[2] for evasion in evasions}
        tree = parse(text, str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in last_words and ast.unparse(node) in evasions:
                wrong.append(f"{path}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
                wrong += [f"{path}:{node.lineno} {name}" for name in names & evasions]
    assert not wrong, "\n".join(wrong)


def test_the_files_that_begin_first_are_there() -> None:
    """House: a file of tests that is renamed keeps its place among those that begin first."""
    assert {Path(name) for name in FIRST} <= files_of_tests().keys()


def test_every_demand_has_a_test() -> None:
    """House: each requirement, invariant and trial that this release answers for is cited by a test."""
    demanded = [f"R{n}" for n in REQUIREMENTS] + [f"I{n}" for n in INVARIANTS] + [*TRIALS]
    found = citations()
    assert [demand for demand in demanded if demand not in found] == []


def test_citations_name_something() -> None:
    """House: a citation is one of R1 to R44, I1 to I12 or a trial's letter, not a slip of the pen."""
    known = {f"R{n}" for n in ALL_OF_IT} | {f"I{n}" for n in range(1, 13)} | set(TRIALS) | {"A6"}
    assert citations() - known == set()
