"""What a check shows of itself: a table, JSON, JUnit XML, and a page that people forward.

Everything in here sees a report through `shown.py`: masked, cut, and with nothing in it that a terminal, a browser or a
parser of XML would take for more than text. What targets answer is hostile until it has been there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TextIO

from twicesafe.conformance.findings import Report
from twicesafe.conformance.reports.shown import shown


class Form(StrEnum):
    """What a report can be."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    HTML = "html"


def write(report: Report, stream: TextIO, form: Form = Form.TABLE, *, evidence: bool = False) -> None:
    """Write a report, masked. With `evidence` a table is followed by the exchanges of what failed; the others have all.

    A table needs rich, HTML needs jinja2.
    """
    made = shown(report)
    match form:
        case Form.TABLE:
            from twicesafe.conformance.reports.table import write_table

            write_table(made, stream, evidence=evidence)
        case Form.JSON:
            from twicesafe.conformance.reports.document import as_json

            stream.write(as_json(made))
        case Form.JUNIT:
            from twicesafe.conformance.reports.junit import as_junit

            stream.write(as_junit(made))
        case Form.HTML:
            from twicesafe.conformance.reports.html import as_html

            stream.write(as_html(made))
