"""A check of each server of the gallery finds what is wrong with it, and nothing else; of the honest one, nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest

from tests.conformance.gallery.exhibits import DUE, KIN, MORTAL
from tests.conformance.gallery.honest import Honest
from tests.conformance.gallery.standing import FAULTY, Mortal, serving
from tests.conformance.gallery.targets import notes, orders
from twicesafe.conformance.findings import Report, Verdict
from twicesafe.conformance.limits import Limits
from twicesafe.conformance.run import check
from twicesafe.conformance.trials import ALL, chosen

pytestmark = pytest.mark.timeout(600)
"""Nobody waits for time to be up; a busy machine takes its time."""
LIMITS: Final = Limits(seconds=600.0, trial=120.0, answer=60.0, beside=5.0, held=10.0, parallel=4)
"""No verdict waits for time to be up, but for that on a server that never lets go, which is asked for five leases."""
AT_ONCE: Final = 12
KEEP_WAITING: Final = ("LateOwner", "WaitsUncompared", "RunsAnother")
"""Those at which duplicates wait for what is at work, which takes `beside` seconds to see. They begin first."""
CRASHES: Final = ("restart-after-answer", "crash-while-running")
NO_NOTES: Final = {
    "json-member-order", "json-number-form", "json-big-integers", "json-null", "other-caller", "other-caller-leak",
    "rejected-then-corrected", "server-error", "throttled", "changed-while-running", "hang-up-while-running",
    "duplicates-while-running", "retry-after", "after-expiry",
}  # fmt: skip
"""Trials that nothing can be told by where bytes are taken as they are, and little is said of the server."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Report]]]:
    """The check of each, several at a time."""
    folder = tmp_path_factory.mktemp("gallery")
    alive = {Honest.__name__: Honest(), **{name: FAULTY[name]() for name in DUE}}
    with serving(alive) as ports, ThreadPoolExecutor(AT_ONCE) as pool:
        made = {f"killed {name}": pool.submit(_killed, name, folder) for name in MORTAL}
        made[Honest.__name__] = pool.submit(
            check, orders(ports[Honest.__name__]), limits=replace(LIMITS, parallel=8), trials=chosen(skip=CRASHES)
        )
        for name, due in sorted(DUE.items(), key=lambda one: one[0] not in KEEP_WAITING):
            target = notes(ports[name]) if due.notes else orders(ports[name], profile=due.profile)
            made[name] = pool.submit(check, target, limits=LIMITS, trials=chosen(only=_related(name)))
        yield made


def _related(name: str) -> set[str]:
    """The trials that have to do with what is wrong with it."""
    kind = FAULTY[name].__module__.rpartition("faults_of_")[2]
    return {*KIN[kind], *DUE[name].named, *DUE[name].besides}


def _killed(name: str, folder: object) -> Report:
    with Mortal(name, folder) as server:  # type: ignore[arg-type]
        return check(orders(server.port, control=server.control), limits=LIMITS, trials=chosen(only=CRASHES))


def _found(report: Report) -> dict[str, Verdict]:
    return {finding.trial: finding.verdict for finding in report.findings if finding.verdict is not Verdict.PASS}


def _said(report: Report) -> str:
    return "\n".join(
        f"{one.trial}: {one.verdict}: {one.meaning}" for one in report.findings if one.verdict is not Verdict.PASS
    )


def test_nothing_is_found_at_the_honest_server(reports: Mapping[str, Future[Report]]) -> None:
    """R43: of a server without a fault every trial passes."""
    report = reports[Honest.__name__].result()
    assert _found(report) == {}, _said(report)
    assert len(report.findings) == len(ALL) - len(CRASHES)


@pytest.mark.parametrize("name", DUE)
def test_a_fault_is_named(reports: Mapping[str, Future[Report]], name: str) -> None:
    """R43, K: of a server with one fault the trials fail that are about it, and no others of its kind."""
    report, due = reports[name].result(), DUE[name]
    found = _found(report)
    if due.notes:
        found = {trial: verdict for trial, verdict in found.items() if trial not in NO_NOTES}
    assert found == {**due.besides, **due.named}, _said(report)


@pytest.mark.parametrize("name", MORTAL)
def test_what_a_crash_leaves_is_found(reports: Mapping[str, Future[Report]], name: str) -> None:
    """R43, B5: of a server that is killed, what it forgot or can never let go of is found, and else nothing."""
    report = reports[f"killed {name}"].result()
    assert _found(report) == {**MORTAL[name].besides, **MORTAL[name].named}, _said(report)


def test_every_server_of_the_gallery_is_checked() -> None:
    """R43: no server stands in the gallery without what a check has to find there."""
    assert {*DUE, *MORTAL} - {Honest.__name__} == FAULTY.keys()
    assert {trial for due in (*DUE.values(), *MORTAL.values()) for trial in due.named} <= {one.name for one in ALL}


def test_every_trial_is_made_of_a_server_with_a_fault() -> None:
    """R43: no trial that can fail is left out for all the servers of the gallery."""
    assert {one.name for one in ALL} == {trial for name in DUE for trial in _related(name)} | {*CRASHES}
