"""Which files of tests begin first under xdist."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

FIRST: Final = (
    "tests/storm/test_storm.py",
    "tests/storm/test_storm_outbox.py",
    "tests/storm/test_storm_stepwise.py",
    "tests/storm/test_storm_messages.py",
    "tests/behaviour/test_behaviour.py",
    "tests/stores/test_dynamodb_contract.py",
    "tests/stores/test_dynamodb_contract_async.py",
    "tests/demo/test_scenarios.py",
    "tests/cuts/test_cuts.py",
    "tests/cli/test_stores.py",
)
"""The files that take longest. Whoever begins one at the end of a run keeps the other workers waiting."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In xdist's workers: the longest files, then the others by their number of tests, as xdist itself orders them."""
    if not hasattr(config, "workerinput"):
        return
    places = {config.rootpath / name: place for place, name in enumerate(FIRST)}
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(FIRST)), -sizes[item.path]))
