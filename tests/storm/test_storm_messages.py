"""The storm of messages, small: a relay and the receiver are killed, and each message has its one effect."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.running import Ran
from tests.storm.test_storm import descendants_once_there_are, left_of
from twicesafe.storm.messages.__main__ import main

PROCESSES = 5
"""How many there are below it at least: a server that forks, two relays, a consumer, and what tracks them."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "twicesafe.storm.messages", "--relays", "2", "--seed", "7", *arguments]


def storm(*arguments: str) -> Ran:
    ran = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in ran.stdout + ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_every_message_has_its_one_effect() -> None:
    """R28, R29, I9: relays are killed, and the webhooks' server is restarted and killed; each message of a committed
    transaction is delivered, in the order of commits within its aggregate, and handled once."""
    ran = storm("--messages", "150", "--kills", "1")
    report = ran.json
    assert (report["effects"], report["repeated"], report["lost"], report["phantoms"]) == (150, 0, 0, 0)
    assert report["out_of_order"] == 0
    assert report["deliveries"] == 150 + report["duplicates"]
    assert report["rolled_back"] == 7
    assert report["kills"] == 1
    assert (report["restarts"], report["consumer_kills"] >= 1) == (2, True)
    assert (ran.status, report["seed"]) == (0, 7)
    assert ran.err.startswith("Seed 7: ")


def test_a_storm_is_not_over_before_a_relay_has_died() -> None:
    """R42: however soon all would have arrived, some messages are written after the first SIGKILL."""
    ran = storm("--messages", "10", "--kills", "1", "--kill-every", "2.5", "--restarts", "0")
    report = ran.json
    assert (report["effects"], report["kills"], ran.status) == (10, 1, 0)


def test_a_storm_of_messages_that_is_killed_leaves_nobody_behind() -> None:
    """R42: even SIGKILL, which it cannot act on, ends what it forked."""
    with subprocess.Popen(
        command("--messages", "2000"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            started = descendants_once_there_are(PROCESSES, process)
        finally:
            process.kill()
    assert left_of(started) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "pigeons"), "invalid choice"),
        (("--messages", "0"), "--messages must be above 0"),
        (("--messages", "2"), "fewer than there are messages"),
        (("--relays", "0"), "--relays must be above 0"),
    ],
)
def test_what_cannot_be_stormed_is_refused(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R42: status 2, a line that names what was wrong, and nothing is started."""
    monkeypatch.setattr(sys, "argv", ["messages", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in err
