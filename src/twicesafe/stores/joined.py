"""The transactional way in a transaction of the application's own: a session's, an ORM's, whatever the database.

Theory of operation. The generators of stores/sql say what is to be sent; a `Work` sends it, and begins and ends the
transaction the way its library does, so that hooks, identity maps and savepoints are what they are without twicesafe.
Whatever is asked for outside of the transaction, and the whole leased way, goes to another store on the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Instant, Micros, Ownership, StoredResponse
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.contract import Swept, Transaction
from twicesafe.stores.sql.leased import ROUNDS
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.sql.transactional import ENDED_EARLY, SqlTransactionSteps
from twicesafe.stores.steps import Batch, Rows, Statement, Step, Steps, drive

R = TypeVar("R")


class AskedAgainError(StoreUnavailableError):
    """The database has rolled back for a conflict's sake, and asks for the whole transaction to be begun again."""


class Work(Protocol):
    """One transaction after another, each begun and ended the way of its library. Failures are StoreErrors."""

    @property
    def shown(self) -> Any:
        """What the handler gets, while the transaction is open."""

    @property
    def open(self) -> bool:
        """Whether it was begun here and not ended here."""

    def begin(self) -> None:
        """Begin, with a connection of the application's pool."""

    def send(self, *statements: Statement) -> Rows:
        """Perform them in it, one after the other; the last one's answer."""

    def ended_early(self) -> bool:
        """Whether somebody else has ended it, as far as can be told without asking the database."""

    def flush(self) -> None:
        """Write what the handler's objects hold back. CommitRefusedError where a constraint says no."""

    def commit(self) -> None:
        """Commit, and let go of everything."""

    def roll_back(self) -> None:
        """Roll back if it is open, and let go of everything. Safe to call twice; never fails."""


class Turn:
    """One writer of a SQLite file at a time, and the next one woken at once; SQLite would let the lucky one in."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._lock = Lock()

    def take(self) -> None:
        """Wait for it, holding no connection."""
        if not self._lock.acquire(timeout=self._timeout):
            raise no_turn(self._timeout)

    def end(self) -> None:
        """Let the next one begin."""
        self._lock.release()


def no_turn(timeout: float) -> StoreUnavailableError:
    """Somebody else had it for too long."""
    return StoreUnavailableError(
        f"another transaction of this process kept the database for {timeout:g} s: nothing was changed"
    )


class JoinedTransaction:
    """One transaction; a context manager, for one thread at a time."""

    def __init__(
        self,
        sql: Queries,
        work: Work,
        ask: Callable[[Statement], Rows],
        tell: Callable[[Statement, Rows], None] | None = None,
    ) -> None:
        """`ask` performs a statement outside; `tell` is shown, after the commit, what the last one that wrote said."""
        self._steps = SqlTransactionSteps(sql)
        self._work = work
        self._ask = ask
        self._tell = tell
        self._written: tuple[Statement, Rows] | None = None

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *exc: object) -> None:
        self._steps.left()
        self._work.roll_back()

    @property
    def connection(self) -> Any:
        """See Transaction.connection."""
        if not self._steps.open or not self._work.open:
            raise LookupError("a transaction has a connection from its claim or begin() to its end")
        return self._work.shown

    def begin(self) -> None:
        """See Transaction.begin."""
        self._run(self._steps.begin())

    def commit(self) -> None:
        """See Transaction.commit."""
        self._settle(keep_effects=True)
        self._run(self._steps.commit())

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim. What the database asks to be begun again is, where nothing but the claim was done."""
        rounds = 1 if self._steps.open else ROUNDS
        while True:
            rounds -= 1
            try:
                return self._run(self._steps.claim(claim))
            except AskedAgainError:
                if not rounds:
                    raise

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """There is no lease: what keeps rivals out lasts as long as the transaction."""

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self._settle(keep_effects=True)
        self._run(self._steps.start_answer(own, head))

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. RuntimeError where the handler has ended the transaction itself."""
        self._settle(keep_effects=keep_effects)
        self._run(self._steps.complete(own, response, key_us, body_us, keep_effects=keep_effects))

    def release(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.release."""
        self._run(self._steps.roll_back())

    def hold(self, own: Ownership) -> None:  # noqa: ARG002 - the transaction is its own proof
        """See Session.hold."""
        self._run(self._steps.roll_back())

    def _settle(self, *, keep_effects: bool) -> None:
        """Before the end: the handler's work is all there, and in this transaction."""
        if not self._steps.open:
            return
        try:
            if self._work.ended_early():
                raise RuntimeError(ENDED_EARLY)
            if keep_effects:
                self._work.flush()
        except BaseException:
            self.__exit__()
            raise

    def _run(self, steps: Steps[R]) -> R:
        try:
            return drive(steps, self._perform)
        except BaseException:
            if not self._steps.open:
                self._work.roll_back()
            raise

    def _perform(self, step: Step) -> Rows:
        if isinstance(step, Batch):
            first, *others = step.statements
            if first.name != "begin":
                others = [first, *others]
            else:
                self._work.begin()
            return self._work.send(*others)
        match step.name:
            case "begin":
                self._work.begin()
            case "commit":
                written, self._written = self._written, None
                self._work.commit()
                if written is not None and self._tell is not None:
                    self._tell(*written)
            case "rollback":
                self._work.roll_back()
            case _ if not self._work.open:
                return self._ask(step)
            case _:
                rows = self._work.send(step)
                if step.writes:
                    self._written = step, rows
                return rows
        return ()


