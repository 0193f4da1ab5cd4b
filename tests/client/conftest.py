"""Every way to send, for the tests that ask for it."""

from __future__ import annotations

import pytest

from tests.client.bindings import BINDINGS, TRANSPORTS, TYPED, Binding


@pytest.fixture(params=BINDINGS, ids=lambda binding: binding.name)
def binding(request: pytest.FixtureRequest) -> Binding:
    """Each of the eight."""
    return request.param


@pytest.fixture(params=TYPED, ids=lambda binding: binding.name)
def typed(request: pytest.FixtureRequest) -> Binding:
    """Those that return an outcome."""
    return request.param


@pytest.fixture(params=TRANSPORTS, ids=lambda binding: binding.name)
def transport(request: pytest.FixtureRequest) -> Binding:
    """Those that go under a client."""
    return request.param
