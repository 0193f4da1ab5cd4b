"""How long a stream goes on without its reader is no question of how busy the machine is."""

from __future__ import annotations

import pytest

from twicesafe import incoming
from twicesafe.blocking import sending
from twicesafe.django import threads

PATIENT = 300.0
"""Seconds: longer than any test."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks whether a stream is given up says after how long."""
    for module in (incoming, sending, threads):
        monkeypatch.setattr(module, "LINGER", PATIENT)