class JoinedStore:
    """A Store whose transactions are the application's, and whose other dealings are those of `leased`."""

    transactional = True

    def __init__(self, leased: Callable[[], Any], transaction: Callable[[], Transaction]) -> None:
        self._leased: Final = leased
        self._transaction: Final = transaction

    @property
    def leased(self) -> Any:
        """The store of the leased way."""
        return self._leased()

    def transaction(self) -> Transaction:
        """See Store.transaction."""
        return self._transaction()

    def claim(self, claim: Claim) -> Claimed | Existing:
        """See Session.claim."""
        claimed: Claimed | Existing = self.leased.claim(claim)
        return claimed

    def renew(self, own: Ownership, lease_us: Micros) -> None:
        """See Session.renew."""
        self.leased.renew(own, lease_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> None:
        """See Session.start_answer."""
        self.leased.start_answer(own, head)

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool = True
    ) -> None:
        """See Session.complete. `keep_effects` means nothing here."""
        self.leased.complete(own, response, key_us, body_us, keep_effects=keep_effects)

    def release(self, own: Ownership) -> None:
        """See Session.release."""
        self.leased.release(own)

    def hold(self, own: Ownership) -> None:
        """See Session.hold."""
        self.leased.hold(own)

    def read(self, digest: bytes) -> Found:
        """See Store.read."""
        found: Found = self.leased.read(digest)
        return found

    def glance(self, digest: bytes) -> Found:
        """See Glances.glance."""
        found: Found = self.leased.glance(digest)
        return found

    def settle(self, own: Ownership, response: StoredResponse | None, key_us: Micros, body_us: Micros) -> bool:
        """See Store.settle."""
        settled: bool = self.leased.settle(own, response, key_us, body_us)
        return settled

    def now(self) -> Instant:
        """See Store.now."""
        now: Instant = self.leased.now()
        return now

    def purge(self, limit: int = 1000) -> int:
        """See Store.purge."""
        purged: int = self.leased.purge(limit)
        return purged

    def settle_stale(self, look_at: int = 20_000) -> Swept:
        """See SettlesStale.settle_stale."""
        swept: Swept = self.leased.settle_stale(look_at)
        return swept

    def check_schema(self) -> None:
        """See Store.check_schema."""
        self.leased.check_schema()

    def apply_schema(self) -> None:
        """See Store.apply_schema."""
        self.leased.apply_schema()

    def close(self) -> None:
        """See Store.close. What the application made stays open."""
        self.leased.close()
