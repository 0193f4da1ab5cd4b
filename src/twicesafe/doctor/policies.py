"""Settings of operations, and what has none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from twicesafe.core.policy import Operation
from twicesafe.core.record import Effects
from twicesafe.doctor.catalogue import Finding
from twicesafe.doctor.circumstances import Circumstances
from twicesafe.doctor.subject import Subject

SHORTEST_LEASE: Final = timedelta(seconds=5)
"""Renewed at a third: a pause of the collector, a page fault or a stopped container of 2 s is nothing unusual."""


def judge_policies(subject: Subject, known: Circumstances) -> Iterator[Finding]:
    """What each operation is declared to be, and each route that is none."""
    seen: dict[str, Operation] = {}
    for guard in subject.guards:
        for operation in guard.operations:
            seen.setdefault(operation.name, operation)
    for name, operation in seen.items():
        policy = operation.policy
        if policy.key_retention < known.horizon:
            yield Finding(
                "retention-short", name, f"{policy.key_retention} is remembered, and asked again for {known.horizon}"
            )
        if policy.effects is Effects.TRANSACTIONAL:
            continue
        if policy.lease < SHORTEST_LEASE:
            yield Finding("lease-short", name, f"the lease is {policy.lease}")
        elif policy.lease + policy.renewed_for < known.longest:
            yield Finding(
                "lease-short",
                name,
                f"renewed for {policy.renewed_for}, the lease ends before a request of {known.longest}",
            )
    if any(guard.every_route for guard in subject.guards) or not subject.guards:
        return
    for route in subject.routes:
        if route.operation is None:
            yield Finding("route-unprotected", f"{' '.join(sorted(route.methods))} {route.path}")
