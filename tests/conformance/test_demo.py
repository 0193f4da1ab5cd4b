"""`twicesafe check` on both lanes of the demo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import twicesafe_within
from tests.demo.service import Demo, demo

NOT_TOLD = "after-expiry"
"""A day would have to pass."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with demo(tmp_path_factory.mktemp("demo")) as service:
        yield service


def test_the_safe_lane_passes(running: Demo, tmp_path: Path) -> None:
    """R42, R43: of the demo's safe lane every trial passes, a crash after the charge included."""
    out = tmp_path / "report.json"
    ran = twicesafe_within(
        "check", "--demo", "safe", "--server", running.url, "--format", "json", "--out", str(out), "--skip", NOT_TOLD
    )
    report = json.loads(out.read_text())
    assert report["effects"]["counted"] == report["effects"]["expected"] > 20, ran.out
    assert {one["trial"]: one["meaning"] for one in report["findings"] if one["verdict"] != "pass"} == {}
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
