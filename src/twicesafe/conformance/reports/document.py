"""A report as JSON, for programs. What it looks like is stated in report.schema.json, beside this module."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from twicesafe.conformance.findings import Effects
from twicesafe.conformance.reports.shown import Shown, ShownFinding
from twicesafe.conformance.reports.transcripts import Body, Message, Transcript

VERSION: Final = 1
"""Of the document's form. It counts up when something that was there is there no longer, or means something else."""


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    text = files("twicesafe.conformance.reports").joinpath("report.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def as_json(report: Shown) -> str:
    """The report as one JSON document."""
    return json.dumps(document(report), indent=2, ensure_ascii=False) + "\n"


def document(report: Shown) -> dict[str, Any]:
    """The report as plain values."""
    score = report.score
    return {
        "$schema": schema()["$id"],
        "format": VERSION,
        "checker": {"name": "twicesafe", "version": report.version},
        "target": {"name": report.target, "url": report.url},
        "began": None if report.began is None else report.began.isoformat(),
        "seconds": round(report.seconds, 3),
        "requests": report.requests,
        "verdict": report.verdict,
        "exit_status": report.exit_status,
        "totals": dict(report.totals),
        "effects": _effects(report.effects),
        "score": {
            "profile": report.profile,
            "required": score.required,
            "passed": score.passed,
            "percent": score.percent,
            "missing": [{"trial": one.trial, "verdict": one.verdict} for one in score.missing],
        },
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: ShownFinding) -> dict[str, Any]:
    level, says, source, profile = finding.demand
    return {
        "trial": finding.trial,
        "title": finding.title,
        "verdict": finding.verdict,
        "meaning": finding.meaning,
        "seconds": round(finding.seconds, 3),
        "effects": _effects(finding.effects),
        "demand": {
            "level": level,
            "profile": profile,
            "says": says,
            "source": None if source is None else source._asdict(),
        },
        "evidence": [_transcript(transcript) for transcript in finding.transcripts],
    }


def _effects(effects: Effects | None) -> dict[str, int] | None:
    return None if effects is None else effects._asdict()


def _transcript(transcript: Transcript) -> dict[str, Any]:
    answer = transcript.answer
    return {
        "began": round(transcript.began, 4),
        "seconds": round(transcript.seconds, 4),
        "note": transcript.note,
        "request": _message(transcript.request),
        "answer": None if answer is None else {"status": transcript.status} | _message(answer),
    }


def _message(message: Message) -> dict[str, Any]:
    return {"line": message.first, "headers": [list(line) for line in message.lines], "body": _body(message.body)}


def _body(body: Body) -> dict[str, Any]:
    return {"bytes": body.size, "text": body.text, "remark": body.remark}
