"""What twicesafe is to reach, and whether it did: each target is a comparison of two rows of one case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.measure import Row

OURS = "twicesafe"
NOT_PEERS = ("floor", "bare", "pooled", "effect alone", "by hand")


Bound = Literal["at most", "at least", "below"]


@dataclass(frozen=True)
class Target:
    """`subject`'s figure in `case` is to be at most, or at least, so many times that of `beside`.

    `beside` is a subject, "floor", or "the best peer"; "" makes the bound one of the figure itself, in the row's unit.
    """

    benchmark: str
    case: str
    beside: str
    bound: Bound
    times: float
    subject: str = OURS


@dataclass(frozen=True)
class Verdict:
    """What came of a target; `found` is in the target's measure, and `beside` names the best peer."""

    target: Target
    found: float
    unit: str
    beside: str

    @property
    def reached(self) -> bool:
        """Whether the bound holds."""
        bound = self.target.bound
        if bound == "below":
            return self.found < self.target.times
        return self.found <= self.target.times if bound == "at most" else self.found >= self.target.times


BEST = "the best peer"


def _each(
    benchmark: str, cases: Sequence[str], beside: str, bound: Bound, times: float, subject: str = OURS
) -> list[Target]:
    return [Target(benchmark, case, beside, bound, times, subject) for case in cases]


TARGETS: tuple[Target, ...] = (
    *_each(
        "asgi",
        ["first request, 1 KB", "first request, 100 KB", "replay, 1 KB", "replay, 100 KB"],
        BEST,
        "below",
        1.0,
    ),
    *_each("asgi", ["first request, 1 KB: added", "first request, 100 KB: added"], "floor", "at most", 1.5),
    Target("asgi", "p99, many keys remembered", "", "at most", 1000),
    Target("asgi", "longest collection, many keys remembered", "floor", "at most", 0.1),
    *_each("wsgi", ["first request, 1 KB", "replay, 1 KB"], BEST, "below", 1.0),
    *_each(
        "wsgi",
        [
            f"{where}, {case}"
            for where in ("Django", "REST framework, database")
            for case in ("first request", "replay")
        ],
        BEST,
        "below",
        1.0,
        "twicesafe.django",
    ),
    Target("fastapi", "added to a first request of FastAPI", "floor", "at most", 1.2, "twicesafe.fastapi"),
    *_each("http", [f"{name}, requests" for name in ("uvicorn", "granian")], "bare", "at least", 0.85),
    *_each(
        "postgresql",
        [
            "asyncpg, transactional, one-row effect, 32 tasks",
            "asyncpg, transactional, four-statement effect, 32 tasks",
            "psycopg, transactional, 32 tasks",
            "SQLAlchemy on asyncpg, transactional, 32 tasks",
            "psycopg, transactional, 8 threads",
            "SQLAlchemy, transactional, 8 threads",
            "Django, transactional, 8 threads",
        ],
        "floor",
        "at least",
        0.85,
    ),
    *_each(
        "postgresql",
        ["asyncpg, leased, 32 tasks", "psycopg, leased, 32 tasks", "psycopg, leased, 8 threads"],
        "floor",
        "at least",
        0.9,
    ),
    *_each(
        "postgresql",
        ["asyncpg, replay, keyed, 32 tasks", "asyncpg, replay, transactional, 32 tasks"],
        "floor",
        "at least",
        0.9,
    ),
    Target("sqlite", "leased, 32 tasks", "connection per thread", "at least", 3.0),
    Target("sqlite", "leased, 32 tasks", "aiosqlite", "at least", 3.0),
    Target("redis", "requests, 32 tasks", BEST, "at least", 3.0),
    Target("redis", "plain function, one at a time", BEST, "at least", 1.0),
    Target("redis", "claim and answer, 32 tasks", "pooled", "at least", 3.0),
    *_each("client", ["GET", "POST with a key"], "floor", "at most", 1.05, "RetryTransport"),
    *_each("client", ["GET, asyncio", "POST with a key, asyncio"], "floor", "at most", 1.05, "AsyncRetryTransport"),
    *_each("client", ["GET", "POST with a key"], "httpx-retries", "below", 1.0, "RetryTransport"),
    *_each(
        "client", ["GET, asyncio", "POST with a key, asyncio"], "httpx-retries", "below", 1.0, "AsyncRetryTransport"
    ),
    Target("outbox", "relay, in-process publisher", "faststream-outbox", "at least", 2.0),
    *_each(
        "outbox",
        [f"transaction with a message, {driver}" for driver in ("asyncpg", "psycopg async", "psycopg")],
        "floor",
        "at most",
        1.1,
    ),
    Target("phases", "three phases", "floor", "at most", 1.3),
)


def verdicts(benchmarks: Mapping[str, Sequence[Row]]) -> list[Verdict]:
    """Of every target whose rows are there."""
    return [verdict for target in TARGETS for verdict in _verdict(target, benchmarks.get(target.benchmark, ()))]


def _verdict(target: Target, rows: Sequence[Row]) -> list[Verdict]:
    case = {row["subject"]: row for row in rows if row["case"] == target.case}
    mine = case.get(target.subject)
    if mine is None:
        return []
    if not target.beside:
        return [Verdict(target, mine["median"], mine["unit"], "")]
    beside = case.get(target.beside) if target.beside != BEST else _best(list(case.values()), target)
    if beside is None:
        return []
    if beside["ratio_to_floor"] and mine["ratio_to_floor"]:
        # Both are ratios of one round's figures, which a drifting machine changes less than it does the figures.
        found = mine["ratio_to_floor"] / beside["ratio_to_floor"]
    else:
        found = mine["median"] / beside["median"]
    return [Verdict(target, round(found, 3), "x", beside["subject"])]


def _best(rows: Sequence[Row], target: Target) -> Row | None:
    peers = [row for row in rows if not row["subject"].startswith((OURS, *NOT_PEERS))]
    if not peers:
        return None
    choose = max if target.bound == "at least" else min
    return choose(peers, key=lambda row: row["median"])
