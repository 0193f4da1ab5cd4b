"""A private RabbitMQ server: it needs some seconds to start, and more of a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twicesafe.storm.rabbitmq import PrivateRabbitMQ as RabbitMQServer


@pytest.fixture(scope="module")
def rabbitmq_server() -> Iterator[RabbitMQServer]:
    """One server for a module's tests: take exchanges and queues of your own."""
    with RabbitMQServer() as server:
        yield server
