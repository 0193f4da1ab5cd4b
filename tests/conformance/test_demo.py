"""`twicesafe check` on both lanes of the demo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import twicesafe_within
from tests.demo.service import Demo, demo
from twicesafe.conformance.trials import ALL
from twicesafe.demo.faults import ArmedFaults
from twicesafe.demo.scene import Scene
from twicesafe.demo.stage import stage

pytestmark = pytest.mark.timeout(600)
"""Nobody waits for time to be up; a busy machine takes its time."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with demo(tmp_path_factory.mktemp("demo"), None, "--lets-expire") as service:
        yield service


def test_the_safe_lane_passes(running: Demo, tmp_path: Path) -> None:
    """R42, R43: of the demo's safe lane every trial passes, a crash after the charge and the end of keys included."""
    out = tmp_path / "report.json"
    ran = twicesafe_within(
        "check", "--demo", "safe", "--server", running.url, "--format", "json", "--out", str(out), "--timeout", "900"
    )
    report = json.loads(out.read_text())
    assert report["effects"]["counted"] == report["effects"]["expected"] > 20, ran.out
    assert {one["trial"]: one["meaning"] for one in report["findings"] if one["verdict"] != "pass"} == {}
    assert len(report["findings"]) == len(ALL)
    assert (ran.status, ran.err) == (0, "")


def test_the_naive_lane_is_found_out(running: Demo) -> None:
    """R42, R43: of the naive lane the check finds the second charge, and says what it means."""
    ran = twicesafe_within(
        "check", "--demo", "naive", "--server", running.url, "--only", "replay", "--only", "parallel-duplicates",
        "--only", "answer-lost", "--format", "json",
    )  # fmt: skip
    found = {one["trial"]: one for one in ran.json["findings"]}
    counted = {name: (one["effects"]["counted"], one["effects"]["expected"]) for name, one in found.items()}
    assert counted == {"replay": (3, 1), "parallel-duplicates": (9, 1), "answer-lost": (2, 1)}
    assert {one["verdict"] for one in found.values()} == {"fail"}
    assert ran.status == 1
    assert "pays again" in found["replay"]["meaning"]


def test_keys_expire_only_where_that_was_asked_for() -> None:
    """R20: a demo that was not started to be checked has no address at which keys are forgotten."""
    there, not_there = (
        {route.path for route in stage(Scene({}), ArmedFaults(), (), lets_expire=lets).routes} for lets in (True, False)
    )
    assert there - not_there == {"/demo/expire"}
