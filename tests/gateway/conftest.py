"""Fixtures of the gateway's tests."""

from __future__ import annotations

import pytest

from tests.gateway.front import Front, Rig
from tests.gateway.scripted import Service


@pytest.fixture(scope="session")
def front():
    """One server for all tests of a process."""
    server = Front()
    yield server
    server.close()


@pytest.fixture
def rig(front):
    """A gateway in front of a service of its own."""
    service = Service()
    rig = Rig(front, service)
    yield rig
    rig.close()
    service.close()
