"""A store in blocking calls seen as an AsyncStore, by whatever carries blocking calls under asyncio without blocking.

Theory of operation. SQLAlchemy carries them in greenlets that switch back to the loop wherever a driver waits; asgiref
carries them in threads. Either way there is one source for what is sent, and when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.stores.contract import AsyncTransaction, Session, Store, Swept, Transaction

R = TypeVar("R")


class Carry(Protocol):
    """Calls something that blocks, and waits for it without blocking."""

    def __call__(self, call: Callable[[], R], /) -> Awaitable[R]: ...


class _CarriedSession:
    """AsyncSession over a Session."""

    def __init__(self, session: Session, carry: Carry) -> None:
        self._session: Final = session
        self._carry: Final = carry

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        return await self._carry(partial(self._session.claim, claim))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self._carry(partial(self._session.renew, own, lease_us))

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._carry(partial(self._session.start_answer, own, head))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete."""
        await self._carry(partial(self._session.complete, own, response, key_us, body_us, keep_effects=keep_effects))

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self._carry(partial(self._session.release, own))

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self._carry(partial(self._session.hold, own))


class CarriedTransaction(_CarriedSession):
    """AsyncTransaction over a Transaction; for one task at a time."""

    def __init__(self, transaction: Transaction, carry: Carry) -> None:
        super().__init__(transaction, carry)
        self._transaction: Final = transaction

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Cancelled, it goes on by itself: rolled back and given back it has to be.
        await asyncio.shield(asyncio.ensure_future(self._leave()))

    async def _leave(self) -> None:
        await self._carry(partial(self._transaction.__exit__, None, None, None))

    @property
    def connection(self) -> Any:
        """See Transaction.connection."""
        return self._transaction.connection

    async def begin(self) -> None:
        """See Transaction.begin."""
        await self._carry(self._transaction.begin)

    async def commit(self) -> None:
        """See Transaction.commit."""
        await self._carry(self._transaction.commit)


class CarriedStore(_CarriedSession):
    """AsyncStore over a Store; `transactions` makes them."""

    transactional = True

    def __init__(self, store: Any, carry: Carry) -> None:
        super().__init__(store, carry)
        self.store: Final[Store] = store
        self._sweeper: Final[Any] = store

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction."""
        return CarriedTransaction(self.store.transaction(), self._carry)

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        return await self._carry(partial(self.store.read, digest))

    async def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        return await self._carry(partial(self._sweeper.glance, digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        return await self._carry(partial(self.store.settle, own, response, key_us, body_us))

    async def now(self) -> Instant:
        """See Store.now."""
        return await self._carry(self.store.now)

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return await self._carry(partial(self.store.purge, limit))

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        swept: Swept = await self._carry(partial(self._sweeper.settle_stale, look_at))
        return swept

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await self._carry(self.store.check_schema)

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await self._carry(self.store.apply_schema)

    async def aclose(self) -> None:
        """See Store.close. What the application made stays open."""
        await self._carry(self.store.close)


class AsyncJoinedStore:
    """An AsyncStore whose transactions are the application's, and whose other dealings are those of `leased`."""

    transactional = True

    def __init__(self, leased: Callable[[], Any], transaction: Callable[[], AsyncTransaction]) -> None:
        self._leased: Final = leased
        self._transaction: Final = transaction

    @property
    def leased(self) -> Any:
        """The store of the leased way."""
        return self._leased()

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction."""
        return self._transaction()

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        claimed: Claimed | Existing = await self.leased.claim(claim)
        return claimed

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self.leased.renew(own, lease_us)

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self.leased.start_answer(own, head)

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        await self.leased.complete(own, response, key_us, body_us, keep_effects=keep_effects)

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self.leased.release(own)

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self.leased.hold(own)

    async def read(self, digest: bytes) -> Found:
        """See Store.read."""
        found: Found = await self.leased.read(digest)
        return found

    async def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        found: Found = await self.leased.glance(digest)
        return found

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        settled: bool = await self.leased.settle(own, response, key_us, body_us)
        return settled

    async def now(self) -> Instant:
        """See Store.now."""
        now: Instant = await self.leased.now()
        return now

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        purged: int = await self.leased.purge(limit)
        return purged

    async def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        swept: Swept = await self.leased.settle_stale(look_at)
        return swept

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await self.leased.check_schema()

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await self.leased.apply_schema()

    async def aclose(self) -> None:
        """See Store.close. What the application made stays open."""
        await self.leased.aclose()
