"""The storm of operations of several steps, small: workers and a provider beside the servers, and all of them break."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.running import Ran, twicesafe, twicesafe_within
from tests.storm.test_storm import KEYS
from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.storm.plan import KILL_POINTS

INTENTS = 40


def storm(*arguments: str) -> Ran:
    return twicesafe(
        *("storm", "--operation", "resumable", "--provider-faults", "--servers", "2", "--clients", "30"),
        *("--seed", "7", "--json", *arguments),
    )


def test_one_charge_and_one_row_for_each_intent(tmp_path: Path) -> None:
    """R24 to R27, R42: servers, workers and the provider are killed, and the provider loses answers; each intent is
    charged twice as wanted, has its three rows, and nothing stays unknown."""
    file = tmp_path / "storm.db"
    ran = storm("--store", f"sqlite:///{file}", "--intents", str(INTENTS))
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT run, intent, count(*) FROM storm_payments GROUP BY run, intent").fetchall()
        open_records = connection.execute("SELECT count(*) FROM twicesafe_records WHERE state != 'completed'")
        assert open_records.fetchone() == (0,)
    runs = sorted({run for run, _, _ in rows})
    assert [run.partition("/")[2] for run in runs] == ["", "closed", "reserved"]
    assert sorted(rows) == [(run, intent, 1) for run in runs for intent in range(INTENTS)]
    report = ran.json
    assert (report["effects"], report["duplicates"], report["lost"]) == (INTENTS, 0, 0)
    assert (report["unknown"], report["stuck"]) == (0, 0)
    assert ran.status == 0
    assert list(report) == KEYS
    faults = report["faults"]
    assert faults["sigkill"] >= 3
    assert (faults["sigkill_worker"], faults["database_restart"]) == (2, 1)
    assert faults["sigkill_provider"] >= 3
    # Which of the armed servers got so far is the machine's affair: a worker may have been quicker.
    assert sum(faults[kind] for kind in KILL_POINTS) >= 1
    for fault in ProviderFault:
        assert faults[f"provider_{fault}"] >= 1, fault
    assert "the reconcilers asked the provider" in ran.err


def test_without_twicesafe_the_provider_charges_twice() -> None:
    """R42: the same plan without twicesafe: charges under new keys, and rows that lack; the storm can fail."""
    ran = storm("--store", "sqlite", "--naive", "--intents", "20")
    assert ran.json["duplicates"] > 0
    assert ran.json["effects"] > 20
    assert ran.status == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--provider-faults",), "--operation resumable"),
        (("--operation", "resumable", "--store", "redis"), "recovery points"),
        (("--operation", "sideways"), "Invalid value"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], said: str) -> None:
    """R42: one line that says what to ask for, status 2, and nothing is started."""
    ran = twicesafe_within("storm", *arguments)
    assert ran.status == 2
    assert said in ran.err
