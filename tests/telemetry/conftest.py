"""What the tests of this folder ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.telemetry.recorded import Recorded, recording
from tests.telemetry.searched import Searched, searching


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """An observer that counts and traces, and what it made of what it was told."""
    with recording() as made:
        yield made


@pytest.fixture
def searched() -> Iterator[Searched]:
    """Everything that is said while the test lasts is searched for what was planted."""
    with searching() as found:
        yield found
