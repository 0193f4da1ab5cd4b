"""Every case on every shell and on the gateway, each under its real server: one suite, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from shutil import disk_usage, rmtree
from tempfile import TemporaryDirectory

import pytest

from tests.behaviour.behaviour_table import PROPERTY
from tests.behaviour.case import Case, cases
from tests.behaviour.client import Client, Ledger
from tests.behaviour.gates import Gates
from tests.behaviour.serving import Probe, Server, probes


@dataclass(frozen=True, eq=False)
class Subject:
    """A probe application and the server it runs under; on the `first` one run all cases."""

    probe: Probe
    server: str
    first: bool

    def __str__(self) -> str:
        return f"{self.probe.name}-{self.server}"


SUBJECTS = [
    Subject(probe, server, first=not number) for probe in probes() for number, server in enumerate(probe.commands)
]
OF_SERVERS = {subject.server: subject for subject in reversed(SUBJECTS)}
"""The first subject that runs under each kind of server."""
TRIALS = [
    (subject, case)
    for subject in SUBJECTS
    for case in cases()
    if (subject.first or case.everywhere or (case.of_servers and OF_SERVERS[subject.server] is subject))
    and not case.missing(subject.probe.not_offered)
]


ROOM = 1024 * 1024 * 1024
"""Bytes that two servers' files do not fill. Containers often have less of memory to write files to."""


class Fleet:
    """The servers that are up: that of the subject whose turn it is, and the one after it, which starts meanwhile."""

    def __init__(self, subjects: list[Subject], folder: Path) -> None:
        self.gates = Gates()
        self._after = dict(pairwise(subjects))
        self._folder = folder
        self._turn: Subject | None = None
        self._up: dict[Subject, Server] = {}

    def serving(self, subject: Subject) -> Server:
        """The subject's server."""
        if subject is not self._turn:
            self._turn = subject
            wanted = [each for each in (subject, self._after.get(subject)) if each is not None]
            for over in self._up.keys() - wanted:
                self._up.pop(over).stop()
                rmtree(self._folder / str(over))
            for each in wanted:
                if each not in self._up:
                    self._up[each] = self._started(each)
            self._up[subject].await_ready()
        return self._up[subject]

    def _started(self, subject: Subject) -> Server:
        folder = self._folder / str(subject)
        folder.mkdir()
        server = Server(subject.probe, subject.server, folder, self.gates.port)
        server.start()
        return server

    def close(self) -> None:
        for server in self._up.values():
            server.stop()
        self.gates.close()


@pytest.fixture(scope="module")
def fleet(request) -> Iterator[Fleet]:
    """For those subjects that have cases in this run. Their files outlive processes, and need outlive nothing else."""
    wanted = dict.fromkeys(
        item.callspec.params["subject"] for item in request.session.items if item.path == request.path
    )
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and disk_usage(memory).free > ROOM
    with TemporaryDirectory(dir=memory if roomy else None) as folder:
        made = Fleet(list(wanted), Path(folder))
        yield made
        made.close()


@pytest.mark.parametrize(("subject", "case"), TRIALS, ids=[f"{subject}-{case.name}" for subject, case in TRIALS])
def test_behaviour(request, subject: Subject, case: Case, fleet: Fleet) -> None:
    """R2 to R23, A1, A3, A4, A7, B5, B7, C1, C8, D1 to D6, E1 to E4, F1 to F8, G1, G2, G5, G6, G8, H1, H2, K: the case
    holds, seen from outside: by what the server answers and by what is in the ledger."""
    request.node.user_properties.append((PROPERTY, [subject.probe.name, subject.server, case.name]))
    server = fleet.serving(subject)
    client = Client(server, fleet.gates)
    ledger = Ledger(server.file, client.tag)
    try:
        case.check(client, ledger)
    finally:
        client.close()
    assert client.requests, "the case asked nothing of the server"
    assert ledger.looks, "the case did not look at what was done"
