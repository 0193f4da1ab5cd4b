"""Answers that break what reads them: a check of such a target ends with a report all the same."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.gateway.scripted import Service, answer
from twicesafe.conformance.findings import Answer, Verdict
from twicesafe.conformance.limits import Limits
from twicesafe.conformance.retry_after import named_wait
from twicesafe.conformance.run import check
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.trials import chosen

TARGET = """
[request]
url = "URL/orders"
json = { order = "{{unique}}", amount = 1 }
"""
BODIES = {
    "half a character": b'{"charge": "\\ud800 of a character"}',
    "nested without end": b'{"n": ' * 50_000,
    "a number without end": b'{"n": ' + b"9" * 5000 + b"}",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", [*BODIES])
def test_no_body_ends_a_check(name: str) -> None:
    """R43: what a target answers is read with suspicion: JSON that cannot be, is no JSON, and the trial goes on."""

    def script(wire) -> None:
        other = len(service.asked) > 3
        wire.send(answer(b"no", status=b"422 Unprocessable Content") if other else answer(BODIES[name]))

    with closing(Service()) as service:
        service.script = script
        report = check(from_toml(TARGET.replace("URL", service.url)), trials=chosen(["conflict-leak"]), limits=Limits())
        assert len(service.asked) == 4
    assert [finding.verdict for finding in report.findings] == [Verdict.PASS], report.findings


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("9" * 5000, 999_999_999.0),
        ("Wed, 21 Oct 2015 07:28:04 GMT", 4.0),
        ("soon", None),
        ("-1", None),
        ("²", None),
        ("21 Oct 99999999999999999999 07:28:00", None),
        ("Wed, 21 Oct 2015 07:28:04 +9999999999999999999", None),
        ("Wed, 99 Oct 2015 07:28:04 GMT", None),
        (", , , ,", None),
    ],
)
def test_no_retry_after_ends_a_check(line: str, seconds: float | None) -> None:
    """R43: seconds and dates are understood, measured from the answer's own clock; whatever else it is, is none."""
    lines = (("Date", "Wed, 21 Oct 2015 07:28:00 GMT"), ("Retry-After", line))
    assert named_wait(Answer(503, lines, b"")) == seconds
