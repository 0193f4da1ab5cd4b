"""What a storm of operations of several steps does beside: arms the provider, waits until all that is open is settled,
and looks into every ledger."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from twicesafe.core.record import Instant, Micros, Record, RecordState
from twicesafe.core.turns import is_due
from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.demo.provider.ledger import ProviderLedger
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import AsyncStore, Outstanding
from twicesafe.storm.company import Company
from twicesafe.storm.ledger import Ledger
from twicesafe.storm.operation import NAME, closed, reserved, scope_of
from twicesafe.storm.provider_plan import CHARGES, ProviderPlan
from twicesafe.storm.settings import Standing

PATIENCE: Final = timedelta(seconds=90)
"""How long the workers have to bring to its end what nobody asks for any more, on a busy machine."""
SOON: Final[Micros] = 20_000_000
SHOWN: Final = 5
"""Operations that are shown of those that are left."""
LOOK: Final = 0.2
"""Seconds between two looks."""


class Aftermath:
    """Of the storm `run`. `store` None: there is no record of anything, and nothing that could be settled."""

    def __init__(
        self, run: str, ledger: Ledger, provider: ProviderLedger, store: AsyncStore | None, company: Company
    ) -> None:
        self._run = run
        self._ledger = ledger
        self._provider = provider
        self._store = store
        self._company = company
        self._now: Instant = 0
        """By the store's clock, when it was last looked at."""

    def arm(self, plan: ProviderPlan) -> None:
        """Let the provider meet each charge with what the plan says."""
        self._provider.arm_all(
            (fault, wanted.reference(self._run)) for wanted, faults in plan.items() for fault in faults
        )

    async def settled(self, standing: Standing) -> None:
        """No more faults; return when nothing is open any more, or nobody can be expected to settle it."""
        await asyncio.to_thread(self._provider.calm)
        standing.begin("settling", left := await self._awaited())
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while left:
                    await asyncio.sleep(LOOK)
                    left = await self._awaited()
                    standing.done = max(standing.done, standing.total - left)
        except TimeoutError:
            # The census says what that means.
            return

    async def _awaited(self) -> int:
        """How many outcomes are unknown, or are soon gone on with by a worker. Others wait for their clients."""
        left = await self.unsettled()
        return sum(one.state is RecordState.UNKNOWN or is_due(one, self._now + SOON) for one in left)

    async def unsettled(self) -> list[Record]:
        """What of this storm is open or unknown, and at work by nobody."""
        left: list[Record] = []
        after: object = None
        prefix = scope_of(self._run, "")
        while self._store is not None:
            try:
                found: Outstanding = await self._store.outstanding(after)  # type: ignore[attr-defined]
            except StoreUnavailableError:
                await asyncio.sleep(LOOK)
                continue
            left += [one for one in found.records if one.operation == NAME and one.scope.startswith(prefix)]
            after, self._now = found.after, found.now
            if after is None:
                break
        return left

    async def books(self) -> Sequence[Sequence[Mapping[int, list[str]]]]:
        """The provider's charges beside our rows of them, their fees beside those, and our reservations."""
        ours = [await self._ledger.payments(run) for run in (self._run, closed(self._run), reserved(self._run))]
        theirs = await asyncio.to_thread(self._charges)
        return [[theirs["charge"], ours[0]], [theirs["fee"], ours[1]], [ours[2]]]

    def _charges(self) -> Mapping[str, Mapping[int, list[str]]]:
        found: dict[str, defaultdict[int, list[str]]] = {charge: defaultdict(list) for charge in CHARGES}
        for number, reference, _ in self._provider.charges():
            _, intent, charge = reference.split("/")
            found[charge][int(intent)].append(number)
        return found

    def struck(self) -> dict[str, int]:
        """What the provider did to its callers."""
        struck = self._provider.struck()
        return {f"provider_{fault}": struck[fault] for fault in sorted(ProviderFault)}

    def remarks(self, left: Sequence[Record]) -> Iterator[str]:
        """How it came to its end, and what of it did not."""
        workers = self._company.workers
        assert workers is not None
        noted = self._company.noted()
        yield (
            f"{noted['call.unknown']} times a call's outcome was held as unknown; the reconcilers asked the provider, "
            f"which settled {noted['outcome.settled']}; workers brought {workers.noted['finished']} operations to their"
            " end"
        )
        for record in left[:SHOWN]:
            yield f"{record.key_hint} is {record.state}, attempt {record.epoch}, at {record.recovery_point}"
