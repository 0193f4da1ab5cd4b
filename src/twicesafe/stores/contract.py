"""What a store promises. Shells see these types, never a concrete store; `twicesafe.testing.check_store` proves them.

A *session* is what one exchange talks to. The store itself is the session of the leased way: each method is one short
statement that commits by itself. A transaction is the session of the transactional way: claim, effect and answer are
one transaction on the connection the handler uses, and its `complete` is the commit.

Every method raises StoreUnavailableError when it changed nothing, AmbiguousWriteError when its write may stand, and
LeaseLostError when the ownership it was given is no longer the row's (I3; in a transaction after rolling back).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, Record, StoredResponse


class Swept(NamedTuple):
    """What one call of `settle_stale` came to. `more` False: the sweep has come past every record."""

    settled: int
    more: bool


class Session(Protocol):
    """One exchange's dealings with a store, in blocking calls."""

    def claim(self, claim: Claim) -> Claimed | Existing:
        """Atomically become the one who runs, or learn why not.

        I1: of any number of concurrent claims exactly one wins, and a win was read back with its owner token.
        I4: another fingerprint is MISMATCH on every path. Asked again with the same owner token after a lost reply, the
        claim recognises its own row. An expired row is claimed without any sweeper, and a row that vanishes between two
        statements starts the claim again. A stale opaque claim is made unknown, and a stale one whose answer had begun
        to leave is completed without a body, before this returns; the Existing that is returned then says UNKNOWN or
        GONE and carries the row as it stands. Epochs grow by one with each claim of a row. A take-over keeps the first
        claim's created_at and key_until: nobody downstream remembers derived keys any longer than that (R25).
        ValueError for a lease or a retention below a microsecond.
        """

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """Let the lease end `lease_us` after the store's now."""

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """Make the answer's head durable while the claim stays (I11). In a transaction: complete without a body."""

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """Store the answer for good (I5). Also from `unknown`: the owner knows best.

        Repeated under the same ownership after a lost reply it succeeds again and changes nothing. With `keep_effects`
        False a transaction rolls its effects back and records the answer in a transaction of its own; where a rival
        claimed in between, the answer is not recorded and LeaseLostError is raised: the rival's is the one answer.
        Outside a transaction the flag means nothing.
        """

    def release(self, own: Ownership) -> None:
        """Forget the claim: the next attempt runs. In a transaction: roll back."""

    def hold(self, own: Ownership) -> None:
        """Keep the outcome as unknown (I6). In a transaction: roll back, for then it is known."""


class Transaction(Session, Protocol):
    """The transactional way, a context manager: leaving it unfinished rolls back and gives back the connection.

    `claim` begins it, and has ended it again when it is not won, so that whoever waits holds no connection. After
    `begin` a claim joins what was begun and leaves it open whatever its answer: rows of one's own that were written
    before it can still be committed.
    """

    @property
    def connection(self) -> Any:
        """The driver's own connection, inside the transaction, for the handler's effects. Do not commit it.

        LookupError before the transaction has begun and after it has ended.
        """

    def begin(self) -> None:
        """Begin without a claim: for requests that sent no key, and for rows of one's own before a claim."""

    def commit(self) -> None:
        """Commit effects that belong to no key: for requests that sent none. Nothing is claimed or recorded."""

    def __enter__(self) -> Transaction: ...

    def __exit__(self, *exc: object) -> None: ...


