"""JSON for programs: it is what its schema says, and says what was found."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from tests.conformance.reports.examples import exchange, finding, hostile, report, usual
from twicesafe.conformance.findings import Report, Verdict
from twicesafe.conformance.reports import Form, write
from twicesafe.conformance.reports.document import VERSION, schema


def document(made: Report) -> dict[str, Any]:
    """A report as a program reads it."""
    stream = StringIO()
    write(made, stream, Form.JSON)
    return dict(json.loads(stream.getvalue()))


def errors(found: dict[str, Any]) -> list[str]:
    """What the schema has against a document."""
    validator = Draft202012Validator(schema(), format_checker=FormatChecker())
    return [error.message for error in validator.iter_errors(found)]


REPORTS = {
    "usual": usual(),
    "hostile": hostile(),
    "nothing": report(),
    "no date, no answer": replace(report(finding(evidence=(exchange(),))), began=None),
}


@pytest.mark.parametrize("which", REPORTS)
def test_the_document_is_what_the_schema_says(which: str) -> None:
    """R43: every report is valid by the schema that is shipped beside it, and names it."""
    Draft202012Validator.check_schema(schema())
    found = document(REPORTS[which])
    assert errors(found) == []
    assert (found["format"], found["$schema"]) == (VERSION, schema()["$id"])


def test_the_schema_leaves_no_member_unsaid() -> None:
    """R43: each object of a document has the members that the schema requires, and no other one."""

    def walk(value: Any, rule: dict[str, Any]) -> None:
        rule = {**rule, **schema()["$defs"].get(rule.get("$ref", "").rpartition("/")[2], {})}
        if isinstance(value, dict) and "properties" in rule:
            assert value.keys() == set(rule["required"]) == rule["properties"].keys()
            for name, inner in value.items():
                walk(inner, rule["properties"][name])
        elif isinstance(value, list) and "items" in rule:
            for inner in value:
                walk(inner, rule["items"] or {})

    walk(document(usual()), schema())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "fine"),
        (("exit_status",), 3),
        (("format",), 2),
        (("seconds",), -1),
        (("began",), "yesterday"),
        (("score", "percent"), 101),
        (("findings", 0, "verdict"), None),
        (("findings", 0, "effects"), {"counted": 1}),
        (("findings", 0, "evidence", 0, "answer", "status"), "201"),
        (("findings", 0, "evidence", 0, "request", "headers", 0), ["one"]),
        (("findings", 0, "demand", "level"), "wanted"),
    ],
)
def test_the_schema_refuses_what_it_should(path: tuple[str | int, ...], value: object) -> None:
    """R43: the schema is one that can be failed."""
    found: Any = document(usual())
    place = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert errors(found)


def test_it_says_what_was_found() -> None:
    """R43: verdicts, totals, effects, score and what is missing are those of the report."""
    found = document(usual())
    assert (found["verdict"], found["exit_status"]) == ("fail", 1)
    assert found["totals"] == {"fail": 1, "inconclusive": 1, "unsupported": 1, "pass": 1}
    assert found["effects"] == {"counted": 9, "expected": 2}
    assert found["began"] == "2026-11-30T20:31:00+00:00"
    assert [one["verdict"] for one in found["findings"]] == ["pass", "fail", "inconclusive", "unsupported"]
    assert {"trial": "parallel-duplicates", "verdict": "fail"} in found["score"]["missing"]
    assert {"trial": "answer-lost", "verdict": None} in found["score"]["missing"]
    answered, silent = found["findings"][1]["evidence"]
    assert answered["answer"]["status"] == 201 and silent["answer"] is None
    assert silent["note"] == "no answer within 15 s"


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        ([Verdict.PASS, Verdict.INCONCLUSIVE], ("pass", 0)),
        ([Verdict.PASS, Verdict.FAIL], ("fail", 1)),
        ([Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED], ("inconclusive", 2)),
        ([], ("inconclusive", 2)),
    ],
)
def test_the_verdict_is_the_commands(verdicts: list[Verdict], outcome: tuple[str, int]) -> None:
    """R43: the document's verdict and the command's exit status are one, and nothing shown is no pass."""
    found = document(report(*(finding(verdict=verdict) for verdict in verdicts)))
    assert (found["verdict"], found["exit_status"]) == outcome
