"""`python -m benchmarks [NAME ...] [--json]`"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys

from benchmarks.measure import Row, table

NAMES = (
    "asgi",
    "fastapi",
    "postgresql",
    "drivers",
    "blocking",
    "redis",
    "phases",
    "recovery",
    "retention",
    "outbox",
    "client",
)


def main() -> None:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measured beside floor and peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; all when none is named")
    parser.add_argument("--json", action="store_true", help="print a list of rows as JSON")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    found: list[Row] = []
    for name in chosen.names or NAMES:
        print(f"{name} ...", file=sys.stderr)
        found += importlib.import_module(f"benchmarks.{name}").run()
    if chosen.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"Python {platform.python_version()}, {platform.machine()}\n")
        print(table(found))


if __name__ == "__main__":
    main()
