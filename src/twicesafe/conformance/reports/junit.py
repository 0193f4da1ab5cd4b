"""A report as JUnit XML, which systems of continuous integration read.

A failure is a failure. What showed nothing and what is not offered are skipped, with the reason, and break no build.
"""

from __future__ import annotations

from datetime import UTC
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.reports.shown import Shown, ShownFinding

SUITE: Final = "twicesafe check"


def as_junit(report: Shown) -> str:
    """The report as a document with one suite, in which each finding is a test case."""
    totals = report.totals
    counts: dict[str, str] = {
        "tests": str(len(report.findings)),
        "failures": str(totals[Verdict.FAIL]),
        "errors": "0",
        "skipped": str(totals[Verdict.INCONCLUSIVE] + totals[Verdict.UNSUPPORTED]),
        "time": f"{report.seconds:.3f}",
    }
    root = ET.Element("testsuites", {"name": SUITE} | counts)
    suite = ET.SubElement(root, "testsuite", {"name": SUITE} | counts)
    if report.began is not None:
        suite.set("timestamp", report.began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    suite.set("hostname", urlsplit(report.url).hostname or "")
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ET.SubElement(properties, "property", name=name, value=value)
    for finding in report.findings:
        _case(suite, finding, report.profile)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join((_HEAD, "\n"))


_HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _properties(report: Shown) -> dict[str, str]:
    score = report.score
    return {
        "target": report.target,
        "url": report.url,
        "profile": report.profile,
        "score": f"{score.passed}/{score.required}",
        "missing": " ".join(one.trial for one in score.missing),
        "requests": str(report.requests),
        "version": report.version,
    }


def _case(suite: ET.Element, finding: ShownFinding, profile: str) -> None:
    case = ET.SubElement(
        suite, "testcase", name=finding.trial, classname=f"twicesafe.check.{profile}", time=f"{finding.seconds:.3f}"
    )
    said = f"{finding.meaning} ({finding.counted})" if finding.counted else finding.meaning
    if finding.verdict is Verdict.FAIL:
        failure = ET.SubElement(case, "failure", message=said, type=finding.demand.level)
        failure.text = f"{finding.title}\n\n{said}"
    elif finding.verdict is not Verdict.PASS:
        ET.SubElement(case, "skipped", message=f"{finding.verdict}: {said}")
    if finding.transcripts:
        ET.SubElement(case, "system-out").text = "\n\n".join(map(str, finding.transcripts))
