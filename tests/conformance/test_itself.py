"""A check of twicesafe itself finds nothing: on its shells and its gateway, and on its stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.behaviour.serving import Server, probes
from tests.conformance.doors import Doors
from tests.conformance.gallery.protected import Clock, Protected
from tests.conformance.gallery.standing import Mortal, serving
from tests.conformance.gallery.targets import orders
from twicesafe.conformance.findings import Report, Verdict
from twicesafe.conformance.limits import Limits
from twicesafe.conformance.run import check
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.trials import ALL, chosen
from twicesafe.stores.contract import AsyncStore
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.psycopg import AsyncPsycopgStore
from twicesafe.stores.redis import AsyncRedisStore
from twicesafe.stores.sqlite import AsyncSqliteStore

pytestmark = pytest.mark.timeout(600)
"""Nobody waits for time to be up; a busy machine takes its time."""
LIMITS: Final = Limits(seconds=600.0, trial=120.0, answer=60.0, beside=5.0, parallel=4)
"""Nobody waits for time to be up."""
CRASHES: Final = {"restart-after-answer", "crash-while-running"}
STORES: Final = ("memory", "SQLite", "PostgreSQL", "Redis")
SHELLS: Final = ("fastapi", "django", "flask", "wsgi", "gateway")
UNTOLD: Final = CRASHES | {"after-expiry", "server-error", "throttled"}
"""What a probe application does not do as it is told: its clock stays, and a failure fails again."""
PROBE: Final = """
[request]
url = "ADDRESS/jobs"
headers = { Authorization = "Bearer shop:{{uuid}}", Probe = '{"tag": "{{unique}}"}' }
json = { order = "{{unique}}", amount = 5 }

[effects]
database = "sqlite:///FILE"
sql = "SELECT count(*) FROM ledger WHERE tag = '{{unique}}'"

[rejected]
headers = { Probe = '{"tag": "{{unique}}", "rows": 0, "status": 422}' }
json = { order = "{{unique}}", amount = 0 }

[slow]
headers = { Probe = '{"tag": "{{unique}}", "before": "{{unique}}"}' }
reached = { url = "DOORS/reached/{{unique}}", method = "GET" }
after = { url = "DOORS/open/{{unique}}", method = "GET" }

[other_caller]
headers = { Authorization = "Bearer stall:{{uuid}}" }

[unauthorized]
headers = { Authorization = "Basic shop" }
"""


@pytest.fixture(scope="module")
def reports(
    postgresql_server, redis_server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future]]:
    """The check of each, several at a time."""
    folder = tmp_path_factory.mktemp("itself")
    database = postgresql_server.create_database()
    stores: dict[str, Callable[[Clock], AsyncStore]] = {
        "memory": lambda clock: AsyncMemoryStore(clock=clock),
        "SQLite": lambda clock: AsyncSqliteStore(folder / "records.db", clock=clock),
        "PostgreSQL": lambda _: AsyncPsycopgStore(database),
        "Redis": lambda _: AsyncRedisStore(redis_server.url, prefix="conformance:"),
    }
    applications = {name: Protected(store) for name, store in stores.items()}
    doors = Doors()
    with serving(applications) as ports, ThreadPoolExecutor(5) as pool:
        made = {
            name: pool.submit(check, orders(port), limits=LIMITS, trials=chosen(skip=CRASHES))
            for name, port in ports.items()
        }
        made |= {name: pool.submit(_shell, name, folder / name, doors.port) for name in SHELLS}
        made["killed"] = pool.submit(_killed, folder)
        yield made
    doors.close()


PROBES = {probe.name: probe for probe in probes()}
"""Read once: Python 3.11 parses in one thread at a time only."""


def _shell(name: str, folder: Path, doors: int) -> Report:
    folder.mkdir()
    probe = PROBES[name]
    server = Server(probe, next(iter(probe.commands)), folder, doors)
    server.start()
    try:
        server.await_ready()
        text = PROBE.replace("ADDRESS", f"http://127.0.0.1:{server.port}").replace("FILE", str(server.file))
        text = text.replace("DOORS", f"http://127.0.0.1:{doors}")
        return check(from_toml(text), limits=LIMITS)
    finally:
        server.stop()


def _killed(folder: Path) -> Report:
    with Mortal("twicesafe", folder) as server:
        return check(orders(server.port, control=server.control), limits=LIMITS, trials=chosen(only=CRASHES))


def _found(report: Report) -> dict[str, str]:
    return {one.trial: f"{one.verdict}: {one.meaning}" for one in report.findings if one.verdict is not Verdict.PASS}


@pytest.mark.parametrize("name", STORES)
def test_nothing_is_found_on_a_store(reports: Mapping[str, Future[Report]], name: str) -> None:
    """R43: an ASGI application with this store passes every trial of a check."""
    report = reports[name].result()
    assert _found(report) == {}
    assert len(report.findings) == len(ALL) - len(CRASHES)


@pytest.mark.parametrize("name", SHELLS)
def test_nothing_is_found_at_a_shell(reports: Mapping[str, Future[Report]], name: str) -> None:
    """R43: an application under its real server passes every trial of a check that it is told enough for."""
    report = reports[name].result()
    assert {trial: said for trial, said in _found(report).items() if trial not in UNTOLD} == {}
    assert len(report.findings) == len(ALL)


def test_nothing_is_found_after_a_crash(reports: Mapping[str, Future[Report]]) -> None:
    """R43, I6: killed and started again, it has the answers it gave, and does not do twice what it was doing."""
    assert _found(reports["killed"].result()) == {}
