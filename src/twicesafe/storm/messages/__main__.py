"""`python -m twicesafe.storm.messages`. See --help."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import signal
import sys
from contextlib import suppress

from twicesafe.errors import TwicesafeError
from twicesafe.storm.messages.run import Report, Settings, run
from twicesafe.storm.messages.ways import WAYS


def main() -> None:
    """Exit status 0 only where all holds."""
    options = argparse.ArgumentParser(
        prog="python -m twicesafe.storm.messages",
        description="Commit messages, kill relays and the consumer, restart the broker, and count what arrived.",
        epilog="Prints one JSON object. Exit status: 0, every message of a committed transaction was delivered, in the "
        "order of commits within its aggregate, and had exactly one effect; 1, it was not so; 2, it could not be run.",
    )
    options.add_argument("--store", choices=("sqlite", "postgresql", "mysql"), default="sqlite", help="a temporary one")
    options.add_argument("--to", choices=WAYS, default="webhooks", help="a private server for the two brokers")
    options.add_argument("--messages", type=int, default=2000)
    options.add_argument("--seed", type=int, help="repeat transactions and victims (default: random)")
    options.add_argument("--writers", type=int, default=8, help="concurrent transactions, of 0 to 20 ms (default: 8)")
    options.add_argument("--relays", type=int, default=4, help="processes (default: 4)")
    options.add_argument(
        "--kill-every", type=float, default=1.0, metavar="SECONDS", help="between SIGKILLs of relays (default: 1)"
    )
    options.add_argument("--kills", type=int, metavar="MOST", help="relays to kill (default: until all has arrived)")
    options.add_argument("--restarts", type=int, default=2, help="of the broker, or the webhooks' server (default: 2)")
    given = options.parse_args()
    for name in ("messages", "writers", "relays", "kill_every"):
        if getattr(given, name) <= 0:
            options.error(f"--{name.replace('_', '-')} must be above 0")
    if given.restarts < 0 or given.messages <= given.restarts:
        options.error("--restarts must be 0 or more, and fewer than there are messages")
    if given.seed is None:
        given.seed = secrets.randbelow(1_000_000)
    sys.stderr.write(f"Seed {given.seed}: {given.messages} messages, {given.store} to {given.to}.\n")
    received: list[signal.Signals] = []
    try:
        report = asyncio.run(_until_interrupted(Settings(**vars(given)), received))
    except TwicesafeError as error:
        options.exit(2, f"{options.prog}: {error}\n")
    if report is None:
        sys.exit(128 + received[0])
    sys.stdout.write(json.dumps(report.as_dict()) + "\n")
    sys.exit(0 if report.clean else 1)


async def _until_interrupted(settings: Settings, received: list[signal.Signals]) -> Report | None:
    """SIGINT and SIGTERM end it in good order; only the first one does."""
    running = asyncio.create_task(run(settings))

    def stop(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    with suppress(asyncio.CancelledError):
        return await running
    return None


if __name__ == "__main__":
    main()
