"""The lab: what it refuses, what it takes for a proof, and one real storm under a network that is cut."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from twicesafe.storm.chaos.matrix import Cell, Operation, control
from twicesafe.storm.chaos.plan import Trouble
from twicesafe.storm.chaos.report import as_dict, proofs, table
from twicesafe.storm.chaos.run import Ran, check, isolation, run
from twicesafe.storm.errors import StormError

CUT = Cell("redis", Operation.KEYED, (Trouble.CUT,), 7)
REPORT = {"intents": 3, "effects": 3, "duplicates": 0, "lost": 0, "unknown": 0, "stuck": 0, "attempts": 4}


def ran(cell: Cell = CUT, *, clean: bool = True, blows: int = 3, unfelt: int = 0, duplicates: int = 0) -> Ran:
    proof = {"blows": blows, "unfelt": unfelt, "figures": {"packets refused or lost": 9}}
    told = {
        "report": {**REPORT, "duplicates": duplicates}, "clean": clean, "failures": 1, "held": 0, "remarks": [],
        "proofs": dict.fromkeys(cell.troubles, proof),
    }  # fmt: skip
    return Ran(cell, told, 1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--stores", "oracle"), "'oracle' is none of sqlite, postgresql, mysql, redis"),
        (("--operations", "opaque"), "none of transactional, keyed, resumable"),
        (("--troubles", "cut,rain"), "'rain' is none of"),
        (("--stores", "redis", "--operations", "resumable"), "has such an operation"),
        (("--stores", "sqlite", "--troubles", "cut"), "can meet such a trouble"),
        (("--at-once", "0"), "1 or more"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], said: str) -> None:
    """R42: one line that says what to ask for, status 2, and nothing is started."""
    command = [sys.executable, "-m", "twicesafe.storm.chaos", *arguments]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert refused.stdout == ""


def test_a_disk_is_not_filled_without_a_namespace_to_mount_it_in() -> None:
    """R42: a trouble that cannot be made here is refused by name, and not left out in silence."""
    with pytest.raises(StormError, match="disk-full needs root"):
        check([CUT._replace(troubles=(Trouble.DISK_FULL,))], isolated=False)
    check([CUT], isolated=False)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (ran(), True),
        (ran(clean=False), False),
        (ran(blows=0), False),
        (ran(unfelt=1), False),
        (Ran(CUT, {}, 1.0, "it was not over"), False),
        (ran(control(1), clean=False, duplicates=5), True),
        (ran(control(1), clean=True), False),
        (ran(control(1), clean=False, duplicates=5, blows=0), False),
    ],
)
def test_what_did_not_strike_proves_nothing(one: Ran, wanted: bool) -> None:
    """R42: a storm counts where its history is clean and each of its blows was felt; the one without twicesafe counts
    where it did damage. The tables say which did not."""
    assert one.as_wanted is wanted
    report = as_dict(7, [ran(), one], 2.0)
    assert report["clean"] is wanted
    assert json.loads(json.dumps(report))["cells"][1]["store"] == one.cell.store
    assert len(table([ran(), one]).splitlines()) == 3
    assert "9 packets refused or lost" in proofs([ran()])


def test_one_effect_for_each_intent_while_the_network_is_cut() -> None:
    """R42, B4: a Redis that is cut off from its servers three times, once for longer than a lease: each payment is made
    once, every client knows, and each cut lost something."""
    found: list[Ran] = []
    [one] = asyncio.run(run([CUT], 1, isolated=isolation(), ran=found.append))
    assert one.error == ""
    report: dict[str, Any] = one.told["report"]
    assert report["effects"] == report["intents"] > 100
    assert (report["duplicates"], report["lost"], report["unknown"], report["stuck"]) == (0, 0, 0, 0)
    proof = one.proofs[Trouble.CUT]
    assert (proof["blows"], proof["unfelt"]) == (3, 0)
    assert proof["figures"]["packets refused or lost"] >= 3
    assert one.as_wanted
    assert found == [one]