class Store(Session, Protocol):
    """A place for records, in blocking calls."""

    transactional: bool
    """Whether `transaction()` can be had here."""

    def transaction(self) -> Transaction:
        """A new transaction. Nothing is sent before its `claim` or `begin`. ConfigurationError where there is none."""

    def read(self, digest: bytes) -> Found:
        """The row as it stands, whatever its standing.

        A transaction in flight for this key is waited for, within bounds.
        """

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """End an unknown outcome: with a response it is completed, with None released.

        `own` is the ownership of the record that somebody judged (`Record.ownership`). False where it is no longer
        unknown under that. The epoch alone does not tell: a key that was released and claimed anew counts from 1 again.
        """

    def now(self) -> Instant:
        """The store's clock (I12)."""

    def purge(self, limit: int = 1000) -> int:
        """Delete at most `limit` records whose key's retention has ended, and drop as many bodies past theirs.

        Returns how many rows it touched. Nothing depends on it but space; it never blocks a claim (R20).
        """

    def check_schema(self) -> None:
        """SchemaError unless this release's tables are there; the message names the command that makes them."""

    def apply_schema(self) -> None:
        """Create or upgrade this release's tables. Safe to run twice and from many processes at once."""

    def close(self) -> None:
        """Give back every connection. Safe to call twice."""


class SettlesStale(Protocol):
    """What a Store may have besides; the reaper uses it where it is there (R27)."""

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """Look at about `look_at` records, on from where the last call stopped, and end the claims left behind.

        A claim whose lease is over ends as `lifecycle.abandoned` says: made unknown, completed without a body (its key
        remembered anew for as long as its first claim wanted), or forgotten. It is ended as it was seen, or not at
        all, so an owner or a rival who is quicker loses nothing. Never blocks a claim.

        StoreError where a record cannot be read; the next call goes on behind it.
        """


class Glances(Protocol):
    """What a Store may have besides; limits on new keys look by it where it is there, and by `read` elsewhere."""

    def glance(self, digest: bytes) -> Found:
        """The row as it stands, by one statement that waits for nobody. A transaction in flight is not seen."""


class TellsSettled(Protocol):
    """What a Store may have besides; whoever waits for another's key uses it where it is there (R11)."""

    def settled(self, digest: bytes, within_us: Micros) -> None:
        """Return when the record of `digest` may have changed, or the time is over. Sooner does no harm.

        Holds no connection that a request could want, and never raises for lack of a server: then it lets some of the
        time pass.
        """


class Outstanding(NamedTuple):
    """Records that wait for somebody. `after` goes into the next call; None: the look has come to the end."""

    records: tuple[Record, ...]
    now: Instant
    after: object


class Resumes(Protocol):
    """What a Store may have besides; operations of several steps need it (R24, R26)."""

    def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None:
        """Move the recovery point of a live claim from `seen` to `point`, and add `data` behind what is there (I10).

        What is sent is `data`, however much is there; at the first point nothing counts as being there. `data` is
        ASCII: a newline, and what has none. A record's `recovery_data` is the whole.

        LeaseLostError where the claim is no longer this owner's, or its point is not where it was seen. Transactions of
        such a store have it too: there the point moves with the transaction's commit, and not without it.
        """

    def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool:
        """Let a resumable operation whose outcome is unknown go on, from the recovery point `point`.

        `data` is the whole that belongs to it. The claim is stale from then on; from its creation on where it goes on
        at once (see core.turns). False where it is not unknown under this ownership (see Store.settle), or its point is
        not as it was seen.
        """

    def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding:
        """Look at about `look_at` records, on from `after`: unknown outcomes, and stale claims that can be resumed.

        A record that cannot be read is none of them.
        """


class AuditEntry(NamedTuple):
    """What somebody did about a record, and why. `at` and `outcome` are the store's to fill in."""

    id: bytes
    """16 random bytes."""
    at: Instant
    digest: bytes
    scope: str
    operation: str
    key_hint: str
    action: str
    who: str
    why: str
    outcome: str = ""
    """Asked, done, or refused. One that stays asked: whoever asked did not come to its end."""

    @classmethod
    def of(cls, record: Record, action: str, who: str, why: str, entry_id: bytes) -> AuditEntry:
        """About this record."""
        return cls(entry_id, 0, record.digest, record.scope, record.operation, record.key_hint, action, who, why)


class Audits(Protocol):
    """What a Store may have besides; whatever people do by hand is written down where it is there (R26)."""

    def audit(self, entry: AuditEntry) -> None:
        """Write down what is about to be done."""

    def audited(self, entry: AuditEntry, outcome: str) -> None:
        """Write down what came of it."""

    def audits(self, digest: bytes) -> list[AuditEntry]:
        """All that was written down about a record, oldest first, whether or not it is still there."""


