"""A report on a terminal, or in a pipe."""

from __future__ import annotations

from typing import Final, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.reports.shown import Shown, ShownFinding

STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.UNSUPPORTED: "dim",
    Verdict.INCONCLUSIVE: "yellow",
}


def write_table(report: Shown, stream: TextIO, *, evidence: bool = False, width: int | None = None) -> None:
    """Write a table where a person looks, and elsewhere one line for each finding and a last one for all.

    With `evidence` the exchanges of what failed follow. A stream that cannot take a character gets its escape.
    """
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    if console.is_terminal:
        _draw(report, console)
    else:
        stream.writelines(f"{_fitting(_line(finding), stream)}\n" for finding in report.findings)
        stream.write(f"{_fitting(f'{report.verdict}  {_result(report)}', stream)}\n")
    for finding in report.of(Verdict.FAIL) if evidence else ():
        stream.writelines(
            f"\n{_fitting(f'* {finding.trial}{chr(10)}{transcript}', stream)}\n" for transcript in finding.transcripts
        )


def _line(finding: ShownFinding) -> str:
    counted = f" ({finding.counted})" if finding.counted else ""
    return f"{finding.verdict:<12}  {finding.trial:<24}  {finding.meaning}{counted}"


def _draw(report: Shown, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("trial", no_wrap=True)
    table.add_column("effects", justify="right", no_wrap=True)
    table.add_column("what was seen", overflow="fold")
    for finding in report.findings:
        style = STYLES[finding.verdict]
        counted = "" if finding.effects is None else f"{finding.effects.counted} of {finding.effects.expected}"
        doubled = finding.effects is not None and finding.effects.counted > finding.effects.expected
        table.add_row(
            Text(finding.verdict, style),
            Text(finding.trial),
            Text(counted, "bold red" if doubled else ""),
            Text(_fitting(finding.meaning, console.file), "" if finding.verdict is not Verdict.UNSUPPORTED else "dim"),
        )
    console.print(Text(_fitting(report.target, console.file), "bold"))
    console.print(table)
    console.print(Text.assemble((report.headline, STYLES[report.verdict]), ": ", _result(report)))


def _result(report: Shown) -> str:
    """The score, what is missing, and the size of it all."""
    score = report.score
    said = f"{score.passed} of {score.required} that {report.profile} requires"
    if score.missing:
        said += f" (not {', '.join(one.trial for one in score.missing)})"
    return f"{said}; {report.requests:,} requests in {report.seconds:.1f} s"


def _fitting(text: str, stream: object) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
