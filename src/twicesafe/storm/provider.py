"""The provider's process in a storm."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from twicesafe.demo.provider.ledger import ProviderLedger
from twicesafe.demo.provider.serving import ProviderServer
from twicesafe.storm.started import say_ready


def work(told: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    ledger = ProviderLedger(Path(told["file"]), timedelta(seconds=told["window"]))
    server = ProviderServer(ledger, told["port"])
    say_ready(server.port)
    server.serve_forever()
