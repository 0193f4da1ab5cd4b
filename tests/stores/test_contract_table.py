"""The table at the end of a run."""

from __future__ import annotations

from tests.stores.contract_table import PROPERTY, store_of, table
from tests.stores.test_contract import memory
from twicesafe.testing import CHECKS, check_store


def test_what_a_check_came_to_is_noted_on_its_test(request) -> None:
    """R42: whatever test runs a check of the contract, its outcome is noted under the test's store, for the table."""
    check_store(memory, only=["epochs_grow"])
    assert request.node.user_properties[-1] == (
        PROPERTY, ["what a check came to is noted on its test", "epochs_grow", "passed"]
    )  # fmt: skip
    # What is tried here is no store's.
    request.node.user_properties.clear()
    assert store_of(request.node) == "what a check came to is noted on its test"


def test_the_table_has_a_line_for_each_check_and_says_which_store_is_which() -> None:
    """R42: passed, failed, not applicable and not run are told apart, and each store's are counted."""
    first, second, third, *_ = [check.name for check in CHECKS]
    lines = table({"memory": {first: "ok", second: "-"}, "asyncpg": {first: "ok", second: "NO", third: "ok"}})
    assert len(lines) == 1 + len(CHECKS) + 1 + 2
    assert lines[1].split() == [first, "ok", "ok"]
    assert lines[2].split() == [second, "NO", "-"]
    assert lines[3].split() == [third, "ok"]
    assert lines[4].split() == [CHECKS[3].name]
    assert lines[-2:] == ["   1  asyncpg: 2 passed, 1 FAILED", "   2  memory: 1 passed, 1 not applicable"]
