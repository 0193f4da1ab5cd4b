"""Does a store keep its promises? Every check of the contract, each on a fresh store, without any test framework.

from twicesafe.testing import check_store

def test_my_store():
    check_store(lambda clock: MyStore(clock=clock))
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Collection
from typing import Final

from twicesafe.testing.check import Check
from twicesafe.testing.checks import CHECKS
from twicesafe.testing.clock import ManualClock
from twicesafe.testing.results import CheckFailedError, CheckResult, Outcome, StoreCheckError
from twicesafe.testing.subject import MakeStore, StoreUnderTest
from twicesafe.testing.trial import Trial, bounded

RIVALS: Final = 16
KEYS: Final = 300


def check_store(
    make_store: MakeStore,
    *,
    only: Collection[str] | None = None,
    rivals: int = RIVALS,
    keys: int = KEYS,
    raise_on_failure: bool = True,
) -> list[CheckResult]:
    """Run every check, or those named in `only`, on a store of its own that `make_store` makes.

    StoreCheckError, with a readable table, where a check failed; with `raise_on_failure` False only the results.
    `rivals` claim each of `keys` keys at once in the check of I1. Call it outside a running event loop; inside one,
    await `acheck_store`. Both take blocking and asynchronous stores.
    """
    return asyncio.run(acheck_store(make_store, only=only, rivals=rivals, keys=keys, raise_on_failure=raise_on_failure))


async def acheck_store(
    make_store: MakeStore,
    *,
    only: Collection[str] | None = None,
    rivals: int = RIVALS,
    keys: int = KEYS,
    raise_on_failure: bool = True,
) -> list[CheckResult]:
    """check_store, for asyncio."""
    unheard = set(only or ()) - {check.name for check in CHECKS}
    if unheard:
        raise ValueError(f"there is no check named {', '.join(sorted(unheard))}")
    results = [await _run(check, make_store, rivals, keys) for check in CHECKS if only is None or check.name in only]
    if raise_on_failure and not all(result.passed for result in results):
        raise StoreCheckError(results)
    return results


async def _run(check: Check, make_store: MakeStore, rivals: int, keys: int) -> CheckResult:
    clock = ManualClock()
    made = make_store(clock)
    subject = made if isinstance(made, StoreUnderTest) else StoreUnderTest(store=made)
    trial = Trial(subject, clock, rivals=rivals, keys=keys)
    try:
        for need in check.needs:
            if not need.has(trial):
                return CheckResult(check.name, check.cites, Outcome.NOT_APPLICABLE, need.otherwise)
        if trial.store.transactional and (subject.write_effect is None or subject.count_effects is None):
            raise CheckFailedError("a store with transactions is checked with write_effect and count_effects")
        await trial.store.apply_schema()
        await check.body(trial)
    except CheckFailedError as failure:
        return CheckResult(check.name, check.cites, Outcome.FAILED, str(failure))
    except Exception as error:  # noqa: BLE001 - whatever a store raises is this check's failure, not the suite's end
        where = "".join(traceback.format_exception(error)).rstrip()
        return CheckResult(check.name, check.cites, Outcome.FAILED, f"unexpected {type(error).__name__}\n{where}")
    finally:
        await bounded(trial.aclose(), "closing the store")
    return CheckResult(check.name, check.cites, Outcome.PASSED)
