"""Records in Redis 7 or Valkey: one server, one that sentinels look after, or a cluster.

    redis://localhost:6379/0                               rediss:// for TLS
    redis+sentinel://sentinel-1,sentinel-2/service
    redis+cluster://node-1:6379,node-2:6379                rediss+cluster:// for TLS

A failover forgets what the new primary had not yet received: see docs/stores/redis.md for what that means, what
`replicas` does about it, and what `records`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import ConfigurationError, StoreError
from twicesafe.stores.connecting import DEFAULT_TIMEOUT, seconds
from twicesafe.stores.contract import AsyncStore, AsyncTransaction, Store, Swept, Transaction
from twicesafe.stores.redis_async import AsyncServers
from twicesafe.stores.redis_blocking import Servers
from twicesafe.stores.redis_driver import address_of
from twicesafe.stores.redis_durable import DurableSteps, ToRecords
from twicesafe.stores.redis_scripts import Ask, Asking, Primaries
from twicesafe.stores.redis_steps import RedisSteps
from twicesafe.stores.redis_waiting import AsyncWaiters, Waiters

__all__ = ["AsyncRedisStore", "RedisStore"]

R = TypeVar("R")

DEFAULT_PREFIX: Final = "twicesafe:"

NO_TRANSACTION: Final = (
    "Redis has no transactions to share with your effects: declare the operation keyed, resumable or opaque, or keep "
    "its records beside its data with twicesafe.stores.sqlite, twicesafe.stores.asyncpg or twicesafe.stores.psycopg"
)


class RedisStore:
    """A Store of the leased way, safe to share between threads.

    `url`: see above. `prefix` begins every key, so that several applications can share a server. `replicas` is how many
    replicas have to confirm each write before it counts as done; AmbiguousWriteError where they do not in time.
    `records` is a store that keeps what is completed or unknown, while Redis holds the claims; it stays yours to close.
    `timeout` bounds each wait for the server. `clock` replaces the server's; only tests have a reason to.
    """

    transactional = False

    def __init__(
        self,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        replicas: int = 0,
        records: Store | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        within = _checked(prefix, replicas, timeout)
        self._records = records
        self._claims: Final = RedisSteps(prefix, clock)
        self._steps: Final = self._claims if records is None else DurableSteps(self._claims)
        self._servers: Final = Servers(address_of(url), within, replicas)
        self._waiters: Final = Waiters(self._servers)

    # --- the exchange -------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return self._run(self._steps.claim(claim))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._run(self._steps.renew(own, lease_us))

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._run(self._steps.start_answer(own, head))

    def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        self._run(self._steps.complete(own, response, key_us, body_us))

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self._run(self._steps.release(own))

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self._run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """ConfigurationError: there is nothing here to share a transaction with."""
        raise ConfigurationError(NO_TRANSACTION)

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return self._run(self._steps.read(digest))

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return self._run(self._steps.settle(own, response, key_us, body_us))

    def now(self) -> Instant:
        """See Store.now."""
        return self._run(self._claims.now())

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge. Redis forgets by itself, bodies too: there is nothing to do but in `records`."""
        return 0 if self._records is None else self._records.purge(limit)

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale. Stale claims in `records` are for a reaper of its own."""
        return self._run(self._steps.settle_stale(look_at))

    def settled(self, digest: bytes, within_us: Micros) -> None:
        """Return when the record may have changed, or the time is over; at once where nobody works on it."""
        self._waiters.settled(self._claims.name(digest), within_us, lambda: self._run(self._claims.lease_left(digest)))

    def check_schema(self) -> None:
        """SchemaError where the server is too old, or forgets records when its memory is full."""
        self._run(self._claims.check_server())
        if self._records is not None:
            self._records.check_schema()

    def apply_schema(self) -> None:
        """Redis has none; what `records` has is made."""
        self._run(self._claims.check_server())
        if self._records is not None:
            self._records.apply_schema()

    def close(self) -> None:
        """See Store.close. `records` stays open."""
        self._waiters.close()
        self._servers.close()

    def _run(self, steps: Asking[R]) -> R:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self.perform(step)
                except StoreError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def perform(self, step: Any) -> Any:
        """One step: by Redis, or by `records`."""
        if type(step) is Ask:
            return self._servers.perform(step)
        if type(step) is ToRecords:
            return getattr(self._records, step.method)(*step.arguments)
        assert type(step) is Primaries, step
        return self._servers.primaries()


class AsyncRedisStore:
    """An AsyncStore of the leased way, for one event loop. The parameters are RedisStore's; `records` is an AsyncStore.

    All tasks share one connection to each server, over which what they ask at once goes in one piece.
    """

    transactional = False

    def __init__(
        self,
        url: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        replicas: int = 0,
        records: AsyncStore | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        within = _checked(prefix, replicas, timeout)
        self._records = records
        self._claims: Final = RedisSteps(prefix, clock)
        self._steps: Final = self._claims if records is None else DurableSteps(self._claims)
        self._servers: Final = AsyncServers(address_of(url), within, replicas)
        self._waiters: Final = AsyncWaiters(self._servers)

    # --- the exchange -------------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._run(self._steps.claim(claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self._run(self._steps.renew(own, lease_us))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._run(self._steps.start_answer(own, head))

    async def complete(
        self,
        own: Ownership,
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
        *,
        keep_effects: bool = True,  # noqa: ARG002 - nothing to roll back here
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        await self._run(self._steps.complete(own, response, key_us, body_us))

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self._run(self._steps.release(own))

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self._run(self._steps.hold(own))

    # --- everything else ----------------------------------------------------------------------------------------------

    def transaction(self) -> AsyncTransaction:
        """ConfigurationError: there is nothing here to share a transaction with."""
        raise ConfigurationError(NO_TRANSACTION)

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return await self._run(self._steps.read(digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return await self._run(self._steps.settle(own, response, key_us, body_us))

    async def now(self) -> Instant:
        """See Store.now."""
        return await self._run(self._claims.now())

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge. Redis forgets by itself, bodies too: there is nothing to do but in `records`."""
        return 0 if self._records is None else await self._records.purge(limit)

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale. Stale claims in `records` are for a reaper of its own."""
        return await self._run(self._steps.settle_stale(look_at))

    async def settled(self, digest: bytes, within_us: Micros) -> None:
        """Return when the record may have changed, or the time is over; at once where nobody works on it."""
        await self._waiters.settled(
            self._claims.name(digest), within_us, lambda: self._run(self._claims.lease_left(digest))
        )

    async def check_schema(self) -> None:
        """SchemaError where the server is too old, or forgets records when its memory is full."""
        await self._run(self._claims.check_server())
        if self._records is not None:
            await self._records.check_schema()

    async def apply_schema(self) -> None:
        """Redis has none; what `records` has is made."""
        await self._run(self._claims.check_server())
        if self._records is not None:
            await self._records.apply_schema()

    async def aclose(self) -> None:
        """See Store.close. `records` stays open."""
        await self._waiters.aclose()
        await self._servers.aclose()

    async def _run(self, steps: Asking[R]) -> R:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self.perform(step)
                except StoreError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    async def perform(self, step: Any) -> Any:
        """One step: by Redis, or by `records`."""
        if type(step) is Ask:
            return await self._servers.perform(step)
        if type(step) is ToRecords:
            return await getattr(self._records, step.method)(*step.arguments)
        assert type(step) is Primaries, step
        return await self._servers.primaries()


def _checked(prefix: str, replicas: int, timeout: timedelta) -> float:
    """Seconds. ConfigurationError for what cannot be meant."""
    if type(replicas) is not int or replicas < 0:
        raise ConfigurationError(f"replicas must be a whole number of replicas, 0 or more, not {replicas!r}")
    if "{" in prefix or "}" in prefix:
        raise ConfigurationError("prefix must hold no braces: they would send every record to one server of a cluster")
    return seconds(timeout)
