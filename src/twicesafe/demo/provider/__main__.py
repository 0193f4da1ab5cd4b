"""`python -m twicesafe.demo.provider`. See --help."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from pathlib import Path

from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.demo.provider.ledger import WINDOW, ProviderLedger
from twicesafe.demo.provider.serving import SLOW, ProviderServer


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    options = argparse.ArgumentParser(
        prog="python -m twicesafe.demo.provider",
        description="A payment provider to test against: it has a ledger of its own, and breaks on demand.",
        epilog="example: python -m twicesafe.demo.provider --window 2, then\n"
        """curl -d '{"fault": "error_after"}' http://127.0.0.1:8001/faults\n"""
        """curl -d '{"reference": "order-1", "amount": 4200}' -H 'Idempotency-Key: k' http://127.0.0.1:8001/charges\n"""
        f"curl 'http://127.0.0.1:8001/charges?key=k'\n\nfaults: {', '.join(ProviderFault)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--port", type=int, default=8001, help="of 127.0.0.1; 0 for a free one (default: 8001)")
    options.add_argument(
        "--ledger", type=Path, default=Path("provider.db"), metavar="FILE", help="a SQLite file (default: provider.db)"
    )
    options.add_argument(
        "--window",
        type=float,
        default=WINDOW.total_seconds(),
        metavar="SECONDS",
        help="for how long a key is recognised (default: 86400)",
    )
    options.add_argument(
        "--slow",
        type=float,
        default=SLOW.total_seconds(),
        metavar="SECONDS",
        help="how long a slow charge takes (default: 3)",
    )
    given = options.parse_args()
    ledger = ProviderLedger(given.ledger, timedelta(seconds=given.window))
    try:
        server = ProviderServer(ledger, given.port, timedelta(seconds=given.slow))
    except OSError as error:
        options.exit(2, f"port {given.port} of 127.0.0.1: {error.strerror}\n")
    sys.stdout.write(f"The provider is at http://127.0.0.1:{server.port}, its ledger is {given.ledger}.\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
