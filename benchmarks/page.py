"""Writes docs/benchmarks.md and its pictures from the newest file in benchmarks/results: `python -m benchmarks.page`"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from benchmarks.measure import Row
from benchmarks.plots import Point, bars, figure, lines
from benchmarks.reasons import why
from benchmarks.results import PEERS, Results, newest
from benchmarks.targets import BEST, Verdict, verdicts

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"

ABOUT = {
    "asgi": "A keyed request around a Starlette application in-process, memory store. `bare` is the application "
    "alone, `added` what each costs more than it. Then first requests while a million keys are remembered.",
    "fastapi": "A contract on a route of FastAPI, beside the ASGI shell around the same application (`floor`).",
    "wsgi": "The same around a Flask application, and a contract on its view. Then Django: middlewares that remember "
    "in memory, and views of REST framework that remember in the database, a file of SQLite, beside three statements "
    "by hand. Not all promise the same: django-idempotency-key makes no claim, so two at once both run. drf-idem calls "
    "the view for a duplicate too, and compares no bodies. drf-idempotency, djangorestframework-idempotency-key and "
    "drf-idem know no callers. twicesafe.django is on its default contract, a transaction before the view and one "
    "after it.",
    "http": "wrk with 32 connections and a fresh key for each request, one server process, memory store.",
    "postgresql": "Claim, effect and answer, beside the same statements by hand on the same driver (`floor`); replays "
    "beside a bare read by primary key; one database under several HTTP servers, uvicorn and wrk, beside the rate at "
    "which pgbench commits.",
    "sqlite": "Claims and answers, each durable before it is answered: a thread that commits in groups, by hand "
    "(`floor`), and a transaction for each statement in three ways.",
    "mysql": "On MariaDB, beside the same statements by hand on the same driver.",
    "redis": "Claim and answer, beside a connection that tasks share, by hand (`floor`), and a pooled client; then "
    "whole requests, and plain functions, beside the peers on Redis.",
    "client": "A call that succeeds over loopback: the client process's own time on the processor.",
    "outbox": "Messages that wait are delivered, and what a message adds to its transaction, beside a job of "
    "procrastinate in the same, whose lock is the aggregate.",
    "phases": "Operations of three phases, beside three transactions and checkpoints by hand, a workflow of dbos, and "
    "three jobs of procrastinate, each of which defers the next in its transaction. A job is marked as done after its "
    "transaction, so a crash in between repeats the effect, and nobody is told an answer.",
    "recovery": "Operations that broke off are ended by two workers.",
    "growth": "A claim's time, and the bytes that a record takes, on stores with few and with many records; claims "
    "while a reaper works.",
}

HEAD = """# Benchmarks

<!-- Made by benchmarks/page.py from benchmarks/results. `make bench` measures and writes it anew. -->

Every figure stands beside its floor, the leanest version of the same work that one would write by hand, and beside the
other packages that do it, in one run whose rounds take turns. Only ratios within a run mean anything: another machine
has other figures, a busy one has worse ones.

```console
make bench                                       # everything, ten minutes: the results, the pictures and this page
make bench BENCH_ARGS="asgi --json"              # one of them, and nothing is written
make bench BENCH_ARGS="redis client --write"     # some of them, into the newest results and this page
make bench BENCH_ARGS="growth --largest 10000000 --write"    # ten million records, some minutes and 10 GB
```

