"""A report as it may be shown to anybody: every text in it is masked and visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from twicesafe.conformance.findings import Effects, Finding, Report, Verdict
from twicesafe.conformance.profiles import profiles
from twicesafe.conformance.reports.masking import Masking
from twicesafe.conformance.reports.transcripts import Transcript, transcripts
from twicesafe.conformance.reports.visible import on_one_line
from twicesafe.conformance.scores import Demand, Level, Score, demands, score

OVERALL: Final = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
"""What an exit status stands for."""

ORDER: Final = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED, Verdict.PASS)
"""What a reader has to see first."""


@dataclass(frozen=True, slots=True)
class ShownFinding:
    """One finding."""

    trial: str
    title: str
    verdict: Verdict
    meaning: str
    transcripts: tuple[Transcript, ...]
    effects: Effects | None
    seconds: float
    demand: Demand

    @property
    def counted(self) -> str:
        """`8 effects, 1 wanted`; empty where nothing was counted."""
        return "" if self.effects is None else _counted(self.effects)


@dataclass(frozen=True, slots=True)
class Shown:
    """A report."""

    target: str
    url: str
    profile: str
    rules: str
    """The profile's title."""
    findings: tuple[ShownFinding, ...]
    seconds: float
    requests: int
    version: str
    began: datetime | None
    effects: Effects | None
    verdict: Verdict
    exit_status: int
    score: Score

    @property
    def totals(self) -> dict[Verdict, int]:
        """How many findings there are of each verdict, the worst first."""
        return {verdict: len(self.of(verdict)) for verdict in ORDER}

    def of(self, verdict: Verdict) -> list[ShownFinding]:
        """The findings of one verdict."""
        return [finding for finding in self.findings if finding.verdict is verdict]

    @property
    def missing(self) -> dict[Verdict | None, list[str]]:
        """The trials that the score misses, by what they came to; None is for those that were not made."""
        found: dict[Verdict | None, list[str]] = {verdict: [] for verdict in (*ORDER[:3], None)}
        for one in self.score.missing:
            found[one.verdict].append(one.trial)
        return {verdict: trials for verdict, trials in found.items() if trials}

    @property
    def headline(self) -> str:
        """What came out, in a few words."""
        failed = len(self.of(Verdict.FAIL))
        if failed:
            return "One trial failed" if failed == 1 else f"{failed} trials failed"
        return "Nothing failed" if self.of(Verdict.PASS) else "Nothing was shown"

    @property
    def summary(self) -> str:
        """The sentence below it."""
        totals = self.totals
        said = [f"{totals[Verdict.PASS]} of {len(self.findings)} trials passed"]
        if totals[Verdict.INCONCLUSIVE]:
            said.append(f"{totals[Verdict.INCONCLUSIVE]} showed nothing")
        if totals[Verdict.UNSUPPORTED]:
            said.append(f"{totals[Verdict.UNSUPPORTED]} asked for what is not offered")
        line = f"{', '.join(said)}."
        return line if self.effects is None else f"{line} In all: {_counted(self.effects)}."


def shown(report: Report) -> Shown:
    """The report without what its readers are not to learn."""
    masking = Masking(report.secrets, (report.carrier,))
    demanded = demands(report.profile)
    return Shown(
        target=on_one_line(masking.url(report.target)),
        url=on_one_line(masking.url(report.url)),
        profile=on_one_line(report.profile),
        rules=known.title if (known := profiles().get(report.profile)) else on_one_line(report.profile),
        findings=tuple(_finding(finding, masking.learn(finding.evidence), demanded) for finding in report.findings),
        seconds=report.seconds,
        requests=report.requests,
        version=on_one_line(report.version),
        began=report.began,
        effects=report.effects,
        verdict=OVERALL[report.exit_status],
        exit_status=report.exit_status,
        score=score(report.profile, report.findings),
    )


def _finding(finding: Finding, masking: Masking, demanded: Mapping[str, Demand]) -> ShownFinding:
    return ShownFinding(
        trial=on_one_line(finding.trial),
        title=on_one_line(masking.text(finding.title)),
        verdict=finding.verdict,
        meaning=on_one_line(masking.text(finding.meaning)),
        transcripts=transcripts(finding.evidence, masking),
        effects=finding.effects,
        seconds=finding.seconds,
        demand=demanded.get(finding.trial, Demand(Level.OPTIONAL)),
    )


def _counted(effects: Effects) -> str:
    return f"{effects.counted:,} effect{'' if effects.counted == 1 else 's'}, {effects.expected:,} wanted"
