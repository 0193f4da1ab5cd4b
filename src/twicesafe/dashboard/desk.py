"""What people do about records and messages. Who does what, and why, is in the trail before it is done."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from twicesafe.core.journal import Entry, Journal
from twicesafe.core.record import Instant, Record, RecordState, StoredResponse
from twicesafe.core.settling import Reopen, Settle, may_end, open_call, reopen, steps_of, told
from twicesafe.core.settling import settle as settlement
from twicesafe.core.values import AnyValues
from twicesafe.errors import ConfigurationError, DefinitionChangedError, ValueNotKeptError
from twicesafe.observe import log_events
from twicesafe.outbox.operators import Messages, Waiting
from twicesafe.reconcile import Reconcilers
from twicesafe.stores.contract import AuditEntry, Outstanding

LONGEST_REASON: Final = 2_000
"""Characters."""

Finder = Callable[[Any], Any]


class RefusedError(ConfigurationError):
    """It was not done, and nothing was changed. Says why, for people."""


class Found(NamedTuple):
    """A record as it stands, and what may be done about it."""

    record: Record | None
    now: Instant
    trail: list[AuditEntry]
    seen: str
    """What a form sends back, so that nothing is done to another claim than the one that somebody looked at."""
    may_settle: bool = False
    may_release: bool = False
    may_resume: bool = False
    may_ask: bool = False
    call: Entry | None = None


class Desk:
    """Acts on a store, for people. `finders` know what became of operations, by operation."""

    def __init__(self, store: Any, finders: Mapping[str, Finder]) -> None:
        if hasattr(store, "aclose"):
            raise ConfigurationError("the dashboard takes a blocking store: open_store() of the same address opens one")
        if not hasattr(store, "outstanding") or not hasattr(store, "audits"):
            raise ConfigurationError(
                f"{type(store).__name__} cannot list records: the dashboard is for SQLite, PostgreSQL and MySQL"
            )
        self._store = store
        self._finders = dict(finders)
        self.messages = Messages(store) if store.transactional else None

    def find(self, digest: bytes) -> Found:
        """One record, and its trail."""
        record, now = self._store.read(digest)[:2]
        trail = self._store.audits(digest)
        if record is None or record.state is not RecordState.UNKNOWN:
            return Found(record, now, trail, "" if record is None else _seen(record))
        may_ask = record.operation in self._finders
        try:
            steps = steps_of(record)
        except DefinitionChangedError:
            return Found(record, now, trail, _seen(record))
        return Found(
            record,
            now,
            trail,
            _seen(record),
            may_settle=may_end(steps, done=True),
            may_release=may_end(steps, done=False),
            may_resume=steps is not None,
            may_ask=may_ask,
            call=open_call(steps),
        )

    def settle(self, digest: bytes, seen: str, who: str, why: str, response: StoredResponse) -> None:
        """It was done: every retry gets this answer."""
        record = self._unknown(digest, seen)
        if not may_end(steps_of(record), done=True):
            raise RefusedError("Its open call comes first: let it go on, and say what became of that.")
        self._carry_out(record, settlement(record, response), f"settle as done with {response.status}", who, why)

    def release(self, digest: bytes, seen: str, who: str, why: str) -> None:
        """It was not done: the key is free."""
        record = self._unknown(digest, seen)
        if not may_end(steps_of(record), done=False):
            raise RefusedError("It has taken steps already, and would take them again: let it go on instead.")
        self._carry_out(record, settlement(record, None), "release as not done", who, why)

    def resume(self, digest: bytes, seen: str, who: str, why: str, result: str | None, *, done: bool | None) -> None:
        """Let an operation of several steps go on. `done` None: nothing is said of its open call."""
        record = self._unknown(digest, seen)
        journal: Journal | None = steps_of(record)
        if journal is None:
            raise RefusedError(f"{record.operation} has no steps: settle or release it.")
        action = "resume"
        if done is not None:
            call = open_call(journal)
            if call is None:
                raise RefusedError("It has no open call of which there is anything to say.")
            journal = told(journal, _json(result or "null") if done else None)
            action = f"resume, {call.name} was {'' if done else 'not '}done"
        self._carry_out(record, reopen(record, journal), action, who, why)

    def ask(self, digest: bytes, seen: str, who: str, why: str) -> str:
        """Ask the operation's reconciler. What came of it: done, not done, unclear, failed, no answer in time."""
        record = self._unknown(digest, seen)
        finder = self._finders.get(record.operation)
        if finder is None:
            raise RefusedError(f"{record.operation} has no reconciler here.")
        entry = self._asked(record, "ask the reconciler", who, why)
        only: Any = _Only(self._store, record)
        reconcilers = Reconcilers(only, observer=log_events)
        late = False

        def found(unknown: Any) -> Any:
            nonlocal late
            try:
                return finder(unknown)
            except TimeoutError:
                late = True
                raise

        reconcilers.of(record.operation)(found)
        came = reconcilers.run_once()
        outcome = next((word for word in ("done", "not_done", "unclear", "failed") if getattr(came, word)), "refused")
        outcome = "no answer in time" if late else outcome.replace("_", " ")
        self._store.audited(entry, outcome)
        return outcome

    def retry_message(self, message_id: str, who: str, why: str) -> None:
        """Let a message be tried at once."""
        self._message(self._outbox().retry(message_id, who=who, why=reason(why)))

    def discard_message(self, message_id: str, who: str, why: str) -> None:
        """Give a message up."""
        self._message(self._outbox().discard(message_id, who=who, why=reason(why)))

    def waiting(self) -> Waiting | None:
        """How many messages wait; None where there is no outbox."""
        return None if self.messages is None else self.messages.waiting()

    def _outbox(self) -> Messages:
        if self.messages is None:
            raise RefusedError("This store has no outbox.")
        return self.messages

    def _message(self, changed: bool) -> None:  # noqa: FBT001 - the answer of the one before
        if not changed:
            raise RefusedError("It does not wait any more, nor is it set aside: nothing was changed.")

    def _unknown(self, digest: bytes, seen: str) -> Record:
        record: Record | None = self._store.read(digest).record
        if record is None or record.state is not RecordState.UNKNOWN:
            raise RefusedError("Its outcome is not unknown any more: somebody was quicker, and nothing was changed.")
        if not hmac.compare_digest(seen.encode(), _seen(record).encode()):
            raise RefusedError("It was claimed anew since you looked at it: look again. Nothing was changed.")
        return record

    def _carry_out(self, record: Record, decision: Settle | Reopen, action: str, who: str, why: str) -> None:
        entry = self._asked(record, action, who, why)
        made = self._store.settle(*decision) if isinstance(decision, Settle) else self._store.reopen(*decision)
        self._store.audited(entry, "done" if made else "refused")
        if not made:
            raise RefusedError("Somebody else was quicker: nothing was changed.")

    def _asked(self, record: Record, action: str, who: str, why: str) -> AuditEntry:
        entry = AuditEntry.of(record, action, who, reason(why), os.urandom(16))
        self._store.audit(entry)
        return entry


