"""What a check works with: one fresh store, its clock, and short ways to say what is asked of it and expected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from inspect import isawaitable
from secrets import token_bytes
from typing import Any, Final, TypeVar, cast

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.keys import scoped_key
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.record import Effects, Micros, Ownership, Record, StoredResponse
from twicesafe.errors import LeaseLostError
from twicesafe.stores.contract import AsyncSession, AsyncStore, AsyncTransaction, Store
from twicesafe.testing.clock import ManualClock
from twicesafe.testing.results import CheckFailedError
from twicesafe.testing.subject import StoreUnderTest
from twicesafe.testing.threads import StoreInThreads, TransactionInThread

T = TypeVar("T")

LEASE: Final = timedelta(seconds=30)
KEY: Final = timedelta(hours=24)
BODY: Final = timedelta(hours=1)
"""Lease and retentions of every claim that names no others."""
A_WHILE: Final = timedelta(seconds=1)

REQUEST: Final = b"\x01" + b"the first request".ljust(32, b".")
OTHER_REQUEST: Final = b"\x01" + b"another request".ljust(32, b".")
"""Fingerprints."""

ANSWER: Final = StoredResponse(
    201, ((b"content-type", b"application/json"), (b"location", b"/charges/1")), b'{"charge":1}'
)

BOUND: Final = 100.0
"""Seconds after which a store that waits is taken to hang. 4,800 claims take a database two of them, and a minute on a
machine that does ten other things."""


def us(duration: timedelta) -> Micros:
    """In microseconds."""
    return duration // timedelta(microseconds=1)


def expect(condition: object, otherwise: str) -> None:
    """CheckFailedError with what was found wrong."""
    if not condition:
        raise CheckFailedError(otherwise)


class Trial:
    """One check's store and clock."""

    def __init__(self, subject: StoreUnderTest, clock: ManualClock, *, rivals: int, keys: int) -> None:
        self.subject = subject
        self.clock = clock
        self.rivals = rivals
        self.keys = keys
        self._opened: list[AsyncStore] = []
        self.store = self._open(subject.store)

    def _open(self, store: Store | AsyncStore) -> AsyncStore:
        asynchronous = cast("AsyncStore", store) if hasattr(store, "aclose") else StoreInThreads(store)
        self._opened.append(asynchronous)
        return asynchronous

    async def aclose(self) -> None:
        """Close every store that was opened, then what they stood on."""
        for store in reversed(self._opened):
            await store.aclose()
        if self.subject.close is not None:
            await _result(self.subject.close())

    # --- asking -----------------------------------------------------------------------------------------------------

    def wish(
        self,
        key: str = "key",
        *,
        scope: str = "caller",
        request: bytes = REQUEST,
        effects: Effects = Effects.KEYED,
        lease: timedelta = LEASE,
        retention: timedelta = KEY,
    ) -> Claim:
        """A claim under an owner token of its own."""
        digest, name, hint = scoped_key(scope, key)
        return Claim(
            digest,
            name,
            "POST /charges",
            hint,
            GivenFingerprint(request),
            effects,
            token_bytes(16),
            us(lease),
            us(retention),
        )

    async def claim(self, key: str = "key", *, by: AsyncSession | None = None, **wishes: Any) -> Claimed | Existing:
        """Claim `key` anew, as a new attempt does."""
        return await (self.store if by is None else by).claim(self.wish(key, **wishes))

    async def won(self, key: str = "key", *, by: AsyncSession | None = None, **wishes: Any) -> Ownership:
        """Claim `key` and expect to win it."""
        found = await self.claim(key, by=by, **wishes)
        expect(type(found) is Claimed, f"a claim that nothing stood against was answered {_verdict(found)}")
        return cast("Claimed", found).ownership

    async def refused(
        self, verdict: Verdict, key: str = "key", *, by: AsyncSession | None = None, when: str, **wishes: Any
    ) -> Existing:
        """Claim `key` and expect `verdict`."""
        found = await self.claim(key, by=by, **wishes)
        expect(
            type(found) is Existing and found.verdict is verdict,
            f"{when}, a claim was answered {_verdict(found)} instead of {verdict}",
        )
        return cast("Existing", found)

    async def complete(
        self, own: Ownership, response: StoredResponse = ANSWER, *, by: AsyncSession | None = None, **named: Any
    ) -> None:
        """Complete with the usual retentions."""
        await (self.store if by is None else by).complete(own, response, us(KEY), us(BODY), **named)

    async def completed(self, key: str = "key", response: StoredResponse = ANSWER, **wishes: Any) -> Ownership:
        """Claim and complete in the leased way."""
        own = await self.won(key, **wishes)
        await self.complete(own, response)
        return own

    async def unknown(self, key: str = "key", **wishes: Any) -> Ownership:
        """Claim and hold."""
        own = await self.won(key, **wishes)
        await self.store.hold(own)
        return own

    async def row(self, digest: bytes) -> Record | None:
        """The row as it stands."""
        return (await self.store.read(digest)).record

    def same(self, before: Record | None, after: Record | None) -> bool:
        """Whether nothing changed but what time changes: a body whose retention has ended may go at any moment."""
        if before is not None and before.response is not None and self.clock() >= before.body_until:
            bodiless = before._replace(response=before.response._replace(body=None))
            return after in (before, bodiless)
        return after == before

    async def lost(self, call: Awaitable[object], what: str) -> None:
        """Expect LeaseLostError (I3)."""
        try:
            await call
        except LeaseLostError:
            return
        raise CheckFailedError(f"{what} raised no LeaseLostError")

    async def nothing_moves(self, own: Ownership, who: str, *, by: AsyncStore | None = None) -> None:
        """Expect LeaseLostError from every one of an owner's writes, and the row left as it was (I3)."""
        store = self.store if by is None else by
        before = await self.row(own.digest)
        await self.lost(store.renew(own, us(LEASE)), f"{who}'s renew")
        await self.lost(store.start_answer(own, ANSWER._replace(body=None)), f"{who}'s start_answer")
        await self.lost(store.hold(own), f"{who}'s hold")
        await self.lost(store.release(own), f"{who}'s release")
        await self.lost(self.complete(own, ANSWER._replace(status=299), by=store), f"{who}'s complete")
        after = await self.row(own.digest)
        expect(self.same(before, after), f"{who} changed the row from {before} to {after}")

    # --- rivals -----------------------------------------------------------------------------------------------------

    async def rival(self, calls: Iterable[Awaitable[T]]) -> list[T]:
        """All at once; the first exception of any is raised when all have ended."""

        async def together() -> list[T | BaseException]:
            # Cancelled, Python 3.11's wait_for would leave a bare gather's exception for nobody to hear of.
            return await asyncio.gather(*calls, return_exceptions=True)

        found = await bounded(together(), "the rivals")
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return cast("list[T]", found)

    def elsewhere(self) -> AsyncStore:
        """Another store on the same records; `applicable` made sure that there is one."""
        assert self.subject.elsewhere is not None
        return self._open(self.subject.elsewhere())

    # --- transactions -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """A transaction that ends within bounds."""
        transaction = self.store.transaction()
        await bounded(transaction.__aenter__(), "a transaction's beginning")
        try:
            yield transaction
        except BaseException as error:
            await bounded(transaction.__aexit__(type(error), error, error.__traceback__), "a transaction's end")
            raise
        await bounded(transaction.__aexit__(None, None, None), "a transaction's end")

    async def write_effect(self, transaction: AsyncTransaction, name: str) -> None:
        """The application's own row, in the transaction."""
        write = self.subject.write_effect
        assert write is not None
        if isinstance(transaction, TransactionInThread):
            await transaction.run(write, transaction.connection, name)
        else:
            await _result(write(transaction.connection, name))

    async def effects(self, name: str) -> int:
        """How many committed rows of the application's own carry this name."""
        count = self.subject.count_effects
        assert count is not None
        return cast("int", await _result(count(name)))

    def before_statement(self, call: Callable[[int], Any]) -> Awaitable[Any]:
        """See StoreUnderTest."""
        install = self.subject.before_statement
        assert install is not None
        if not isinstance(self.store, StoreInThreads):
            return _result(install(call))
        loop = asyncio.get_running_loop()

        def from_thread(n: int) -> Any:
            return asyncio.run_coroutine_threadsafe(_result(call(n)), loop).result(BOUND)

        return _result(install(from_thread))


async def bounded(awaitable: Awaitable[T], what: str) -> T:
    """Its result, or CheckFailedError where it hangs."""
    try:
        return await asyncio.wait_for(awaitable, BOUND)
    except TimeoutError:
        raise CheckFailedError(f"{what} did not come to an end within {BOUND:.0f} s") from None


async def _result(value: Any) -> Any:
    return await value if isawaitable(value) else value


def _verdict(found: Claimed | Existing) -> str:
    return "claimed" if type(found) is Claimed else str(found.verdict)  # type: ignore[union-attr]
