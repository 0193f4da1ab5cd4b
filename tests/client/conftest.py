"""Every way to send, for the tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.bindings import BINDINGS, HTTPX, TRANSPORTS, TYPED, Binding
from twicesafe.client._left_open import LEFT_OPEN


@pytest.fixture(params=BINDINGS, ids=lambda binding: binding.name)
def binding(request: pytest.FixtureRequest) -> Binding:
    """Each of them."""
    return request.param


@pytest.fixture(params=TYPED, ids=lambda binding: binding.name)
def typed(request: pytest.FixtureRequest) -> Binding:
    """Those that return an outcome."""
    return request.param


@pytest.fixture(params=TRANSPORTS, ids=lambda binding: binding.name)
def transport(request: pytest.FixtureRequest) -> Binding:
    """Those that go under a client."""
    return request.param


@pytest.fixture(params=HTTPX, ids=lambda binding: binding.name)
def httpx_binding(request: pytest.FixtureRequest) -> Binding:
    """Those whose library is httpx2 or httpx."""
    return request.param


@pytest.fixture(params=[binding for binding in HTTPX if not binding.typed], ids=lambda binding: binding.name)
def httpx_transport(request: pytest.FixtureRequest) -> Binding:
    """Of those, the ones that go under a client."""
    return request.param


@pytest.fixture(params=[binding for binding in HTTPX if binding.typed], ids=lambda binding: binding.name)
def httpx_typed(request: pytest.FixtureRequest) -> Binding:
    """And the others."""
    return request.param


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """What one test leaves open is no other's business, which may ask for the same thing under another key."""
    LEFT_OPEN.known.clear()
    yield
    LEFT_OPEN.known.clear()
