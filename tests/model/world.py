"""Where attempts of one key, or two, meet: a database, another system, clients, a clock, and all that can go wrong.

A choice is a word:

    1     attempt 1 does what it wants, and is told what came of it
    1?    the same; its answer is lost on the way
    1~    it never arrives, and is told the same as with a lost answer: nobody knows
    1!    it never arrives, provably
    1>    its answer is lost, and it is under way still: it arrives later, or not at all
    1a    the same as 1, where the surroundings have a choice of their own; the letter says which
    x1    attempt 1 dies
    +     the clock jumps to the next instant at which something ends
    >     what is under way arrives
    <     it never does

A statement is taken to happen at one moment, as each does: SQLite has one writer at a time, and elsewhere a row has.
A transaction's statements are seen by itself alone until its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tests.model.answering import LOST, NEVER, NO_ANSWER, NOT_SENT, REFUSED, TOO_LATE, UNDONE
from tests.model.database import EFFECTS, RECORDS, Database, Number
from tests.model.judge import Judge, is_answer
from tests.model.judging import must, remembered
from tests.model.state import Actor, Bounds, Charged, State, with_actor
from tests.model.wishes import Charge, Choose, Elapsed, Inquire, LookUp, Noticed, Reply, Undisturbed, Won
from twicesafe.core.record import Instant, Micros, RecordState
from twicesafe.stores.sql.rows import to_record
from twicesafe.stores.steps import Batch, Statement
from twicesafe.testing.clock import START


class World:
    """A model for `explore`: attempts on one database."""

    def __init__(
        self,
        attempts: Sequence[Actor],
        bounds: Bounds,
        *,
        retry: Actor,
        late_lock: bool = False,
        remembers_us: Micros = NEVER,
    ) -> None:
        """`retry` comes when all is over, and nothing goes wrong any more.

        `late_lock`: a transaction excludes others from its first write on, not from its beginning. `remembers_us`: for
        how long the other system knows a key again.
        """
        self._database = Database()
        self._judge = Judge(self._database)
        self._late_lock = late_lock
        self._remembers_us = remembers_us
        self._starts = tuple(attempts)
        self._bounds = bounds
        self._retry = retry
        self._ends: set[State] = set()

    @cached_property
    def start(self) -> State:
        """Nobody has begun."""
        return State(START, self._database.start, self._starts, self._bounds)

    # --- what can happen ----------------------------------------------------------------------------------------------

    def choices(self, state: State) -> Sequence[str]:
        """See Model.choices."""
        found: list[str] = []
        for number, actor in enumerate(state.actors):
            if actor.at_work and self._may_go_on(state, number):
                found += self._choices_of(state, number, actor)
        if state.under_way is not None:
            if state.writer is None:
                found.append(">")
            found.append("<")
        if found and state.bounds.jumps and self._next_end(state) is not None:
            found.append("+")
        return found

    def _may_go_on(self, state: State, number: int) -> bool:
        if state.bounds.switches == 0 and state.last not in (None, number):
            last = state.actors[state.last]
            return not last.at_work or self._blocked(state, state.last, last)
        return True

    def _choices_of(self, state: State, number: int, actor: Actor) -> list[str]:
        assert actor.place is not None
        name, wants = str(number + 1), actor.place.wants
        found: list[str] = []
        if not self._blocked(state, number, actor):
            found += [name + letter for letter in wants.letters] if type(wants) is Choose else [name]
        if state.bounds.faults and found and getattr(wants, "name", "") != "rollback":
            if type(wants) is Charge:
                found += [f"{name}?", f"{name}!"]
            elif type(wants) in (Statement, Batch, Undisturbed, LookUp):
                found.append(f"{name}!")
                if type(wants) is Statement and wants.writes and actor.written is None:
                    found += [f"{name}?", f"{name}~"]
                    if state.under_way is None:
                        found.append(f"{name}>")
                elif type(wants) is Statement and wants.name == "commit":
                    found += [f"{name}?", f"{name}~"]
        if state.bounds.crashes and not self._at_start(number, actor):
            found.append(f"x{name}")
        return found

    def _at_start(self, number: int, actor: Actor) -> bool:
        return number < len(self._starts) and actor.place is self._starts[number].place

    def _blocked(self, state: State, number: int, actor: Actor) -> bool:
        assert actor.place is not None
        wants = actor.place.wants
        if state.writer is None or state.writer == number:
            return False
        if type(wants) is Undisturbed:
            return True
        if type(wants) is Batch:
            return not self._late_lock
        if type(wants) is not Statement or not wants.writes:
            return type(wants) is Statement and wants.name == "begin" and not self._late_lock
        return actor.written is None or RECORDS in wants.text

    def _next_end(self, state: State) -> Instant | None:
        ends = [
            instant
            for row in self._database.rows(state.base, RECORDS)
            if (record := to_record(row)) is not None
            for instant in (record.lease_until, record.key_until, record.body_until)
        ]
        ends += [charged.at + self._remembers_us for charged in state.charges]
        ends = [instant for instant in ends if state.now < instant < NEVER]
        return min(ends, default=None)

    # --- what comes of it ---------------------------------------------------------------------------------------------

    def after(self, state: State, choice: str) -> State:
        """See Model.after."""
        bounds = state.bounds
        if choice == "+":
            end = self._next_end(state)
            assert end is not None
            return state._replace(now=end, bounds=bounds._replace(jumps=bounds.jumps - 1))
        if choice in (">", "<"):
            assert state.under_way is not None
            number, statement = state.under_way
            state = state._replace(under_way=None)
            return self._written(state, number, statement)[0] if choice == ">" else state
        if choice[0] == "x":
            return self._died(state, int(choice[1:]) - 1)
        number = int(choice[0]) - 1
        if bounds.switches and state.last not in (None, number):
            left = state.actors[state.last]
            if left.at_work and not self._blocked(state, state.last, left):
                bounds = bounds._replace(switches=bounds.switches - 1)
        how = choice[1:]
        if how in ("?", "~", "!", ">"):
            bounds = bounds._replace(faults=bounds.faults - 1)
        return self._done(state._replace(bounds=bounds, last=number), number, how)

    def _died(self, state: State, number: int) -> State:
        state = self._dropped(state, number)
        actor = state.actors[number]._replace(place=None, until=None)
        crashes = state.bounds.crashes - 1
        return with_actor(state, number, actor)._replace(bounds=state.bounds._replace(crashes=crashes))

    def _done(self, state: State, number: int, how: str) -> State:
        actor = state.actors[number]
        assert actor.place is not None
        wants = actor.place.wants
        if type(wants) is Undisturbed:
            wants = wants.step
        answer: Any = None
        match wants:
            case Choose():
                answer = how
            case Charge():
                state, answer = self._charged(state, number, wants, how)
            case Inquire(digest):
                answer = self._known_of(state, digest)
            case LookUp(key):
                answer = NO_ANSWER if how == "!" else self._charge_of(state, key)
            case Reply():
                self._judge.check_reply(state, number, wants)
                if is_answer(wants) and actor.intent == state.intent:
                    answers = state.answers | {(actor.digest, wants.status, wants.body)}
                    state = state._replace(answers=answers)
            case Batch(statements):
                if how == "!":
                    state, answer = self._dropped(state, number), REFUSED
                else:
                    for statement in statements:
                        state, answer = self._statement(state, number, statement)
            case Statement():
                state, answer = self._sent(state, number, wants, how)
        return self._told(state, number, answer)

    def _told(self, state: State, number: int, answer: Any) -> State:
        """The attempt goes on to where it wants something again."""
        actor = state.actors[number]
        assert actor.place is not None
        wants, place = actor.place.wants, actor.place.after(answer)
        heard = [*place.told]
        while type(place.wants) is Elapsed:
            place = place.after(state.now if state.now > place.wants.past else None)
            heard += place.told
        actor = actor._replace(place=place)
        if actor.until is None and getattr(wants, "name", "") != "rollback":
            # What it says of the key it has just seen.
            actor = actor._replace(intent=state.intent)
        for told in heard:
            if type(told) is Noticed:
                actor = actor._replace(noticed=actor.noticed | {told.name})
            elif type(told) is Won:
                actor = actor._replace(until=told.until or NEVER, intent=state.intent)
                self._judge.check_won(state, number, told)
        if place.ended:
            actor = actor._replace(until=None)
        return with_actor(state, number, actor)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _sent(self, state: State, number: int, statement: Statement, how: str) -> tuple[State, Any]:
        """One statement, and what goes wrong with it."""
        actor = state.actors[number]
        if how == "!":
            return self._dropped(state, number), REFUSED
        if how == "~":
            return self._dropped(state, number), LOST
        if how == ">":
            return state._replace(under_way=(number, statement)), LOST
        if statement.name in ("record", "effect") and actor.written is None:
            return state, UNDONE
        state, answer = self._statement(state, number, statement)
        return state, LOST if how == "?" else answer

    def _statement(self, state: State, number: int, statement: Statement) -> tuple[State, Any]:
        actor = state.actors[number]
        if statement.name == "begin":
            state = with_actor(state, number, actor._replace(written=()))
            return (state if self._late_lock else state._replace(writer=number)), ()
        if statement.name == "rollback":
            return self._dropped(state, number), ()
        if statement.name == "commit":
            if actor.written is None:
                return state, UNDONE
            view = self._view(state, actor)
            state = self._dropped(state, number)
            self._judge.check_rows(state, number, view)
            return self._based(state, number, view), ()
        if actor.written is None:
            return self._written(state, number, statement)
        view = self._view(state, actor)
        done = self._database.perform(view, state.now, statement)
        if done.state != view:
            actor = actor._replace(written=(*actor.written, (state.now, statement)))
            state = with_actor(state, number, actor)
            if RECORDS in statement.text:
                state = state._replace(writer=number)
        return state, done.rows

    def _written(self, state: State, number: int, statement: Statement) -> tuple[State, Any]:
        """A statement that commits by itself."""
        done = self._database.perform(state.base, state.now, statement)
        self._judge.check_rows(state, number, done.state)
        return self._based(state, number, done.state), done.rows

    def _view(self, state: State, actor: Actor) -> Number:
        """What a transaction sees."""
        view = state.base
        for now, statement in actor.written or ():
            view = self._database.perform(view, now, statement).state
        return view

    def _dropped(self, state: State, number: int) -> State:
        """A connection is gone, and its open transaction with it."""
        state = with_actor(state, number, state.actors[number]._replace(written=None))
        return state._replace(writer=None) if state.writer == number else state

    def _based(self, state: State, number: int, base: Number) -> State:
        """The rows are others. Whether the key was forgotten meanwhile, so that a new intent begins."""
        actor, judge = state.actors[number], self._judge
        before, after = judge.record(state, actor.digest), judge.record(state, actor.digest, base)
        committed = len(self._database.rows(state.base, EFFECTS))
        state = state._replace(base=base)
        if before is not None and not remembered(before, state.now) and (after is None or after.epoch != before.epoch):
            state = state._replace(intent=state.intent + 1, rows_since=committed, answers=frozenset())
            actor = actor._replace(intent=state.intent)
        if actor.until is not None:
            mine = after is not None and after.owner == actor.token and after.state is RecordState.CLAIMED
            # It renewed its claim, or gave it up, or tried to and had lost it.
            actor = actor._replace(until=after.lease_until if after is not None and mine else 0)
        judge.check_once(state, actor.digest)
        judge.check_steps(state, actor.digest)
        return with_actor(state, number, actor)

    # --- the other system ---------------------------------------------------------------------------------------------

    def _charged(self, state: State, number: int, charge: Charge, how: str) -> tuple[State, Any]:
        actor = state.actors[number]
        if how == "!":
            return state, NOT_SENT
        if charge.until is not None and charge.until <= state.now:
            return state, TOO_LATE
        must("I2", actor.until is not None, "something was done before the claim was won")
        key = charge.key or f"{number} {len(state.charges)}"
        known = self._charge_of(state, key)
        if known is None or state.charges[known - 1].at + self._remembers_us <= state.now:
            charged = Charged(key, charge.what, actor.digest, actor.intent, state.now)
            state = state._replace(charges=(*state.charges, charged))
            keys = {other.key for other in state.charges if other[1:4] == charged[1:4]}
            must("I8", len(keys) == 1 or charge.key is None, "one call went out under two keys")
            known = len(state.charges)
        self._judge.check_once(state, actor.digest)
        return state, NO_ANSWER if how == "?" else known

    def _known_of(self, state: State, digest: bytes) -> int | None:
        """What was done for an intent. As long as somebody is at it who may still do it, nobody can tell."""
        numbers = [
            number
            for number, charged in enumerate(state.charges, 1)
            if charged.digest == digest and charged.intent == state.intent
        ]
        at_it = any(actor.at_work and actor.until is not None for actor in state.actors)
        return numbers[-1] if numbers else None if at_it else 0

    def _charge_of(self, state: State, key: str) -> int | None:
        """The number of what was done last under a key."""
        return max((number for number, charged in enumerate(state.charges, 1) if charged.key == key), default=None)

    # --- the end ------------------------------------------------------------------------------------------------------

    def check_end(self, state: State) -> None:
        """See Model.check_end: then every lease ends, and the client asks once more."""
        must("I1", state.writer is None and not any(actor.at_work for actor in state.actors), "attempts are stuck")
        known = state._replace(actors=(), bounds=Bounds(), last=None)
        if known in self._ends:
            return
        digest = self._retry.digest
        record = self._judge.record(state, digest)
        if record is not None and record.state is RecordState.CLAIMED:
            state = state._replace(now=max(state.now, record.lease_until))
        number = len(state.actors)
        state = state._replace(actors=(*state.actors, self._retry), bounds=Bounds(0, 0, 0))
        reply: Reply | None = None
        while state.actors[number].at_work:
            place = state.actors[number].place
            assert place is not None
            wants = place.wants
            reply = wants if type(wants) is Reply else reply
            state = self._done(state, number, wants.letters[0] if type(wants) is Choose else "")
        assert reply is not None
        must("I1", reply.kind not in ("in-progress", "store-unavailable"), f"the key stays {reply.kind} for ever")
        record = self._judge.record(state, digest)
        settled = reply.kind == "key-reused" or (record is not None and record.state is not RecordState.CLAIMED)
        must("I6", settled or not self._judge.done(state, digest), "something was done, and nothing is remembered")
        self._ends.add(known)
