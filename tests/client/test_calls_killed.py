"""A process is killed while the provider has charged and not answered: another goes on, under the same key."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.client.caller import bound, operation, provider_of
from tests.client.calling import Vendor
from tests.client.scripted import Exchange, serving
from twicesafe.once import Once
from twicesafe.stores.sqlite import SqliteStore
from twicesafe.stores.sqlite_connection import host_clock

MINUTE = 60_000_000


def test_a_killed_process_is_gone_on_from(tmp_path: Path) -> None:
    """R25, R33, A7, K: SIGKILL between charge and answer; a worker sends the same bytes under the same key, once."""
    profile = "square"
    vendor, charged, killed = Vendor(profile, remembers=None), threading.Event(), threading.Event()

    def charge_and_wait(exchange: Exchange) -> None:
        hit = exchange.read()
        vendor.charges[vendor.key_of(hit)] = hit.body
        charged.set()
        assert killed.wait(60)

    file = tmp_path / "shop.db"
    SqliteStore(file).apply_schema()
    with serving(charge_and_wait, vendor.charge) as server:
        process = subprocess.Popen([sys.executable, "-m", "tests.client.caller", str(file), server.origin, profile])
        try:
            assert charged.wait(60)
        finally:
            process.kill()
            assert process.wait(60) == -signal.SIGKILL
            killed.set()
        store = SqliteStore(file, clock=lambda: host_clock() + MINUTE)
        once = Once(store, scope="shop", observer=lambda event: None)
        provider = provider_of(profile)
        with bound(server.origin, provider) as client:
            buy = operation(once, client, provider)
            assert once.resume().done == 1
            assert buy("order-1") == "ch_1"
        store.close()
    assert len(vendor.charges) == 1
    first, second = server.hits
    assert (first.body, vendor.key_of(first)) == (second.body, vendor.key_of(second))
