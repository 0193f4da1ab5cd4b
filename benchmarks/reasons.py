"""Why a target is not reached, as far as the same run has counted or measured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.measure import Row
from benchmarks.targets import BEST, Verdict


def why(verdict: Verdict, benchmarks: Mapping[str, Sequence[Row]]) -> str:
    """A sentence, or nothing where nothing is known."""
    target = verdict.target
    found = {(row["case"], row["subject"]): row for row in benchmarks[target.benchmark]}

    def median(case: str, subject: str) -> str:
        row = found.get((case, subject))
        return "?" if row is None else f"{row['median']:,.2f}".removesuffix(".00")

    if target.benchmark == "asgi" and ("request" in target.case or "replay" in target.case):
        case = "replay" if "replay" in target.case else "first request: added"
        counted = f"{case}, interpreted operations"
        peer = "" if target.beside != BEST else f", {verdict.beside} {median(counted, verdict.beside)}"
        return (
            f"Counted in operations of the interpreter ({case}): by hand {median(counted, 'floor')}, "
            f"twicesafe {median(counted, target.subject)}{peer}."
        )
    if target.benchmark == "wsgi" and verdict.beside == "django-idempotency-key":
        return (
            "It claims nothing before the view runs: of two requests at once both run it, and what a process leaves "
            "behind that dies is run again."
        )
    if target.benchmark == "http":
        share = f"{target.case} beside the bare application's"
        return f"The floor, by hand, reaches {median(share, 'floor')} of the bare application."
    if target.benchmark == "redis" and target.case.startswith("requests"):
        alone = target.case.replace("requests", "claim and answer")
        return (
            f"Claim and answer alone, without a request around them: {median(alone, target.subject)} per s, and "
            f"{median(alone, 'floor')} by hand."
        )
    if "replay" in target.case and target.benchmark == "postgresql":
        case = target.case.rpartition(", ")[0]
        elsewhere = case.replace("replay", "replay of another process's")
        return (
            f"Counted on the wire, a replay waits for the database {median(f'{case}: waits', target.subject)} time, "
            f"like a bare read; one of another process's {median(f'{elsewhere}: waits', target.subject)} times. The "
            f"rest is the request's own: {in_memory(benchmarks)} us on a store in memory, where a whole bare read has "
            f"{1e6 / found[target.case, 'floor']['median']:,.1f} us."
        )
    return ""


def in_memory(benchmarks: Mapping[str, Sequence[Row]]) -> str:
    """What a replay takes where nothing is waited for."""
    for row in benchmarks.get("asgi", ()):
        if (row["case"], row["subject"]) == ("replay, 1 KB", "twicesafe"):
            return f"{row['median']:,.1f}"
    return "?"
