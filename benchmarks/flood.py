"""What 10,000 callers who flood a service with new keys cost it, and those who were there before.

Regular callers send new keys at a steady pace, each request on its own time, before, during and after floods. The
floods' callers send new keys as well, at rates that the service can refuse. It is done without limits and with them,
for each store, over HTTP: one server process of uvicorn, and a process each that sends the regular callers' requests
and the flood's (flood_load), so that neither load takes of the server's time but what two cores have them share.

    python -m benchmarks.flood [STORE ...] [--rates 200 400 600] [--seconds 20] [--json]

Told for each rate are the median of the regular callers' times and their 99th percentile; who was refused; the records
that the flood has left beside the bound that the limits set; how busy the server was; and how late the loads themselves
were, which is no part of those times. Where `load_was_late` is true, the load has waited for a processor so long that
it will have read answers late as well: the times say more of it than of the server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from benchmarks.flood_limits import LIMITS, WITHIN
from benchmarks.http import ROOT, served
from twicesafe.storm.postgresql import PrivatePostgreSQL

CALLERS: Final = 10_000
REGULAR: Final = 20
PACE: Final = 2
"""Requests a second of each regular caller."""
WINDOW: Final = 10
"""Seconds over which a percentile is taken."""
QUIET: Final = 10
"""Seconds before a flood, and after it: as long as limits remember."""
STORES: Final = ("memory", "sqlite", "postgresql")
LATE: Final = 0.5
"""Of a percentile of the regular callers' times: a load that is later by itself has made much of it."""


class Result(NamedTuple):
    """One flood."""

    store: str
    limited: bool
    rate: float
    """New keys of the flood in a second, as asked for."""
    rate_sent: float
    flood: int
    """Requests of the flood."""
    flood_refused: int
    regular_refused: int
    p50_quiet_ms: float
    p50_flood_ms: float
    p99_quiet_ms: float
    p99_flood_ms: float
    late_p99_quiet_ms: float
    """By how much the regular callers' load was late by itself."""
    late_p99_flood_ms: float
    flood_late_p99_ms: float
    """The same of the flood's."""
    server_busy: float
    """The share of one processor that the server took during the flood."""
    loads_busy: float
    """The share that the loads took."""
    records: int
    """That the flood has left."""
    records_at_most: int
    """By the limits, for so long; 0 without."""
    grown_mb: float
    callers_remembered: int

    @property
    def p99_ratio(self) -> float:
        """How much worse regular callers fare at the 99th percentile."""
        return self.p99_flood_ms / self.p99_quiet_ms

    @property
    def load_was_late(self) -> bool:
        """Whether a load, and not the server, is what the times during the flood tell of."""
        return self.late_p99_flood_ms > LATE * self.p99_flood_ms or self.rate_sent < 0.98 * self.rate


