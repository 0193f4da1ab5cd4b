"""The blocking DynamoDB store keeps the contract, on an emulator."""

from __future__ import annotations

import pytest

from tests.servers.dynamodb import DynamodbServer
from tests.stores.dynamodb_place import KEYS, RIVALS, new_place
from twicesafe.testing import CHECKS, Outcome, check_store
from twicesafe.testing.check import RESUMES, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_dynamodb_keeps_its_promises(dynamodb_server: DynamodbServer, check: Check) -> None:
    """B1, B4, B5, B6, C1, C2, C4, C6, C8, D1, D2, D4, D6, F6, F8, G1, H2, A3, A4, A7, K: in blocking calls."""
    make = new_place(dynamodb_server, "dynamodb").subject
    [result] = check_store(make, only=[check.name], rivals=RIVALS, keys=KEYS)
    assert result.outcome is (Outcome.NOT_APPLICABLE if RESUMES in check.needs else Outcome.PASSED), result.reason
