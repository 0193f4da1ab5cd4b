"""`twicesafe check` on an Express application that knows nothing of keys, behind the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.running import express, free_port, gateway
from twicesafe.conformance.findings import Verdict
from twicesafe.conformance.limits import Limits
from twicesafe.conformance.run import check
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.trials import chosen

pytestmark = pytest.mark.timeout(600)
"""Nobody waits for time to be up; a busy machine takes its time."""
TARGET = """
[request]
url = "GATE/orders?what={{unique}}"
headers = { X-User-Id = "ann" }
json = { order = "{{unique}}", apples = 3 }

[key]
required = true

[effects]
url = "SHOP/orders?what={{unique}}"

[slow]
url = "GATE/slow?what={{unique}}"
reached = { url = "SHOP/gates/{{unique}}", method = "GET" }
after = { url = "SHOP/gates/{{unique}}" }

[failing]
url = "GATE/known?what={{unique}}"

[throttled]
url = "GATE/busy?what={{unique}}"

[other_caller]
headers = { X-User-Id = "bob" }

[unauthorized]
headers = { X-User-Id = "" }
"""
LIMITS = Limits(seconds=600.0, trial=120.0, answer=60.0, beside=5.0, parallel=4)
BEYOND = ("after-expiry", "restart-after-answer", "crash-while-running")
"""Those for which the gateway would have to be killed or its clock moved; its own tests do that."""


def test_express_behind_the_gateway_passes(tmp_path: Path) -> None:
    """R42, R43: in front of an application in another language the gateway makes every trial pass."""
    shop = express(tmp_path, free_port())
    gate = gateway(tmp_path, shop.port, "--require-key")
    try:
        shop.start()
        gate.start()
        text = TARGET.replace("GATE", f"http://127.0.0.1:{gate.port}").replace("SHOP", f"http://127.0.0.1:{shop.port}")
        report = check(from_toml(text), trials=chosen(skip=BEYOND), limits=LIMITS)
    finally:
        gate.end()
        shop.end()
    assert report.effects is not None and report.effects.counted == report.effects.expected > 20
    assert {one.trial: one.meaning for one in report.findings if one.verdict is not Verdict.PASS} == {}
