"""`twicesafe check` as a command: what it sends, says, writes and ends with."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from contextlib import closing
from xml.etree import ElementTree as ET

import pytest

from tests.cli.running import command, twicesafe_within
from tests.gateway.scripted import PATIENCE, Service, answer


@pytest.fixture
def service():
    with closing(Service()) as service:
        yield service


def test_a_dry_run_sends_nothing(service) -> None:
    """R43: --dry-run says what would be sent, and at most how much, and nothing is."""
    ran = twicesafe_within("check", "--curl", f"curl {service.url}/orders -d x", "--dry-run", "--only", "replay")
    assert service.connections == 0
    assert ran.status == 0
    assert "replay" in ran.out and "At most 7 requests" in " ".join(ran.out.split())


def test_another_machine_is_left_alone() -> None:
    """R43: what is not on this machine is not touched without --i-own-this, and one line says so."""
    ran = twicesafe_within("check", "--curl", "curl http://192.0.2.1/orders -d x")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("twicesafe: ") and "--i-own-this" in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one target"),
        (("--curl", "curl http://127.0.0.1:9/ -d x", "--demo", "safe"), "one target"),
        (("nowhere.toml",), "does not exist|cannot be read"),
        (("--openapi", "nowhere.json"), "--operation|does not exist"),
        (("--curl", "curl http://127.0.0.1:9/ -d x", "--only", "everything"), "no trial everything"),
        (("--curl", "curl http://127.0.0.1:9/ -d x", "--format", "pdf"), "--format"),
        (("--curl", "curl http://127.0.0.1:9/ -d x", "--profile", "nobody"), "no profile nobody"),
        (("--curl", "curl http://127.0.0.1:9/ -d x", "-H", "nothing"), "no header line"),
        (("--curl", "curl http://127.0.0.1:9/ -d x", "--count-url", "http://192.0.2.1/"), "--i-own-this"),
        (("--curl", "curl http://127.0.0.1:9/ -d x"), "does not answer"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments, said) -> None:
    """R43: a wrong option, a target out of reach and a file that is not there end with 2 and one line of reason."""
    ran = twicesafe_within("check", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert any(part in ran.err for part in said.split("|")), ran.err


def test_a_target_that_takes_nothing_is_not_tried(service) -> None:
    """R43: where even the plain request is refused there is nothing to try: it was sent, and no more."""
    service.script = lambda wire: wire.send(answer(b"no", status=b"403 Forbidden"))
    ran = twicesafe_within("check", "--curl", f"curl {service.url} -d x")
    assert len(service.asked) <= 2
    assert ran.status == 2 and "403" in ran.err


def test_a_refusal_is_not_repeated(service) -> None:
    """R22, R43: what a target says to the plain request may hold a key, a token, a card: its size and kind are told."""
    told = b'{"error": "ada@example.com pays by 4111111111111111, token=tok_secret"}'
    kind = b"Content-Type: application/problem+json; charset=utf-8"
    service.script = lambda wire: wire.send(answer(told, kind, status=b"403 Forbidden"))
    ran = twicesafe_within("check", "--curl", f"curl {service.url} -d x")
    assert not {word for word in ("ada", "4111", "tok_secret") if word in ran.err + ran.out}
    assert ran.status == 2 and "71 bytes of application/problem+json" in ran.err


def test_answers_that_do_not_tell_decide_nothing(service) -> None:
    """R43: where effects are not counted and all answers are alike, what only a count could tell is not told."""
    ran = twicesafe_within("check", "--curl", f"curl {service.url} -d x", "--only", "replay", "--format", "json")
    (found,) = ran.json["findings"]
    assert (found["verdict"], ran.status) == ("inconclusive", 2)
    assert "cannot be counted" in found["meaning"]


def test_a_counter_decides(service) -> None:
    """R42, R43: the same answers, and a counter that knows of three effects: that is a failure, and exit status 1."""

    def script(wire) -> None:
        posts = sum(one.start.startswith("POST") for one in service.asked)
        wire.send(answer(b"%d" % posts, status=b"200 OK") if service.asked[-1].start.startswith("GET") else answer())

    service.script = script
    ran = twicesafe_within(
        "check", "--curl", f"curl {service.url} -d x", "--count-url", f"{service.url}/count", "--only", "replay",
        "--format", "json",
    )  # fmt: skip
    (found,) = ran.json["findings"]
    assert found["effects"] == {"counted": 3, "expected": 1}
    assert (found["verdict"], ran.status) == ("fail", 1)


@pytest.mark.parametrize("form", ["json", "junit", "html", "table"])
def test_a_report_is_kept_and_shows_no_secret(service, tmp_path, form) -> None:
    """R22, R43: every form of the report is written to a file, and no credential stands in it."""
    out = tmp_path / f"report.{form}"
    ran = twicesafe_within(
        "check", "--curl", f"curl {service.url}/orders -d x -H 'Authorization: Bearer s3cret-token-of-mine'",
        "--only", "replay", "--only", "padded-key", "--format", form, "--out", str(out),
    )  # fmt: skip
    text = out.read_text()
    assert "s3cret" not in text + ran.out
    assert "replay" in text and "replay" in ran.out
    if form == "json":
        assert {one["trial"] for one in json.loads(text)["findings"]} == {"replay", "padded-key"}
    if form == "junit":
        assert len(ET.fromstring(text).findall(".//testcase")) == 2


def test_interrupted_it_says_so_by_its_status(service) -> None:
    """R43: Ctrl-C ends a check with 130, and no report."""
    interrupted = threading.Event()
    process = subprocess.Popen(
        command("check", "--curl", f"curl {service.url} -d x"),
        stderr=subprocess.PIPE,
        text=True,
        # Who runs the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    def script(wire) -> None:
        if len(service.asked) == 3:
            process.send_signal(signal.SIGINT)
            interrupted.set()
        wire.send(answer())

    service.script = script
    _, said = process.communicate(timeout=PATIENCE)
    assert interrupted.is_set()
    assert (process.returncode, said) == (130, "")


def test_what_a_counters_command_is_told_is_in_no_report(service, tmp_path, monkeypatch) -> None:
    """R22, R43: a secret of the environment, which the command repeats as it fails, is masked like any other."""
    monkeypatch.setenv("SHOP_PASSWORD", "sesame-open")
    target, out = tmp_path / "target.toml", tmp_path / "report.json"
    target.write_text(
        f"""
        [request]
        url = "{service.url}/orders"
        body = "of={{{{unique}}}}"
        [effects]
        command = "sh -c 'test ! -e {tmp_path}/later && echo 2 || (echo {{{{env:SHOP_PASSWORD}}}} >&2; exit 1)'"
        """
    )

    def script(wire) -> None:
        if len(service.asked) > 2:
            (tmp_path / "later").touch()
        wire.send(answer(b"done"))

    service.script = script
    ran = twicesafe_within("check", str(target), "--only", "replay", "--format", "json", "--out", str(out))
    assert "sesame" not in ran.out + ran.err + out.read_text()
    assert "ended with 1" in out.read_text()
