"""Where relays meet: an outbox, their shards, a receiver with an inbox, and handlers that add messages meanwhile.

The words are those of world.py. A message that is on its way is `1` where it arrives and that is acknowledged, `1?`
where its acknowledgement is lost, and `1!` where it never arrives.
"""

from __future__ import annotations

from typing import Any, Final

from tests.model.answering import NEVER, NO_ANSWER
from tests.model.attempts import effect, token
from tests.model.database import EFFECTS, OUTBOX, SHARDS, Database, Number
from tests.model.judging import must
from tests.model.relaying import MESSAGES, Publish, relaying, writing, written
from tests.model.state import Actor, Bounds, Charged, State
from tests.model.world import World
from twicesafe.core.delivery import aggregate_digest, shard_of
from twicesafe.core.message import Message
from twicesafe.core.record import Instant
from twicesafe.stores.sql.messages import handle
from twicesafe.stores.steps import Statement, drive
from twicesafe.testing.clock import START
from twicesafe.testing.exploring import Place

PARTS: Final = 2
"""Shards that are used."""
LAST: Final = 9
"""The relay that comes when all is over."""


def _aggregate(shard: int) -> str:
    names = (f"order-{number}" for number in range(10_000))
    return next(name for name in names if shard_of(aggregate_digest("order", name)) == shard)


AGGREGATES: Final = [_aggregate(shard) for shard in range(PARTS)]


def _message(name: str, aggregate: int) -> Message:
    return Message(name, "/orders", "order.placed", "order", AGGREGATES[aggregate], b"{}")


class RelayJudge:
    """What must never be so of messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def messages(self, base: Number) -> dict[str, dict[str, Any]]:
        """The outbox's rows by their ids."""
        return self._database.named(base, OUTBOX, "id")

    def shards(self, base: Number) -> dict[int, dict[str, Any]]:
        """The shards' rows."""
        rows = self._database.named(base, SHARDS, "shard")
        return {shard: row for shard, row in rows.items() if shard < PARTS}

    def check_rows(self, state: State, number: int, after: Number) -> None:
        """What a commit makes of the messages."""
        who = state.actors[number].token
        before, shards = self.messages(state.base), self.shards(after)
        for name, row in self.messages(after).items():
            was = before.get(name)
            if was is None or was == row:
                continue
            must("I3", shards[row["shard"]]["owner"] == who, f"{name} was marked by a relay that has lost its shard")
            if row["state"] == "delivered":
                acknowledged = any(one.key == name and one.digest == who for one in state.charges)
                must("I9", acknowledged, f"{name} was marked before its receiver acknowledged it")
        for shard, row in shards.items():
            was = self.shards(state.base)[shard]
            if was["owner"] not in (row["owner"], who):
                must("I12", was["lease_until"] <= state.now, "a shard was taken before its lease ended")
            must("I3", row["epoch"] >= was["epoch"], "the epoch of a shard fell")

    def check_arrival(self, state: State, message: Message) -> None:
        """A message comes to its receiver, for the first time or again."""
        messages = self.messages(state.base)
        must("I9", message.id in messages, f"{message.id} arrived, and was not committed")
        came = {one.key for one in state.charges}
        mine = messages[message.id]
        missing = [
            name
            for name, row in messages.items()
            if row["aggregate"] == mine["aggregate"] and row["seq"] < mine["seq"] and name not in came
        ]
        must("I9", not missing, f"{message.id} arrived before {', '.join(missing)}")

    def check_effects(self, base: Number) -> None:
        """The receiver's effects."""
        effects = [row[1] for row in self._database.rows(base, EFFECTS)]
        must("I9", len(set(effects)) == len(effects), f"handled twice: {', '.join(effects)}")


