"""A private NATS server with JetStream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twicesafe.storm.nats import PrivateNats as NatsServer


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    """One server for a module's tests: take a stream and subjects of your own."""
    with NatsServer() as server:
        yield server
