"""Records in DynamoDB by aiobotocore, under asyncio. See dynamodb_steps for the theory of operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any, TypeVar

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import StoreError
from twicesafe.stores.connecting import seconds
from twicesafe.stores.contract import AsyncTransaction, Swept
from twicesafe.stores.dynamodb_client import (
    DEFAULT_TIMEOUT,
    Place,
    could_not_open,
    of_error,
    of_response,
    pause_before_repeating,
    repeats,
    settings,
)
from twicesafe.stores.dynamodb_clock import DateClock, GivenClock
from twicesafe.stores.dynamodb_requests import Answer, Pause, Step, Steps
from twicesafe.stores.dynamodb_steps import DynamodbSteps
from twicesafe.stores.dynamodb_table import apply_schema, check_schema
from twicesafe.stores.dynamodb_transaction import DynamodbTransactionSteps, Writes
from twicesafe.stores.steps import adrive

__all__ = ["AsyncDynamodbStore", "Writes"]

R = TypeVar("R")


class AsyncDynamodbStore:
    """An AsyncStore in the table `table`.

    `region` and credentials are found as botocore finds them where they are not said; `endpoint` is for emulators and
    private endpoints. A `session` of your own, aiobotocore's, brings its credentials. An open `client` of your own
    stays yours, with its settings: then `region`, `endpoint` and `timeout` are its affair. `timeout` bounds the wait
    for a connection and for each answer. `clock` replaces DynamoDB's; only tests have a reason to set it.
    """

    transactional = True

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        session: Any = None,
        client: Any = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        self._place = Place(table, region, endpoint)
        self._session = session
        self._given = client
        self._timeout = seconds(timeout)
        self._clock = DateClock() if clock is None else GivenClock(clock)
        self._steps = DynamodbSteps(table, self._clock)
        self._opening = asyncio.Lock()
        self._opened: Any = None
        self._exits = AsyncExitStack()

    # --- the exchange -------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self.run(self._steps.claim(claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self.run(self._steps.renew(own, lease_us))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self.run(self._steps.start_answer(own, head))

    async def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here. A body that does not fit into 400 KB is not kept."""
        await self.run(self._steps.complete(own, response, key_us, body_us))

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self.run(self._steps.release(own))

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self.run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction. Its `connection` collects writes, see `Writes`."""
        return AsyncDynamodbTransaction(self, DynamodbTransactionSteps(self._steps))

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return await self.run(self._steps.read(digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return await self.run(self._steps.settle(own, response, key_us, body_us))

    async def now(self) -> Instant:
        """See Store.now. The earliest that it can be, asked for anew."""
        return await self.run(self._steps.now())

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge. It reads the whole table, bit by bit, and goes on where it stopped; DynamoDB's Time To Live
        deletes for nothing."""
        return await self.run(self._steps.purge(limit))

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale. It reads whole items."""
        return await self.run(self._steps.settle_stale(look_at))

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await self.run(check_schema(self._place.table, self._place.url))

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await self.run(apply_schema(self._place.table, self._place.url))

    async def aclose(self) -> None:
        """See Store.close. A client of your own stays open."""
        self._opened = None
        await self._exits.aclose()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def run(self, steps: Steps[R]) -> R:
        """Perform these steps."""
        return await adrive(steps, self.perform)

    async def perform(self, step: Step) -> Answer:
        """Send it, again where it was throttled, and say what the answer means."""
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return Answer({})
        client = await self.client()
        attempt = 0
        while True:
            sent = self._clock.ticks()
            try:
                return of_response(await getattr(client, step.name)(**step.arguments), self._clock, sent)
            except Exception as error:  # noqa: BLE001 - of_error raises what is not its own
                pause = pause_before_repeating(error, attempt)
                if pause is None:
                    return of_error(error, step, self._place, self._clock, sent, repeats=repeats(client))
            await asyncio.sleep(pause)
            attempt += 1

    async def client(self) -> Any:
        """The client; the store's own is made when it is first used."""
        if self._given is not None:
            return self._given
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    self._opened = await self._open()
        return self._opened

    async def _open(self) -> Any:
        try:
            return await self._exits.enter_async_context(
                (self._session or get_session()).create_client(
                    "dynamodb",
                    region_name=self._place.region,
                    endpoint_url=self._place.endpoint,
                    config=AioConfig(**settings(self._timeout)),
                )
            )
        except Exception as error:
            raise could_not_open(error, self._place) from error


class AsyncDynamodbTransaction:
    """One transaction; a context manager, for one task at a time."""

    def __init__(self, store: AsyncDynamodbStore, steps: DynamodbTransactionSteps) -> None:
        self._store = store
        self._steps = steps

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, *exc: object) -> None:
        # What cannot be taken back now ends with its lease, and nothing was done under it.
        with suppress(StoreError):
            await self._store.run(self._steps.roll_back())

    @property
    def connection(self) -> Writes:
        """See Transaction.connection."""
        return self._steps.connection

    async def begin(self) -> None:
        """See Transaction.begin. Nothing is sent."""
        self._steps.begin(await self._store.client())

    async def commit(self) -> None:
        """See Transaction.commit."""
        await self._store.run(self._steps.commit())

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._store.run(self._steps.claim(claim, await self._store.client()))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self._store.renew(own, lease_us)

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._store.run(self._steps.start_answer(own, head))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. CommitRefusedError where a condition of the handler's own does not hold."""
        await self._store.run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    async def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        await self._store.run(self._steps.roll_back())

    async def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        await self._store.run(self._steps.roll_back())