class RelayWorld(World):
    """A model for `explore`: relays on one outbox."""

    def __init__(self, bounds: Bounds, *, writer: bool = False) -> None:
        """`writer`: a message is added meanwhile."""
        self._database = Database(shards=PARTS)
        self._relays = RelayJudge(self._database)
        self._judge: Any = self._relays
        self._late_lock = False
        self._starts = tuple(self._relay(number, rounds=1) for number in (1, 2))
        if writer:
            place = Place(lambda: writing(_message("late", 0)))
            self._starts += (Actor(token(3), "", b"", place),)
        self._bounds = bounds
        self._last = self._relay(LAST, rounds=2)
        self._ends: set[State] = set()
        self._base = self._database.start
        for name, aggregate in (("first", 0), ("second", 0), ("other", 1)):
            statement = written(_message(name, aggregate))
            self._base = self._database.perform(self._base, START, statement).state

    def _relay(self, number: int, *, rounds: int) -> Actor:
        owner = token(number)
        return Actor(owner, "", b"", Place(lambda: relaying(owner, rounds)))

    @property
    def start(self) -> State:
        return State(START, self._base, self._starts, self._bounds)

    def _choices_of(self, state: State, number: int, actor: Actor) -> list[str]:
        assert actor.place is not None
        wants, name = actor.place.wants, str(number + 1)
        if type(wants) is Publish:
            found = [name]
            found += [f"{name}?", f"{name}!"] if state.bounds.faults else []
            return found + ([f"x{name}"] if state.bounds.crashes else [])
        found = super()._choices_of(state, number, actor)
        if type(wants) is Statement and actor.written is not None and wants.name != "commit":
            # It has the write lock: nobody can tell at which of its statements it stopped.
            return found[:1]
        return found

    def _next_end(self, state: State) -> Instant | None:
        return min((end for end in self._all_ends(state) if state.now < end < NEVER), default=None)

    def _done(self, state: State, number: int, how: str) -> State:
        place = state.actors[number].place
        assert place is not None
        if type(place.wants) is not Publish:
            return super()._done(state, number, how)
        if how == "!":
            return self._told(state, number, NO_ANSWER)
        message = place.wants.message
        self._relays.check_arrival(state, message)
        state = self._arrived(state, message, state.actors[number].token if how == "" else b"")
        return self._told(state, number, NO_ANSWER if how == "?" else None)

    def _arrived(self, state: State, message: Message, by: bytes) -> State:
        """The receiver handles it, as often as it comes. `by` whom it is known to have arrived."""
        base = state.base

        def perform(statement: Any) -> Any:
            nonlocal base
            done = self._database.perform(base, state.now, statement)
            base = done.state
            return done.rows

        if drive(handle(MESSAGES, "consumer", message.source, message.id), perform):
            perform(effect(message.id))
        self._relays.check_effects(base)
        came = Charged(message.id, "arrived", by, 0, 0)
        charges = state.charges if came in state.charges else (*state.charges, came)
        return state._replace(base=base, charges=charges)

    def _based(self, state: State, number: int, base: Number) -> State:
        return state._replace(base=base)

    def check_end(self, state: State) -> None:
        """See Model.check_end: then leases end, and one more relay comes."""
        must("I1", state.writer is None and not any(actor.at_work for actor in state.actors), "relays are stuck")
        known = state._replace(actors=(), bounds=Bounds(), last=None)
        if known in self._ends:
            return
        number = len(state.actors)
        later = max([state.now, *self._all_ends(state)])
        state = state._replace(now=later, actors=(*state.actors, self._last), bounds=Bounds(0, 0, 0))
        while state.actors[number].at_work:
            state = self._done(state, number, "")
        messages = self._relays.messages(state.base)
        left = [name for name, row in messages.items() if row["state"] != "delivered"]
        must("I9", not left, f"never delivered: {', '.join(left)}")
        effects = {row[1] for row in self._database.rows(state.base, EFFECTS)}
        must("I9", effects == messages.keys(), f"handled are {sorted(effects)}, and committed {sorted(messages)}")
        self._ends.add(known)

    def _all_ends(self, state: State) -> list[Instant]:
        rows = self._database.named(state.base, SHARDS, "shard").values()
        ends = [row["lease_until"] for row in rows]
        return ends + [row["next_at"] for row in self._relays.messages(state.base).values()]
