"""Fixtures every folder of tests may ask for."""

from __future__ import annotations

pytest_plugins = [
    "pytester",
    "tests.planted",
    "tests.servers.postgresql",
    "tests.servers.redis",
    "tests.servers.mariadb",
    "tests.servers.dynamodb",
    "tests.servers.chromium",
    "tests.servers.nats",
    "tests.servers.rabbitmq",
    "tests.servers.tansu",
    "tests.stores.contract_table",
    "tests.behaviour.behaviour_table",
    "tests.client.cases_table",
    "tests.model.schedule_table",
]
