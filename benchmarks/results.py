"""What a run of all benchmarks found: a file in benchmarks/results, named after its day."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

from benchmarks.measure import Row

FOLDER = Path(__file__).with_name("results")

PEERS = (
    "asgi-idempotency-header", "fastapi-idempotency", "fastapi-idempotency-key", "idemkit",
    "django-idempotency-key", "djangorestframework-idempotency-key", "drf-idem", "drf-idempotency",
    "drf-idempotencykey", "httpx-retries", "httpware", "stamina", "tenacity", "dbos", "procrastinate",
    "faststream-outbox", "aws-lambda-powertools",
)  # fmt: skip
BENEATH = (
    "starlette", "fastapi", "flask", "django",
    "djangorestframework", "uvicorn", "granian", "uvloop", "httptools", "asyncpg", "psycopg",
    "sqlalchemy", "asyncmy", "pymysql", "aiosqlite", "redis", "hiredis", "httpx2",
)  # fmt: skip
"""What twicesafe and its peers stand on."""


class Results(TypedDict):
    """`seconds` is how long each benchmark took, `failed` what became of those that have no rows, `apart` what is to be
    known of those that were measured again after the others."""

    day: str
    quick: bool
    machine: dict[str, str]
    versions: dict[str, str]
    seconds: dict[str, float]
    failed: dict[str, str]
    apart: dict[str, str]
    benchmarks: dict[str, list[Row]]


def path_of(day: str) -> Path:
    """Where a day's results are."""
    return FOLDER / f"{day}.json"


def newest() -> Results:
    """The last that were written."""
    return read(max(FOLDER.glob("*.json")))


def read(path: Path) -> Results:
    """From a file."""
    found: Results = json.loads(path.read_text(encoding="utf-8"))
    return found


def merged(into: Results, name: str, rows: list[Row], seconds: float, said: str) -> None:
    """Put what a benchmark by itself found in the place of its rows; `said` is the day, and how it was asked for."""
    now = versions()
    other = sorted(key for key in now.keys() & into["versions"].keys() if now[key] != into["versions"][key])
    changed = f", with {', '.join(f'{key} {now[key]}' for key in other)}" if other else ""
    if machine() != into["machine"]:
        raise ValueError(f"results of {into['day']} are of another machine: {into['machine']}")
    into["versions"] = {**now, **into["versions"]}
    into["benchmarks"][name] = rows
    into["seconds"][name] = round(seconds, 1)
    into["failed"].pop(name, None)
    into["apart"][name] = f"{said}{changed}"


def text(results: Results) -> str:
    """A line for each row, so that two days can be compared by eye."""
    parts = [
        f'    "{name}": [\n' + ",\n".join(f"      {json.dumps(row)}" for row in rows) + "\n    ]"
        for name, rows in results["benchmarks"].items()
    ]
    others = json.dumps({name: value for name, value in results.items() if name != "benchmarks"}, indent=2)
    return others.removesuffix("\n}") + ',\n  "benchmarks": {\n' + ",\n".join(parts) + "\n  }\n}\n"


def write(results: Results) -> Path:
    """To the day's file."""
    FOLDER.mkdir(exist_ok=True)
    path = path_of(results["day"])
    path.write_text(text(results), encoding="utf-8")
    return path


# --- where it ran -----------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What is known of it without asking anybody."""
    found = {"system": f"{platform.system()} {platform.machine()}", "cores": str(os.cpu_count())}
    try:
        name = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return found
    if name is not None:
        found["processor"] = name[1].strip()
    if memory is not None:
        found["memory"] = f"{int(memory[1]) / 2**20:.0f} GB"
    return found


def versions() -> dict[str, str]:
    """Of the interpreter, the servers, the peers, and what all stand on. What is not installed is left out."""
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    from twicesafe.storm import mariadb, postgresql

    for name, command in (
        ("PostgreSQL", lambda: [postgresql._programs() / "postgres", "--version"]),
        ("MariaDB", lambda: [mariadb._program("mariadbd"), "--version"]),
        ("Redis", lambda: [shutil.which("redis-server") or "valkey-server", "--version"]),
        ("wrk", lambda: ["wrk", "-v"]),
    ):
        try:
            said = subprocess.run(command(), capture_output=True, text=True, check=False, timeout=20).stdout
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        number = re.search(r"\d+\.\d+(\.\d+)?", said)
        found[name] = number[0] if number is not None else "?"
    for name in ("twicesafe", *BENEATH, *PEERS):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
