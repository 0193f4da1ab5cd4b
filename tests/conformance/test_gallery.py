"""A check of each server of the gallery finds what is wrong with it, and nothing else; of the honest one, nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pytest

from tests.conformance.gallery.exhibits import DUE, MORTAL, Exhibit
from tests.conformance.gallery.honest import Honest
from tests.conformance.gallery.standing import FAULTY, Mortal, serving
from tests.conformance.gallery.targets import notes, orders
from twicesafe.conformance.bench import Limits
from twicesafe.conformance.findings import Report, Verdict
from twicesafe.conformance.run import check
from twicesafe.conformance.trials import ALL, chosen

LIMITS: Final = Limits(seconds=120.0, trial=12.0)
AT_ONCE: Final = 16
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
        for name, port in ports.items():
            due = DUE.get(name, Exhibit({}))
            target = notes(port) if due.notes else orders(port, profile=due.profile)
            made[name] = pool.submit(check, target, limits=LIMITS, trials=chosen(skip=CRASHES))
        yield made


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
    """R43, K: of a server with one fault the trials fail that are about it, and no others."""
    report, due = reports[name].result(), DUE[name]
    found = _found(report)
    if due.notes:
        found = {trial: verdict for trial, verdict in found.items() if trial not in NO_NOTES}
    assert {trial: found.get(trial) for trial in due.named} == due.named, _said(report)
    assert found.items() <= {**due.besides, **due.named}.items(), _said(report)


@pytest.mark.parametrize("name", MORTAL)
def test_what_a_crash_leaves_is_found(reports: Mapping[str, Future[Report]], name: str) -> None:
    """R43, B5: of a server that is killed, what it forgot or can never let go of is found, and else nothing."""
    report = reports[f"killed {name}"].result()
    found, due = _found(report), MORTAL[name]
    assert due.named.items() <= found.items() <= {**due.besides, **due.named}.items(), _said(report)


def test_every_server_of_the_gallery_is_checked() -> None:
    """R43: no server stands in the gallery without what a check has to find there."""
    assert {*DUE, *MORTAL} - {Honest.__name__} == FAULTY.keys()
    assert {trial for due in (*DUE.values(), *MORTAL.values()) for trial in due.named} <= {one.name for one in ALL}
