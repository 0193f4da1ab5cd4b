"""The cases by the JavaScript client in a browser, from a page of another origin. tests/client/cases tells them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.cases.case import Trait
from tests.client.cases_table import noted
from tests.client.javascript import PLAY, Played, cases_for, standing
from tests.servers.chromium import chromium

BROWSER = frozenset({Trait.OUTCOME})
"""Of a redirect it says no more than that there was one, and another origin would have to allow each further header."""

CASES = {name: (group, case) for name, (group, case) in cases_for(BROWSER).items() if case.certificate is None}
"""Faults of TLS have to be met before a server can say whether it takes a page's requests."""


@pytest.fixture(scope="module")
def played() -> Iterator[dict[str, Played]]:
    """What a page made of each case."""
    with standing({name: case for name, (_, case) in CASES.items()}, cors=True) as cases:
        with chromium() as browser, browser.new_context(ignore_https_errors=True) as context:
            page = context.new_page()
            page.goto(cases.origin)
            said = page.evaluate("async ([script, cases]) => (await import(script)).playAll(cases)", [PLAY, cases.told])
        yield cases.played(said)


@pytest.mark.parametrize("name", CASES)
def test_every_case_by_a_page(name: str, played: dict[str, Played], request: pytest.FixtureRequest) -> None:
    """R35-R39, R41, I8, K: requests that the server read first, one key and the same bytes on each; the outcome."""
    request.node.user_properties.append(noted("javascript in Chromium", CASES[name][0]))
    played[name].check(BROWSER)


def test_each_attempt_is_allowed_by_its_server(played: dict[str, Played]) -> None:
    """R41: a key is no secret between a page and its own server: another origin is asked whether it takes one."""
    preflights = played["POST keyed, reset after the commit"].stage.server.preflights
    assert [hit.method for hit in preflights] == ["OPTIONS"] * len(preflights) and preflights
    assert all("idempotency-key" in (hit.header("access-control-request-headers") or "") for hit in preflights)
