"""Records in DynamoDB by boto3, for any number of processes. See dynamodb_steps for the theory of operation.

The asynchronous store is `twicesafe.stores.dynamodb_async.AsyncDynamodbStore`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Lock
from typing import Any, TypeVar

import boto3  # type: ignore[import-untyped]

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import StoreError
from twicesafe.stores.connecting import seconds
from twicesafe.stores.contract import Swept, Transaction
from twicesafe.stores.dynamodb_client import (
    DEFAULT_TIMEOUT,
    Place,
    config,
    could_not_open,
    of_error,
    of_response,
    pause_before_repeating,
    repeats,
)
from twicesafe.stores.dynamodb_clock import DateClock, GivenClock
from twicesafe.stores.dynamodb_requests import Answer, Pause, Step, Steps
from twicesafe.stores.dynamodb_steps import DynamodbSteps
from twicesafe.stores.dynamodb_table import apply_schema, check_schema
from twicesafe.stores.dynamodb_transaction import DynamodbTransactionSteps, Writes
from twicesafe.stores.steps import drive

__all__ = ["DynamodbStore", "Writes"]

R = TypeVar("R")


class DynamodbStore:
    """A Store in the table `table`, safe to share between threads.

    `region` and credentials are found as boto3 finds them where they are not said; `endpoint` is for emulators and
    private endpoints. A `session` of your own, boto3's, brings its credentials. A `client` of your own stays yours,
    with its settings: then `region`, `endpoint` and `timeout` are its affair. `timeout` bounds the wait for a
    connection and for each answer. `clock` replaces DynamoDB's; only tests have a reason to set it.
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
        self._opening = Lock()
        self._opened: tuple[int, Any] | None = None

    # --- the exchange -------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self.run(self._steps.claim(claim))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self.run(self._steps.renew(own, lease_us))

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self.run(self._steps.start_answer(own, head))

    def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here. A body that does not fit into 400 KB is not kept."""
        self.run(self._steps.complete(own, response, key_us, body_us))

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self.run(self._steps.release(own))

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self.run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """See Store.transaction. Its `connection` collects writes, see `Writes`."""
        return DynamodbTransaction(self, DynamodbTransactionSteps(self._steps))

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return self.run(self._steps.read(digest))

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return self.run(self._steps.settle(own, response, key_us, body_us))

    def now(self) -> Instant:
        """See Store.now. The earliest that it can be, asked for anew."""
        return self.run(self._steps.now())

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge. It reads the whole table, bit by bit, and goes on where it stopped; DynamoDB's Time To Live
        deletes for nothing."""
        return self.run(self._steps.purge(limit))

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale. It reads whole items."""
        return self.run(self._steps.settle_stale(look_at))

    def check_schema(self) -> None:
        """See Store.check_schema."""
        self.run(check_schema(self._place.table, self._place.url))

    def apply_schema(self) -> None:
        """See Store.apply_schema."""
        self.run(apply_schema(self._place.table, self._place.url))

    def close(self) -> None:
        """See Store.close. A client of your own stays open."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    # --- requests -----------------------------------------------------------------------------------------------------

    def run(self, steps: Steps[R]) -> R:
        """Perform these steps."""
        return drive(steps, self.perform)

    def perform(self, step: Step) -> Answer:
        """Send it, again where it was throttled, and say what the answer means."""
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return Answer({})
        client = self.client()
        attempt = 0
        while True:
            sent = self._clock.ticks()
            try:
                return of_response(getattr(client, step.name)(**step.arguments), self._clock, sent)
            except Exception as error:  # noqa: BLE001 - of_error raises what is not its own
                pause = pause_before_repeating(error, attempt)
                if pause is None:
                    return of_error(error, step, self._place, self._clock, sent, repeats=repeats(client))
            time.sleep(pause)
            attempt += 1

    def client(self) -> Any:
        """The client; the store's own is made when it is first used, and anew after a fork."""
        if self._given is not None:
            return self._given
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            with self._opening:
                opened = self._opened
                if opened is None or opened[0] != os.getpid():
                    opened = self._opened = os.getpid(), self._open()
        return opened[1]

    def _open(self) -> Any:
        try:
            return (self._session or boto3.session.Session()).client(
                "dynamodb",
                region_name=self._place.region,
                endpoint_url=self._place.endpoint,
                config=config(self._timeout),
            )
        except Exception as error:
            raise could_not_open(error, self._place) from error


class DynamodbTransaction:
    """One transaction; a context manager, for one thread at a time."""

    def __init__(self, store: DynamodbStore, steps: DynamodbTransactionSteps) -> None:
        self._store = store
        self._steps = steps

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *exc: object) -> None:
        # What cannot be taken back now ends with its lease, and nothing was done under it.
        with suppress(StoreError):
            self._store.run(self._steps.roll_back())

    @property
    def connection(self) -> Writes:
        """See Transaction.connection."""
        return self._steps.connection

    def begin(self) -> None:
        """See Transaction.begin. Nothing is sent."""
        self._steps.begin(self._store.client())

    def commit(self) -> None:
        """See Transaction.commit."""
        self._store.run(self._steps.commit())

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._store.run(self._steps.claim(claim, self._store.client()))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._store.renew(own, lease_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._store.run(self._steps.start_answer(own, head))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. CommitRefusedError where a condition of the handler's own does not hold."""
        self._store.run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        self._store.run(self._steps.roll_back())

    def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        self._store.run(self._steps.roll_back())