class _Only:
    """A store in which one record is outstanding."""

    def __init__(self, store: Any, record: Record) -> None:
        self._record = record
        self._store = store
        self.settle = store.settle
        self.reopen = getattr(store, "reopen", None)

    def outstanding(self, after: object = None, look_at: int = 0) -> Outstanding:  # noqa: ARG002 - there is one
        """This one."""
        return Outstanding((self._record,), self._store.now(), None)


def reason(why: str) -> str:
    """A reason that may stand in the trail. RefusedError for none."""
    told = " ".join(why.replace("\0", "").split())
    if not told:
        raise RefusedError("Say why: whoever reads the trail wants to know.")
    if len(told) > LONGEST_REASON:
        raise RefusedError(f"A reason has {LONGEST_REASON} characters at most.")
    return told.encode("utf-8", "backslashreplace").decode()


def _seen(record: Record) -> str:
    """Tells one claim from another, and nothing of its owner token."""
    return hashlib.sha256(b"seen\0%d\0%b" % (record.epoch, record.owner)).hexdigest()[:32]


def _json(text: str) -> str:
    try:
        kept = json.dumps(json.loads(text), separators=(",", ":"))
        AnyValues().check(kept.encode("ascii"))
    except (ValueError, RecursionError, ValueNotKeptError):
        raise RefusedError('The call\'s result must be JSON, such as "ch_1" in quotes.') from None
    return kept
