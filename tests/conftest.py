"""Fixtures every folder of tests may ask for."""

from __future__ import annotations

pytest_plugins = [
    "tests.servers.postgresql",
    "tests.servers.redis",
    "tests.servers.mariadb",
    "tests.servers.dynamodb",
    "tests.servers.chromium",
    "tests.stores.contract_table",
]
