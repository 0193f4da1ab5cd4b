"""What the lab prints: a table for people, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from twicesafe.storm.chaos.run import Ran

COUNTS: Final = ("intents", "effects", "duplicates", "lost", "unknown", "stuck")
_COLUMNS: Final = ("store", "operation", "trouble", *COUNTS, "held", "5xx", "blows", "s", "")
_LEFT: Final = frozenset({"store", "operation", "trouble", ""})


def as_dict(seed: int, ran: Sequence[Ran], seconds: float) -> dict[str, Any]:
    """For JSON; the keys are a promise."""
    return {
        "seed": seed,
        "clean": all(one.as_wanted for one in ran),
        "seconds": round(seconds, 1),
        "cells": [_cell(one) for one in ran],
    }


def _cell(one: Ran) -> dict[str, Any]:
    report = one.told.get("report", {})
    return {
        "store": one.cell.store,
        "operation": one.cell.operation,
        "troubles": list(one.cell.troubles),
        "seed": one.cell.seed,
        "naive": one.cell.naive,
        **{name: report.get(name) for name in COUNTS},
        "attempts": report.get("attempts"),
        "held": one.told.get("held"),
        "failures": one.told.get("failures"),
        "proofs": one.proofs,
        "clean": one.clean,
        "struck": one.struck,
        "remarks": one.told.get("remarks", []),
        "error": one.error,
        "seconds": round(one.seconds, 1),
    }


def line(one: Ran) -> list[str]:
    """Its row of the table."""
    report = one.told.get("report", {})
    verdict = "" if one.as_wanted else one.error or _verdict(one)
    if one.cell.naive and one.as_wanted:
        verdict = "damage, as it has to be"
    return [
        one.cell.store,
        one.cell.operation,
        one.cell.trouble,
        *(str(report.get(name, "?")) for name in COUNTS),
        str(one.told.get("held", "?")),
        str(one.told.get("failures", "?")),
        str(sum(proof["blows"] for proof in one.proofs.values())),
        f"{one.seconds:.0f}",
        " ".join(verdict.split())[:120],
    ]


def _verdict(one: Ran) -> str:
    if not one.clean and not one.cell.naive:
        return "not clean"
    return f"did not strike: {', '.join(one.idle)}" if one.idle else "no damage"


def table(ran: Sequence[Ran]) -> str:
    """All of them."""
    rows = [list(_COLUMNS), *map(line, ran)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]

    def aligned(row: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for name, cell, width in zip(_COLUMNS, row, widths, strict=True)
        ).rstrip()

    return "\n".join(map(aligned, rows))


def proofs(ran: Sequence[Ran]) -> str:
    """By which figures each trouble is known to have struck, added up by store."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for store, trouble, name, count in _figures(ran):
        figures = found.setdefault((store, trouble), {})
        # A duration is no sum.
        figures[name] = (
            max(figures.get(name, 0), count) if name.startswith(("ms", "s ")) else (figures.get(name, 0) + count)
        )
    return "\n".join(
        f"{store:<11} {trouble:<12} {', '.join(f'{count} {name}' for name, count in figures.items())}"
        for (store, trouble), figures in found.items()
    )


def _figures(ran: Sequence[Ran]) -> Iterator[tuple[str, str, str, int]]:
    for one in ran:
        for trouble, proof in one.proofs.items():
            for name, count in proof["figures"].items():
                yield one.cell.store, trouble, name, count
