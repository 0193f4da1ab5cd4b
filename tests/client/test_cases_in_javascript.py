"""Every case by the JavaScript client, on Node.js: one process plays them all. tests/client/cases tells them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.cases.case import Trait
from tests.client.cases_table import noted
from tests.client.certificates import authorities
from tests.client.javascript import Played, cases_for, standing

NODE = frozenset({Trait.OUTCOME, Trait.SHOWN, Trait.NUMBERED})
"""fetch() proves nothing, follows nothing that keeps the key here, and takes its bytes at once."""

CASES = cases_for(NODE)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Played]]:
    """What Node.js made of each case."""
    program = shutil.which("node")
    assert program is not None, "install Node.js 18 or later"
    trusted = tmp_path_factory.mktemp("node") / "authorities.pem"
    trusted.write_text(authorities(), "ascii")
    with standing({name: case for name, (_, case) in CASES.items()}) as cases:
        ran = subprocess.run(
            [program, str(Path(__file__).parent / "cases" / "node.mjs")],
            input=json.dumps(cases.told),
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(trusted)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        yield cases.played(json.loads(ran.stdout))


@pytest.mark.parametrize("name", CASES)
def test_every_case_by_javascript(name: str, played: dict[str, Played], request: pytest.FixtureRequest) -> None:
    """R35-R39, R41, I8, K: requests that the server read first, one key and the same bytes on each; the outcome."""
    request.node.user_properties.append(noted("javascript on Node.js", CASES[name][0]))
    played[name].check(NODE)
