"""JUnit XML, read by a parser of it as a system of continuous integration does."""

from __future__ import annotations

from io import BytesIO, StringIO
from xml.etree import ElementTree as ET

import junitparser
import pytest

from tests.conformance.reports.examples import HOSTILE, hostile, report, usual
from twicesafe.conformance.findings import Report
from twicesafe.conformance.reports import Form, write


def written(made: Report) -> bytes:
    """The document as it stands in a file."""
    stream = StringIO()
    write(made, stream, Form.JUNIT)
    return stream.getvalue().encode("utf-8")


def suite(made: Report) -> junitparser.TestSuite:
    """The one suite in it."""
    (found,) = junitparser.JUnitXml.fromfile(BytesIO(written(made)))
    return found


def test_verdicts_are_what_a_build_goes_by() -> None:
    """R43: a failure fails the build; what showed nothing and what is not offered are skipped, each with its reason."""
    made = suite(usual())
    passed, failed, inconclusive, unsupported = made
    assert (made.tests, made.failures, made.errors, made.skipped) == (4, 1, 0, 2)
    assert passed.is_passed and passed.result == []
    (failure,) = failed.result
    assert isinstance(failure, junitparser.Failure) and "(8 effects, 1 wanted)" in failure.message
    for case, word in ((inconclusive, "inconclusive: "), (unsupported, "unsupported: ")):
        (reason,) = case.result
        assert isinstance(reason, junitparser.Skipped) and reason.message.startswith(word)


def test_a_case_is_a_trial_under_its_profile() -> None:
    """R43: a case has the trial's name, so that a build's history follows it, and the exchanges as its output."""
    made = suite(usual())
    assert [case.name for case in made] == ["replay", "parallel-duplicates", "other-caller", "replay-marker"]
    assert {case.classname for case in made} == {"twicesafe.check.ietf"}
    first = next(iter(made))
    assert first.time == 0.25
    assert str(first.system_out).count("> POST http://127.0.0.1:8000/charges") == 2
    assert "Bearer ***" in str(first.system_out)


def test_the_suite_says_what_was_checked_when() -> None:
    """R43: target, profile, score and time are the suite's properties."""
    made = suite(usual())
    properties = {one.name: one.value for one in made.properties()}
    assert (properties["target"], properties["profile"]) == ("Charges", "ietf")
    assert properties["score"].startswith("1/") and "parallel-duplicates" in properties["missing"].split()
    assert (made.timestamp, made.hostname, made.time) == ("2026-11-30T20:31:00", "127.0.0.1", 12.346)


def test_counts_of_the_root_and_of_the_suite_agree() -> None:
    """R43: a reader that looks at the root alone sees the same figures."""
    root = ET.fromstring(written(usual()))
    for name in ("tests", "failures", "errors", "skipped", "time"):
        assert root.get(name) == root[0].get(name)


def test_hostile_evidence_is_text() -> None:
    """R43: whatever a target answers, the document has the elements that it would have without."""
    made = suite(hostile())
    assert len(list(made)) == len(HOSTILE)
    tags = {element.tag for element in ET.fromstring(written(hostile())).iter()}
    assert tags == {
        "testsuites", "testsuite", "properties", "property", "testcase", "failure", "skipped", "system-out"
    }  # fmt: skip


@pytest.mark.parametrize("made", [report()], ids=["nothing"])
def test_a_check_without_findings_is_a_document_too(made: Report) -> None:
    """R43: an empty suite is no error of the parser's."""
    assert suite(made).tests == 0
