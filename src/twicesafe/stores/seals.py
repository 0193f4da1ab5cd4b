"""What a sealed store does to what it is given and gives, the same for stores that block and for those that do not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Ownership, Record, StoredResponse
from twicesafe.errors import ConfigurationError, SealBrokenError, SealKeyMissingError, StoreError
from twicesafe.stores.contract import Cipher, Outstanding
from twicesafe.stores.sealing import Sealing

DEFAULT_COMPRESS_FROM: Final = 1024
"""Bytes. Below, PostgreSQL and most file systems would store what is saved as padding."""

LARGE: Final = 128 * 1024
"""Bytes that take a millisecond or more to seal or open: under asyncio a thread does it."""


_log: Final = logging.getLogger("twicesafe")

Unreadable: TypeAlias = Callable[[Record, StoreError], object]
"""Called with a record as it is stored and what kept it from being opened. It must not raise."""


def log_unreadable(record: Record, error: StoreError) -> None:
    """As an error: somebody has to find a key, or to find out who changed a record."""
    _log.error("twicesafe.unreadable operation=%s key=%s: %s", record.operation, record.key_hint, error)


class Seals:
    """What is the same for every session, blocking or not."""

    def __init__(self, keys: Cipher | None, compress_from: int | None, unreadable: Unreadable) -> None:
        given: object = compress_from
        if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 0):
            raise ConfigurationError(f"compress_from must be a number of bytes, or None for never, not {given!r}")
        self._sealing = Sealing(keys, compress_from)
        self._unreadable = unreadable

    def claim(self, claim: Claim) -> Claim:
        """As the store is to have it."""
        if claim.request is None:
            return claim
        return claim._replace(request=self._sealing.seal_request(claim.request, claim.digest))

    def answer(self, response: StoredResponse, digest: bytes, epoch: int) -> StoredResponse:
        """As the store is to have it."""
        return self._sealing.seal(response, digest, epoch)

    def claimed_or_existing(self, found: Claimed | Existing) -> Claimed | Existing:
        """What the store answered, opened."""
        if type(found) is Claimed:
            if found.previous is None:
                return found
            previous, error = self._opened(found.previous)
            if isinstance(error, SealKeyMissingError) and self._sealing.has_sealed_steps(previous.recovery_data):
                # The claim stands, and is left to its lease: where the key is, the operation goes on.
                raise error
            return found._replace(previous=previous)
        assert type(found) is Existing, found
        if found.record is None:
            return found
        record, error = self._opened(found.record)
        if error is None or found.verdict is not Verdict.REPLAY:
            return found._replace(record=record)
        if isinstance(error, SealKeyMissingError):
            raise error
        return Existing(Verdict.GONE, record, found.now)

    def found(self, found: Found) -> Found:
        """What the store has, opened."""
        return found if found.record is None else found._replace(record=self._opened(found.record)[0])

    def _opened(self, record: Record) -> tuple[Record, StoreError | None]:
        """The record; what could not be opened is not in it, and why is told."""
        response, request, data = record.response, record.request, record.recovery_data
        error: StoreError | None = None
        if response is not None:
            try:
                response = self._sealing.open(response, record.digest, record.epoch)
            except (SealBrokenError, SealKeyMissingError) as met:
                response, error = StoredResponse(response.status, (), None), met
        if request is not None:
            try:
                request = self._sealing.open_request(request, record.digest)
            except (SealBrokenError, SealKeyMissingError) as met:
                request, error = None, error or met
        if data is not None:
            try:
                data = self._sealing.open_steps(data, record.digest)
            except (SealBrokenError, SealKeyMissingError) as met:
                # As it lies there it is no journal, so that no step is taken again.
                error = error or met
        if error is not None:
            self._unreadable(record, error)
        return record._replace(response=response, request=request, recovery_data=data), error

    # --- what a store may have besides: see contract.Resumes; `inner` is its own --------------------------------------

    def advance(self, inner: Any, own: Ownership, seen: str | None, point: str, data: bytes) -> Any:
        """What is added is sealed by itself, so it costs as much however much is there."""
        return inner(own, seen, point, self._sealing.seal_steps(data, own.digest, seen, point))

    def reopen(self, inner: Any, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> Any:
        """The whole is sealed in one."""
        sealed = None if data is None else self._sealing.seal_steps(data, own.digest, None, point)
        return inner(own, seen, point, sealed)

    def outstanding(self, inner: Any, after: object = None, look_at: int = 5_000) -> Any:
        """What cannot be opened is without its request, so that no worker here takes it up."""
        return self._opened_all(inner(after, look_at))

    def _opened_all(self, found: Outstanding) -> Outstanding:
        return found._replace(records=tuple(self._opened(record)[0] for record in found.records))


class AsyncSeals(Seals):
    """Large answers are sealed and opened in a thread."""

    async def aanswer(self, response: StoredResponse, digest: bytes, epoch: int) -> StoredResponse:
        if response.body is not None and len(response.body) >= LARGE:
            return await asyncio.to_thread(self.answer, response, digest, epoch)
        return self.answer(response, digest, epoch)

    async def aclaimed_or_existing(self, found: Claimed | Existing) -> Claimed | Existing:
        if type(found) is Existing and _is_large(found.record):
            return await asyncio.to_thread(self.claimed_or_existing, found)
        return self.claimed_or_existing(found)

    async def outstanding(self, inner: Any, after: object = None, look_at: int = 5_000) -> Outstanding:
        """See Seals.outstanding."""
        found = await inner(after, look_at)
        return await asyncio.to_thread(self._opened_all, found) if found.records else found

    async def afound(self, found: Found) -> Found:
        if _is_large(found.record):
            return await asyncio.to_thread(self.found, found)
        return self.found(found)


RESUMES: Final = ("advance", "reopen", "outstanding")
"""What Resumes promises: methods of both classes that take the store's own first."""


def _is_large(record: Record | None) -> bool:
    response = None if record is None else record.response
    return response is not None and response.body is not None and len(response.body) >= LARGE