A row has the median of its runs and their quartiles. `x floor` is the median of the ratios that a round's figures have
to the floor's of the same round: below 1 is better where the unit is a time, above 1 where it is a rate.
"""


BESIDE = (
    "A target is a ratio of two subjects of one case. Peers are taken as they are: what each of them promises, and "
    "what it leaves out, stands in [Four middlewares under the same check](comparison.md)."
)


def of_when(results: Results) -> list[str]:
    """Day, machine, versions."""
    machine = ", ".join(
        part
        for part in (
            results["machine"].get("processor", ""),
            f"{results['machine']['cores']} cores",
            results["machine"].get("memory", ""),
            results["machine"]["system"],
        )
        if part
    )
    peers = [f"{name} {number}" for name, number in results["versions"].items() if name in PEERS]
    others = [f"{name} {number}" for name, number in results["versions"].items() if name not in PEERS]
    found = [f"Measured on {results['day']}, on {machine}, in {sum(results['seconds'].values()):.0f} seconds."]
    if results["apart"]:
        each = "; ".join(f"{name} on {said}" for name, said in results["apart"].items())
        found += ["", wrapped(f"Measured again by themselves, after the others: {each}.")]
    if results["quick"]:
        found += ["", "**These are figures of a quick run, which shows that everything works and measures nothing.**"]
    return [*found, "", wrapped(f"Peers: {', '.join(peers)}. With {', '.join(others)}.")]


def wrapped(paragraph: str) -> str:
    """As wide as every page here."""
    return fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def of_targets(judged: Sequence[Verdict], *, quick: bool) -> list[str]:
    """What was to be reached."""
    found = ["## Targets", "", wrapped(BESIDE), "", "| | | beside | to be | is | |", "|---|---|---|---|---|---|"]
    for verdict in judged:
        target = verdict.target
        beside = f"{BEST}, {verdict.beside}" if target.beside == BEST else verdict.beside
        unit = f" {verdict.unit}"
        bound = f"{target.bound} {target.times:,g}{unit}"
        case = target.case if target.subject == "twicesafe" else f"{target.case}: `{target.subject}`"
        is_it = f"{figure(verdict.found)}{unit}"
        reached = "" if quick else "reached" if verdict.reached else "**not reached**"
        found.append(f"| {target.benchmark} | {case} | {beside} | {bound} | {is_it} | {reached} |")
    return found


def of_reasons(judged: Sequence[Verdict], results: Results) -> list[str]:
    """What is known of those that were not reached."""
    missed = [(verdict, why(verdict, results["benchmarks"])) for verdict in judged if not verdict.reached]
    known = [f"- {verdict.target.benchmark}, {verdict.target.case}: {reason}" for verdict, reason in missed if reason]
    return ["", "What the same run says of those that are not reached:", "", *known] if known else []


def of_benchmark(name: str, rows: Sequence[Row]) -> list[str]:
    """A section: pictures and the table."""
    found = [f"## {name}", "", wrapped(ABOUT[name]), ""]
    if has_floor(rows):
        found += [f"![{name}: ratios to the floor](images/benchmarks-{name}.svg)", ""]
    if name in CHARTS:
        chart = CHARTS[name]
        found += [f"![{chart.title}](images/benchmarks-{chart.name}.svg)", ""]
    found += ["| case | subject | median | quartiles | unit | x floor | runs |", "|---|---|--:|--:|---|--:|--:|"]
    for case, group in groupby(rows, key=lambda row: row["case"]):
        for number, row in enumerate(group):
            spread = f"{figure(row['low'])} to {figure(row['high'])}" if row["runs"] > 1 else ""
            ratio = f"{row['ratio_to_floor']:.2f}" if row["ratio_to_floor"] else ""
            subject = f"**{row['subject']}**" if row["subject"].startswith("twicesafe") else row["subject"]
            cells = ["" if number else case, subject, figure(row["median"]), spread, row["unit"], ratio]
            found.append(f"| {' | '.join(cells)} | {row['runs']} |")
    return found


def has_floor(rows: Sequence[Row]) -> bool:
    """Whether there is anything to draw."""
    return any(row["ratio_to_floor"] > 0 for row in rows)


def growth(rows: Sequence[Row]) -> dict[str, list[Point]]:
    """A line for each database."""
    found: dict[str, list[Point]] = {}
    for row in rows:
        database, comma, case = row["case"].partition(", ")
        size = re.fullmatch(r"([\d,]+) records", row["subject"])
        if comma and case == "claim" and size is not None:
            point = Point(int(size[1].replace(",", "")), row["median"], row["low"], row["high"])
            found.setdefault(database, []).append(point)
    return found


def scale(rows: Sequence[Row]) -> dict[str, list[Point]]:
    """A line each for twicesafe, for the same by hand, for an application that protects nothing, and for the database
    alone."""
    found: dict[str, list[Point]] = {"twicesafe": [], "by hand": [], "effect alone": [], "pgbench": []}
    for row in rows:
        if not row["case"].startswith("scale-out"):
            continue
        named = re.fullmatch(r"(.+), (\d+) process(?:es)?", row["subject"])
        for name, count in [named.groups()] if named is not None else [("pgbench", "1"), ("pgbench", "4")]:
            found[name].append(Point(int(count), row["median"], row["low"], row["high"]))
    return {name: points for name, points in found.items() if points}


class Chart(NamedTuple):
    """Lines beside the bars of a benchmark."""

    name: str
    title: str
    unit: str
    lines: Callable[[Sequence[Row]], dict[str, list[Point]]]


CHARTS = {
    "growth": Chart("growth-claim", "Time of a claim over the number of records", "us", growth),
    "postgresql": Chart("scale-out", "Requests per second over the number of server processes", "per s", scale),
}


def files(results: Results) -> dict[Path, str]:
    """The page and its pictures, by where they belong."""
    verdict = verdicts(results["benchmarks"])
    judged = of_targets(verdict, quick=results["quick"])
    if not results["quick"]:
        judged += of_reasons(verdict, results)
    page = [HEAD, *of_when(results), "", *judged]
    found: dict[Path, str] = {}
    for name, rows in results["benchmarks"].items():
        page += ["", *of_benchmark(name, rows)]
        pictures = DOCS / "images"
        if has_floor(rows):
            found[pictures / f"benchmarks-{name}.svg"] = bars(f"{name}: ratios to the floor", rows)
        if name in CHARTS:
            chart = CHARTS[name]
            found[pictures / f"benchmarks-{chart.name}.svg"] = lines(chart.title, chart.lines(rows), chart.unit)
    if results["failed"]:
        page += ["", "## Without figures", ""]
        page += [f"- {name}: {why}" for name, why in results["failed"].items()]
    found[PAGE] = "\n".join(page) + "\n"
    return found


def write(results: Results) -> None:
    """Write them, and remove pictures of what is not there any more."""
    made = files(results)
    for old in (DOCS / "images").glob("benchmarks-*.svg"):
        if old not in made:
            old.unlink()
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(newest())
