"""The MySQL stores keep the contract: each check of `twicesafe.testing`, by both drivers, on a real MariaDB."""

from __future__ import annotations

import pytest

from tests.servers.mariadb import MariadbServer
from tests.stores.claims import FEWER_KEYS
from tests.stores.mysql_kinds import KIND, emptied_place
from twicesafe.testing import CHECKS, Outcome, check_store
from twicesafe.testing.check import Check


@KIND
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_mysql_keeps_its_promises(mariadb_server: MariadbServer, kind: str, check: Check) -> None:
    """B1, B4, B5, B6, C1, C2, C4, C6, C8, D1, D2, D4, D6, F6, F8, G1, H2, A3, A4, A7, K: by every driver."""
    [result] = check_store(emptied_place(mariadb_server, kind).subject, only=[check.name], keys=FEWER_KEYS)
    assert result.outcome is Outcome.PASSED
