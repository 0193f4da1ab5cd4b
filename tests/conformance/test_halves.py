"""Answers that break off, and what their retries may be told."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.gateway.scripted import Service, answer
from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.limits import Limits
from twicesafe.conformance.run import check
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.trials import chosen

TARGET = """
[request]
url = "URL/orders"
body = "of={{unique}}"
[effects]
url = "URL/effects?of={{unique}}"
[failing]
url = "URL/broken"
"""
WHOLE = b"0123456789"


@pytest.fixture
def service():
    with closing(Service()) as service:
        yield service


@pytest.mark.parametrize(("kept", "verdict"), [(WHOLE[:4], Verdict.FAIL), (WHOLE, Verdict.PASS)])
def test_half_an_answer_is_not_given_again_as_a_whole(service, kept, verdict) -> None:
    """R43, K: an answer that broke off and comes back as if it had been complete is found; the complete one is fine."""
    keys = set()

    def script(wire) -> None:
        asked = service.asked[-1]
        if asked.start.startswith("GET"):
            wire.send(answer(b"1", status=b"200 OK"))
        elif "/orders" in asked.start:
            wire.send(answer(asked.value("idempotency-key").encode()))
        elif asked.value("idempotency-key") in keys:
            wire.send(answer(kept))
        else:
            keys.add(asked.value("idempotency-key"))
            wire.send(answer(WHOLE)[: -len(WHOLE) + 4])
            wire.reset()

    service.script = script
    report = check(from_toml(TARGET.replace("URL", service.url)), trials=chosen(["server-error"]), limits=Limits())
    (found,) = report.findings
    assert found.effects is not None and found.effects.counted == 1
    assert found.verdict is verdict, found.meaning
