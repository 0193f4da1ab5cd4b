"""The provider within a test."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from twicesafe.demo.provider.fake import FakeProvider
from twicesafe.errors import ConfigurationError
from twicesafe.testing import ManualClock, OneEffect

ORDER = {"reference": "order-1", "amount": 4200}


def post(provider: FakeProvider, key: str) -> httpx2.Response:
    """A charge."""
    with httpx2.Client(base_url=provider.url, verify=False) as client:
        return client.post("/charges", json=ORDER, headers={"Idempotency-Key": key})


def test_it_charges_once_for_as_long_as_it_remembers(tmp_path: Path) -> None:
    """R42, B5: an answer that is lost after the charge is there for the retry; past its window it charges anew."""
    clock = ManualClock()
    with FakeProvider(tmp_path, clock=clock) as provider:
        with OneEffect(provider.count):
            provider.arm("drop_after")
            with pytest.raises(httpx2.RemoteProtocolError):
                post(provider, "k-1")
            assert post(provider, "k-1").headers["idempotent-replayed"] == "true"
        clock.advance(timedelta(hours=24))
        with OneEffect(provider.count):
            assert post(provider, "k-1").status_code == 201
    assert not (tmp_path / "provider.db-wal").exists()


def test_a_fault_for_one_order(tmp_path: Path) -> None:
    """R42: a fault strikes the order it is meant for, and without a clock of the test's the system's counts."""
    with FakeProvider(tmp_path) as provider:
        provider.arm("error_before", "order-2")
        assert post(provider, "k-1").status_code == 201
        provider.arm("error_before", "order-1")
        assert post(provider, "k-2").status_code == 500
        assert [charge.reference for charge in provider.charges()] == ["order-1"]


def test_it_does_not_kill_the_test(tmp_path: Path) -> None:
    """R42: a fault that ends the provider's process is refused, because that is the test's."""
    with FakeProvider(tmp_path) as provider, pytest.raises(ConfigurationError, match="would kill the test"):
        provider.arm("kill_after")
