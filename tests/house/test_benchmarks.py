"""What `python -m benchmarks` offers is there, and the page of the figures is what was measured."""

from __future__ import annotations

import asyncio
import gc
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import asgi, page, results
from benchmarks.__main__ import NAMES
from benchmarks.measure import FEWEST, PACE, Row, Subject, interleaved, rates, rows
from benchmarks.reasons import why
from benchmarks.targets import BEST, OURS, TARGETS, Target, verdicts

FRAME = {"flood", "load", "measure", "page", "plots", "reasons", "results", "statements", "targets"}
"""Modules that measure nothing themselves."""

PROMISED = {
    "asgi", "wsgi", "postgresql", "sqlite", "mysql", "redis", "client", "outbox", "phases", "growth", "http",
}  # fmt: skip


@pytest.fixture(autouse=True)
def frozen():
    """What the tests before have left is not collected anew before each round."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def quick():
    """As `--quick` has it."""
    PACE.quick = True
    yield
    PACE.quick = False


def shaped(found: list[Row]) -> None:
    """Each row says what it has to, each case has one floor at most, and no subject stands twice in a case."""
    assert found
    for row in found:
        assert row.keys() == Row.__annotations__.keys()
        assert row["case"] and row["subject"] and row["unit"] and row["runs"] >= 1
        assert row["low"] <= row["median"] <= row["high"] or row["runs"] == 1
        assert row["ratio_to_floor"] == pytest.approx(1.0) or row["subject"] != "floor"
    named = [(row["case"], row["subject"]) for row in found]
    assert len(set(named)) == len(named)


def test_every_benchmark_that_is_named_exists() -> None:
    """House: a name in the list of benchmarks is a module; each module is in the list, or a part of one that is."""
    assert [name for name in NAMES if find_spec(f"benchmarks.{name}") is None] == []
    there = {path.stem.partition("_")[0] for path in Path("benchmarks").glob("[!_]*.py")} - FRAME
    assert there == set(NAMES) == page.ABOUT.keys()
    assert set(NAMES) >= PROMISED


def test_every_benchmark_has_left_rows() -> None:
    """House: the newest results have rows of every benchmark that is named, all of one shape, and none failed."""
    newest = results.newest()
    assert newest["failed"] == {}
    assert list(newest["benchmarks"]) == list(NAMES)
    for found in newest["benchmarks"].values():
        shaped(found)
    assert results.path_of(newest["day"]).read_text(encoding="utf-8") == results.text(newest)


def test_every_peer_stands_in_the_results() -> None:
    """House: the newest results have figures of each package that is measured beside, and say its version."""
    newest = results.newest()
    subjects = " ".join(row["subject"] for found in newest["benchmarks"].values() for row in found)
    assert [peer for peer in results.PEERS if peer not in newest["versions"] or peer not in subjects] == []


def test_the_page_is_what_was_measured() -> None:
    """House: docs/benchmarks.md and its pictures are made from the newest results; `python -m benchmarks.page`."""
    made = page.files(results.newest())
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, path
    assert {path for path in made if path.suffix == ".svg"} == {*(page.DOCS / "images").glob("benchmarks-*.svg")}


def test_a_benchmark_by_itself_takes_the_place_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """House: rows that were measured again stand where the old ones stood, the page says so, and other versions too."""
    whole = results.newest()
    rows = whole["benchmarks"]["redis"][:1]
    monkeypatch.setattr(results, "machine", lambda: whole["machine"])
    monkeypatch.setattr(results, "versions", lambda: {**whole["versions"], "redis": "99.1", "newcomer": "1.0"})
    results.merged(whole, "redis", rows, 2.5, "2026-12-24, with --largest 5")
    assert whole["benchmarks"]["redis"] == rows
    assert list(whole["benchmarks"]) == list(NAMES)
    assert (whole["versions"]["newcomer"], whole["seconds"]["redis"]) == ("1.0", 2.5)
    assert "redis on 2026-12-24, with --largest 5, with redis 99.1" in " ".join(page.files(whole)[page.PAGE].split())
    monkeypatch.setattr(results, "machine", lambda: {"cores": "64"})
    with pytest.raises(ValueError, match="another machine"):
        results.merged(whole, "redis", rows, 2.5, "2026-12-24")


def test_every_target_is_judged() -> None:
    """House: each target finds its rows in the newest results, so none is passed over when a case is renamed."""
    judged = [verdict.target for verdict in verdicts(results.newest()["benchmarks"])]
    assert [target for target in TARGETS if target not in judged] == []


def test_reasons_are_counted() -> None:
    """House: what the page says about a target that is missed comes from rows of the same results."""
    newest = results.newest()["benchmarks"]
    said = [why(verdict, newest) for verdict in verdicts(newest)]
    assert any(said)
    assert [reason for reason in said if "?" in reason] == []


def test_a_benchmark_gives_rows(quick: None) -> None:
    """House: a benchmark that is run gives rows of that shape, with the floor and twicesafe in every case."""
    found = asyncio.run(asgi.measured())
    shaped(found)
    for case in {row["case"] for row in found}:
        assert {"floor", OURS} <= {row["subject"] for row in found if row["case"] == case}


def test_subjects_take_turns() -> None:
    """House: rounds alternate between the subjects; on a slow machine there are fewer, and less is done in each."""
    order: list[str] = []
    asked: list[int] = []

    def subject(name: str) -> Subject:
        async def run(n: int) -> float:
            order.append(name)
            asked.append(n)
            return float(n)

        return Subject(name, run)

    asyncio.run(interleaved([subject("a"), subject("b")], rounds=4, times=10))
    assert "".join(order) == "ab" + "abbaabba"
    order.clear()
    patience, PACE.seconds = PACE.seconds, 0.0
    try:
        asyncio.run(interleaved([subject("a")], rounds=9, times=100))
    finally:
        PACE.seconds = patience
    assert len(order) == 1 + FEWEST
    assert asked[-FEWEST:] == [25] * FEWEST


def test_ratios_are_of_the_same_round() -> None:
    """House: a ratio is the median of the rounds' ratios, so a machine that slows down in between changes none."""

    async def run(n: int) -> float:
        return float(n)

    floor, ours = Subject("floor", run, [1.0, 10.0, 100.0]), Subject(OURS, run, [2.0, 20.0, 200.0])
    assert [row["ratio_to_floor"] for row in rows("a case", "s", [floor, ours], float)] == [1.0, 2.0]
    assert [(row["median"], row["unit"]) for row in rates("a case", [floor, ours])] == [(0.1, "per s"), (0.05, "per s")]


def test_a_target_is_missed() -> None:
    """House: a figure beyond its bound is not reached, beside the best peer and not the worst."""
    times = {"floor": 1.0, OURS: 3.0, "slow": 9.0, "fast": 2.0}
    found = [
        Row(case="first request, 1 KB", subject=name, median=took, low=took, high=took, unit="us",
            ratio_to_floor=took, runs=1)
        for name, took in times.items()
    ]  # fmt: skip
    (verdict,) = verdicts({"asgi": found})
    assert verdict.target == Target("asgi", "first request, 1 KB", BEST, "below", 1.0)
    assert (verdict.beside, verdict.found, verdict.reached) == ("fast", 1.5, False)
