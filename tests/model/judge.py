"""Looks at each step of a schedule, and at its end, for what must never be so."""

from __future__ import annotations

from tests.model.answering import ANSWERS, NEVER, TOLD
from tests.model.database import EFFECTS, RECORDS, Database, Number
from tests.model.judging import check_change, must, remembered
from tests.model.state import State
from tests.model.wishes import Reply, Won
from twicesafe.core.journal import DONE, PHASE, Journal
from twicesafe.core.record import Effects, Record, RecordState
from twicesafe.errors import DefinitionChangedError
from twicesafe.stores.sql.rows import to_record
from twicesafe.testing.exploring import BrokenError


class Judge:
    """Knows the rows of all states."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, state: State, digest: bytes, base: Number | None = None) -> Record | None:
        """The row of a key."""
        for row in self._database.rows(state.base if base is None else base, RECORDS):
            if row[0] == digest:
                return to_record(row)
        return None

    def done(self, state: State, digest: bytes) -> list[str]:
        """What was done for the intent that a key stands for: one word for each effect."""
        rows = self._database.rows(state.base, EFFECTS)[state.rows_since :]
        charges = [
            charged.what for charged in state.charges if charged.digest == digest and charged.intent == state.intent
        ]
        return [*charges, *(row[1] for row in rows)]

    def check_once(self, state: State, digest: bytes) -> None:
        """The promise: each effect once."""
        done = self.done(state, digest)
        must("I1", len(set(done)) == len(done), f"done twice for one intent: {', '.join(done)}")

    def check_rows(self, state: State, number: int, after: Number) -> None:
        """What a statement, or a commit, of this attempt makes of the rows."""
        if state.base == after:
            return
        actor = state.actors[number]
        old = {row[0]: to_record(row) for row in self._database.rows(state.base, RECORDS)}
        new = {row[0]: to_record(row) for row in self._database.rows(after, RECORDS)}
        for digest in old.keys() | new.keys():
            was, record = old.get(digest), new.get(digest)
            must("I7", was == record or digest == actor.digest, "another scope's record was changed")
            check_change(actor.token, was, record, state.now)
            if record is None and was is not None and was.state is not RecordState.COMPLETED:
                must("I6", not self.done(state, digest), "a claim was forgotten under which something was done")

    def check_steps(self, state: State, digest: bytes) -> None:
        """Phases are committed with their entries, and entries with their phases."""
        record = self.record(state, digest)
        if record is None or record.effects is not Effects.RESUMABLE:
            return
        try:
            journal = Journal.read(record.recovery_data, record.recovery_point)
        except DefinitionChangedError as error:
            raise BrokenError("I10", str(error)) from error
        written = [entry.name for entry in journal.entries if entry.kind == PHASE and entry.standing == DONE]
        rows = [row[1] for row in self._database.rows(state.base, EFFECTS)[state.rows_since :]]
        must("I10", written == rows, f"the record says that {written} are committed, and {rows} are")

    def check_won(self, state: State, number: int, won: Won) -> None:
        """An attempt takes itself for the owner."""
        if won.until is None:
            # Its transaction is what excludes others; that it does is seen by its commit.
            return
        record = self.record(state, won.own.digest)
        must("I1", record is not None and record.ownership == won.own, "a claim was won that does not stand in the row")
        live = [
            other
            for place, other in enumerate(state.actors)
            if place != number and other.at_work and other.until is not None and NEVER > other.until > state.now
            if other.digest == won.own.digest
        ]
        must("I1", not live, "two attempts have a live claim at once")

    def check_reply(self, state: State, number: int, reply: Reply) -> None:
        """The first byte of an answer leaves."""
        actor = state.actors[number]
        record = self.record(state, actor.digest)
        body = reply.body or b""
        if reply.kind in ANSWERS and body.startswith(b"charge"):
            mine = actor.request.encode()
            must("I4", body.lower().endswith(mine.lower()), "an answer to another request was given")
            must("I7", body.endswith(mine), "another caller's answer was given")
        if actor.intent != state.intent:
            # It answers for an intent that is forgotten by now.
            return
        told = not actor.noticed.isdisjoint(TOLD)
        if reply.kind == "forward" and reply.status < 500 and not told:
            kept = None if record is None else record.response
            recorded = kept is not None and kept.status == reply.status
            must("I11", recorded or not remembered(record, state.now), "an answer left that is not recorded")
            same = kept is None or kept.body in (None, body) or reply.body is None
            must("I5", same, "an answer left that is not the recorded one")
        if is_answer(reply):
            others = {answer for answer in state.answers if answer[0] == actor.digest} - {
                (actor.digest, reply.status, reply.body)
            }
            must("I5", not others, f"two answers to one intent: {reply.body!r} and {sorted(map(repr, others))}")
        if b'"safe_new_key":true' in body.replace(b" ", b""):
            must("I6", not self.done(state, actor.digest), "a new key was called safe though something was done")
        if record is not None and record.state is RecordState.UNKNOWN:
            must("I6", reply.kind != "handler-failed", "an unknown outcome was reported as failed")


def is_answer(reply: Reply) -> bool:
    """Whether it is what the handler answered, whole, and not a failure."""
    return reply.kind in ANSWERS and reply.status < 500 and reply.body is not None
