"""Everything that is tried on a target, in the order in which it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.trials import (
    bodies,
    callers,
    changes,
    crashes,
    expiry,
    failures,
    interruptions,
    keys,
    parallel,
    refusals,
    replay,
    spellings,
)
from twicesafe.conformance.trials.trial import Trial

ALL: Final[tuple[Trial, ...]] = (
    *replay.TRIALS,
    *parallel.TRIALS,
    *changes.TRIALS,
    *callers.TRIALS,
    *keys.TRIALS,
    *spellings.TRIALS,
    *failures.TRIALS,
    *interruptions.TRIALS,
    *refusals.TRIALS,
    *bodies.TRIALS,
    *expiry.TRIALS,
    *crashes.TRIALS,
)


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> tuple[Trial, ...]:
    """Those of these names, without those of others. CannotCheckError for a name that there is not."""
    names = [trial.name for trial in ALL]
    if unknown := [name for name in (*only, *skip) if name not in names]:
        raise CannotCheckError(f"there is no trial {unknown[0]}; there are {', '.join(names)}")
    return tuple(one for one in ALL if (not only or one.name in only) and one.name not in skip)