class Hints(Protocol):
    """What a Store may have besides; relays of an outbox are woken by it where it is there (R28)."""

    def hint(self) -> None:
        """Tell relays in all processes that messages were committed. After that commit, and outside of any transaction.

        Never raises for lack of a server: relays look by themselves.
        """


class HearsHints(Protocol):
    """What an AsyncStore may have besides; a relay that listens needs it (R28)."""

    async def hear_hints(self, told: Callable[[], None]) -> None:
        """Call `told` with each hint, until it is cancelled, on a connection of its own.

        Returns where none can be heard; StoreError where the connection breaks.
        """


class AsyncSession(Protocol):
    """Session, for asyncio. The same promises."""

    async def claim(self, claim: Claim) -> Claimed | Existing: ...
    async def renew(self, own: Ownership, lease_us: Micros) -> None: ...
    async def start_answer(self, own: Ownership, head: StoredResponse) -> None: ...
    async def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None: ...
    async def release(self, own: Ownership) -> None: ...
    async def hold(self, own: Ownership) -> None: ...


class AsyncTransaction(AsyncSession, Protocol):
    """Transaction, for asyncio."""

    @property
    def connection(self) -> Any: ...

    async def begin(self) -> None: ...
    async def commit(self) -> None: ...

    async def __aenter__(self) -> AsyncTransaction: ...

    async def __aexit__(self, *exc: object) -> None: ...


class AsyncStore(AsyncSession, Protocol):
    """Store, for asyncio."""

    transactional: bool

    def transaction(self) -> AsyncTransaction: ...
    async def read(self, digest: bytes) -> Found: ...
    async def settle(
        self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros
    ) -> bool: ...
    async def now(self) -> Instant: ...
    async def purge(self, limit: int = 1000) -> int: ...
    async def check_schema(self) -> None: ...
    async def apply_schema(self) -> None: ...
    async def aclose(self) -> None: ...


class AsyncSettlesStale(Protocol):
    """SettlesStale, for asyncio."""

    async def settle_stale(self, look_at: int = 20_000) -> Swept: ...


class AsyncResumes(Protocol):
    """Resumes, for asyncio."""

    async def advance(self, own: Ownership, seen: str | None, point: str, data: bytes) -> None: ...
    async def reopen(self, own: Ownership, seen: str | None, point: str | None, data: bytes | None) -> bool: ...
    async def outstanding(self, after: object = None, look_at: int = 5_000) -> Outstanding: ...


class AsyncAudits(Protocol):
    """Audits, for asyncio."""

    async def audit(self, entry: AuditEntry) -> None: ...
    async def audited(self, entry: AuditEntry, outcome: str) -> None: ...
    async def audits(self, digest: bytes) -> list[AuditEntry]: ...


class AsyncGlances(Protocol):
    """Glances, for asyncio."""

    async def glance(self, digest: bytes) -> Found: ...


class AsyncTellsSettled(Protocol):
    """TellsSettled, for asyncio."""

    async def settled(self, digest: bytes, within_us: Micros) -> None: ...


class Cipher(Protocol):
    """Encrypts and decrypts; `context` is authenticated with it and not kept, so a text serves in its place only."""

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """With the current key; which one that was is in the result."""

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """SealKeyMissingError for a key it does not have, SealBrokenError where it was changed or is for elsewhere."""


__all__ = [
    "AsyncAudits",
    "AsyncGlances",
    "AsyncResumes",
    "AsyncSession",
    "AsyncSettlesStale",
    "AsyncStore",
    "AsyncTellsSettled",
    "AsyncTransaction",
    "AuditEntry",
    "Audits",
    "Cipher",
    "Glances",
    "Outstanding",
    "Record",
    "Resumes",
    "Session",
    "SettlesStale",
    "Store",
    "Swept",
    "TellsSettled",
    "Transaction",
]
