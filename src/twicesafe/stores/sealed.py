"""Any store, with its answers compressed where that pays and encrypted at rest.

    store = AsyncSealedStore(AsyncpgStore("postgresql://..."), keys=Keyring({"2026-11": secret}, current="2026-11"))

Sealed are header lines, body, and what is kept for a worker: the request, and what the steps of an operation gave. In
the clear remain what the store works with: digest, fingerprint, state, times, status; and what operators read: scope,
operation, the end of the key, the name of the last step.

What cannot be opened never leads to a second run. Where a key is merely missing here, a claim that would replay raises
SealKeyMissingError, which callers are told as 503: asked again where the key is, the answer is there. Where the answer
was changed, belongs to another record, or its key was discarded, the work is done and its result is not kept, which is
what a retry is told. `unreadable` hears of both. `read` never raises: it shows such a record without its body.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.stores.contract import AsyncStore, AsyncTransaction, Cipher, Store, Transaction
from twicesafe.stores.seals import DEFAULT_COMPRESS_FROM, RESUMES, AsyncSeals, Seals, Unreadable, log_unreadable

__all__ = ["AsyncSealedStore", "SealedStore"]


class SealedStore:
    """A Store over `store` that seals what it is given. Whatever else `store` can do, this one can too.

    `keys` encrypt: a twicesafe.stores.cryptography.Keyring. Without them answers are only compressed, from
    `compress_from` bytes on, where that makes them smaller; None compresses nothing. Records from before are read as
    they are.
    """

    def __init__(
        self,
        store: Store,
        *,
        keys: Cipher | None = None,
        compress_from: int | None = DEFAULT_COMPRESS_FROM,
        unreadable: Unreadable = log_unreadable,
    ) -> None:
        self._store = store
        self._seals = Seals(keys, compress_from, unreadable)
        self.transactional = store.transactional

    def __getattr__(self, name: str) -> Any:
        # Optional methods are found by their names, so what the store has not must be missing here too.
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._store, name)
        return partial(getattr(self._seals, name), found) if name in RESUMES else found

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim. SealKeyMissingError where a key for the answer to be replayed is missing."""
        return self._seals.claimed_or_existing(self._store.claim(self._seals.claim(claim)))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self._store.renew(own, lease_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._store.start_answer(own, self._seals.answer(head, own.digest, own.epoch))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete."""
        sealed = self._seals.answer(response, own.digest, own.epoch)
        self._store.complete(own, sealed, key_us, body_us, keep_effects=keep_effects)

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self._store.release(own)

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self._store.hold(own)

    def transaction(self) -> Transaction:
        """See Store.transaction."""
        return _SealedTransaction(self._store.transaction(), self._seals)

    def read(self, digest: bytes) -> Found:
        """See Store.read. An answer that cannot be opened is shown without header lines and body."""
        return self._seals.found(self._store.read(digest))

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        sealed = None if response is None else self._seals.answer(response, own.digest, own.epoch)
        return self._store.settle(own, sealed, key_us, body_us)

    def now(self) -> Instant:
        """See Store.now."""
        return self._store.now()

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return self._store.purge(limit)

    def check_schema(self) -> None:
        """See Store.check_schema."""
        self._store.check_schema()

    def apply_schema(self) -> None:
        """See Store.apply_schema."""
        self._store.apply_schema()

    def close(self) -> None:
        """See Store.close."""
        self._store.close()


class _SealedTransaction:
    """A Transaction that seals."""

    def __init__(self, transaction: Any, seals: Seals) -> None:
        self._transaction = transaction
        self._seals = seals

    def __enter__(self) -> Transaction:
        self._transaction.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._transaction.__exit__(*exc)

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    def begin(self) -> None:
        self._transaction.begin()

    def commit(self) -> None:
        self._transaction.commit()

    def claim(self, claim: Claim) -> Claimed | Existing:
        return self._seals.claimed_or_existing(self._transaction.claim(self._seals.claim(claim)))

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        self._transaction.renew(own, lease_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        self._transaction.start_answer(own, self._seals.answer(head, own.digest, own.epoch))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        sealed = self._seals.answer(response, own.digest, own.epoch)
        self._transaction.complete(own, sealed, key_us, body_us, keep_effects=keep_effects)

    def release(self, own: Ownership) -> None:
        self._transaction.release(own)

    def hold(self, own: Ownership) -> None:
        self._transaction.hold(own)

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        self._seals.advance(self._transaction.advance, own, seen, point, data)


class AsyncSealedStore:
    """SealedStore, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        keys: Cipher | None = None,
        compress_from: int | None = DEFAULT_COMPRESS_FROM,
        unreadable: Unreadable = log_unreadable,
    ) -> None:
        self._store = store
        self._seals = AsyncSeals(keys, compress_from, unreadable)
        self.transactional = store.transactional

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._store, name)
        return partial(getattr(self._seals, name), found) if name in RESUMES else found

    async def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim. SealKeyMissingError where a key for the answer to be replayed is missing."""
        return await self._seals.aclaimed_or_existing(await self._store.claim(self._seals.claim(claim)))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        await self._store.renew(own, lease_us)

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        await self._store.start_answer(own, self._seals.answer(head, own.digest, own.epoch))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete."""
        sealed = await self._seals.aanswer(response, own.digest, own.epoch)
        await self._store.complete(own, sealed, key_us, body_us, keep_effects=keep_effects)

    async def release(self, own: Ownership) -> None:
        """See Session.release."""
        await self._store.release(own)

    async def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        await self._store.hold(own)

    def transaction(self) -> AsyncTransaction:
        """See Store.transaction."""
        return _AsyncSealedTransaction(self._store.transaction(), self._seals)

    async def read(self, digest: bytes) -> Found:
        """See Store.read. An answer that cannot be opened is shown without header lines and body."""
        return await self._seals.afound(await self._store.read(digest))

    async def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        sealed = None if response is None else await self._seals.aanswer(response, own.digest, own.epoch)
        return await self._store.settle(own, sealed, key_us, body_us)

    async def now(self) -> Instant:
        """See Store.now."""
        return await self._store.now()

    async def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        return await self._store.purge(limit)

    async def check_schema(self) -> None:
        """See Store.check_schema."""
        await self._store.check_schema()

    async def apply_schema(self) -> None:
        """See Store.apply_schema."""
        await self._store.apply_schema()

    async def aclose(self) -> None:
        """See Store.close."""
        await self._store.aclose()


class _AsyncSealedTransaction:
    """An AsyncTransaction that seals."""

    def __init__(self, transaction: Any, seals: AsyncSeals) -> None:
        self._transaction = transaction
        self._seals = seals

    async def __aenter__(self) -> AsyncTransaction:
        await self._transaction.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transaction.__aexit__(*exc)

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    async def begin(self) -> None:
        await self._transaction.begin()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def claim(self, claim: Claim) -> Claimed | Existing:
        return await self._seals.aclaimed_or_existing(await self._transaction.claim(self._seals.claim(claim)))

    async def renew(self, own: Ownership, lease_us: Micros) -> None:
        await self._transaction.renew(own, lease_us)

    async def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        await self._transaction.start_answer(own, self._seals.answer(head, own.digest, own.epoch))

    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        sealed = await self._seals.aanswer(response, own.digest, own.epoch)
        await self._transaction.complete(own, sealed, key_us, body_us, keep_effects=keep_effects)

    async def release(self, own: Ownership) -> None:
        await self._transaction.release(own)

    async def hold(self, own: Ownership) -> None:
        await self._transaction.hold(own)

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        await self._seals.advance(self._transaction.advance, own, seen, point, data)