class Load:
    """A process that sends, and what it has to say at its end."""

    def __init__(self, url: str, name: str, count: int, rate: float, seconds: float) -> None:
        port = url.rpartition(":")[2].partition("/")[0]
        command = [sys.executable, "-m", "benchmarks.flood_load", port, name, str(count), str(rate), str(seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        self._longest = seconds + 60

    def ended(self) -> dict[str, Any]:
        """Wait for its end."""
        try:
            said, _ = self._process.communicate(timeout=self._longest)
        finally:
            self._process.kill()
        assert not self._process.returncode, "the load failed"
        found: dict[str, Any] = json.loads(said)
        return found


def percentile(took: list[float], which: int) -> float:
    """In milliseconds: the median of windows, for what else runs on the machine comes and goes."""
    size = REGULAR * PACE * WINDOW
    windows = [took[start : start + size] for start in range(0, len(took), size)]
    whole = [window for window in windows if len(window) > size // 2] or [took]
    return statistics.median(statistics.quantiles(window, n=100)[which - 1] for window in whole) * 1000


def state(url: str) -> dict[str, Any]:
    """How the server's process is."""
    with urllib.request.urlopen(url, timeout=60) as answered:
        found: dict[str, Any] = json.load(answered)
    return found


def regular(url: str, seconds: float) -> Load:
    """The regular callers, for so long."""
    return Load(url, "regular", REGULAR, REGULAR * PACE, seconds)


def trial(store: str, url: str, rate: float, seconds: float, before: dict[str, Any], *, limited: bool) -> Result:
    """A flood, and the quiet after it; `before` is what the regular callers had before it."""
    began = state(url)
    loads = [regular(url, seconds), Load(url, f"crowd of {rate:g}", CALLERS, rate, seconds)]
    regulars, flood = (load.ended() for load in loads)
    ended = state(url)
    after = regular(url, QUIET).ended()
    quiet, late = before["took"] + after["took"], before["late"] + after["late"]
    newcomers = (LIMITS.new_keys_in_all or 0) // 2
    counted = {int(status): number for status, number in flood["statuses"].items()}
    result = Result(
        store=store, limited=limited, rate=rate, rate_sent=round(flood["rate"], 1), flood=sum(counted.values()),
        flood_refused=counted.get(429, 0),
        regular_refused=sum(one["statuses"].get("429", 0) for one in (regulars, after)),
        p50_quiet_ms=percentile(quiet, 50), p50_flood_ms=percentile(regulars["took"], 50),
        p99_quiet_ms=percentile(quiet, 99), p99_flood_ms=percentile(regulars["took"], 99),
        late_p99_quiet_ms=percentile(late, 99), late_p99_flood_ms=percentile(regulars["late"], 99),
        flood_late_p99_ms=statistics.quantiles(flood["late"], n=100)[98] * 1000,
        server_busy=round((ended["seconds"] - began["seconds"]) / seconds, 3),
        loads_busy=round(regulars["busy"] + flood["busy"], 3),
        records=ended["records"] - began["records"] - regulars["statuses"].get("201", 0),
        records_at_most=int(newcomers * (seconds / WITHIN + 1)) if limited else 0,
        grown_mb=ended["resident_mb"] - began["resident_mb"], callers_remembered=ended["callers_remembered"],
    )  # fmt: skip
    before |= after
    return result


@contextmanager
def opened(store: str, *, limited: bool) -> Iterator[str]:
    """A server on an empty store of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        where = {"BENCH_STORE": store, "BENCH_LIMITED": "1" if limited else "", "BENCH_URL": f"{folder}/records.db"}
        if store != "postgresql":
            with served("uvicorn", "benchmarks.flood_app:app", **where) as url:
                yield url
            return
        with PrivatePostgreSQL() as server:
            where["BENCH_URL"] = server.url
            with served("uvicorn", "benchmarks.flood_app:app", **where) as url:
                yield url


def run(stores: list[str], rates: list[float], seconds: float) -> list[Result]:
    """Each store without limits and with them."""
    found = []
    for store in stores:
        for limited in (False, True):
            with opened(store, limited=limited) as url:
                # Only then the regular callers are regular ones.
                regular(url, WITHIN + 2).ended()
                quiet = regular(url, QUIET).ended()
                for rate in rates:
                    found.append(trial(store, url, rate, seconds, quiet, limited=limited))
                    print(shown(found[-1]), file=sys.stderr)
    return found


def shown(result: Result) -> str:
    """In a line."""
    bound = f" (at most {result.records_at_most:,})" if result.limited else ""
    late = "; THE LOAD WAS LATE" if result.load_was_late else ""
    return (
        f"{result.store}, {'limited' if result.limited else 'without limits'}, {result.rate:,.0f}/s: "
        f"{result.flood:,} of the flood, {result.flood_refused:,} refused, {result.regular_refused} of the regular "
        f"callers'; regular p99 {result.p99_quiet_ms:.1f} -> {result.p99_flood_ms:.1f} ms ({result.p99_ratio:.2f}), "
        f"p50 {result.p50_quiet_ms:.1f} -> {result.p50_flood_ms:.1f} ms; server busy {result.server_busy:.0%}, loads "
        f"{result.loads_busy:.0%}, late p99 {result.late_p99_flood_ms:.1f} ms{late}; {result.records:,} records "
        f"left{bound}; {result.grown_mb:+.1f} MB; {result.callers_remembered:,} callers remembered"
    )


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description="10,000 callers with new keys.")
    parser.add_argument("stores", nargs="*", metavar="STORE", default=list(STORES))
    parser.add_argument("--rates", type=float, nargs="+", default=[200.0, 400.0, 600.0], help="floods, keys a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each lasts")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if unknown := set(chosen.stores) - set(STORES):
        parser.error(f"no store is called {', '.join(sorted(unknown))}: choose from {', '.join(STORES)}")
    found = run(chosen.stores, chosen.rates, chosen.seconds)
    if chosen.json:
        told = [
            {**one._asdict(), "p99_ratio": round(one.p99_ratio, 3), "load_was_late": one.load_was_late} for one in found
        ]
        print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
