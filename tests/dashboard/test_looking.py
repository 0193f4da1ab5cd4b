"""What is read of a store, and what it comes to: on every database, in bounded steps, and counted right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from twicesafe.core.claims import Claim, Claimed
from twicesafe.core.delivery import MessageState
from twicesafe.core.fingerprint import GivenFingerprint
from twicesafe.core.journal import CALL, DONE, OPEN, PHASE, Entry, Journal
from twicesafe.core.lifecycle import Standing
from twicesafe.core.record import Effects, StoredResponse
from twicesafe.dashboard import Tally, looking, reading
from twicesafe.dashboard.life import life
from twicesafe.dashboard.looking import LISTED, Look, Sight
from twicesafe.dashboard.plots import duration, in_steps, over_time
from twicesafe.dashboard.reading import Seen, messages
from twicesafe.dashboard.tally import MINUTES, OPERATIONS, OTHERS, QUIET, Kind
from twicesafe.observe import Event, Work, around, counts, traces
from twicesafe.once import Once
from twicesafe.outbox import Outbox
from twicesafe.outbox.operators import Messages
from twicesafe.stores.memory import MemoryStore
from twicesafe.stores.urls import open_store

KINDS = ["sqlite", "postgresql", "mysql"]
HOUR = 3_600_000_000


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Iterator[Any]:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
    elif kind == "postgresql":
        url = request.getfixturevalue("postgresql_server").create_database()
    else:
        server = request.getfixturevalue("mariadb_server")
        url = f"mysql://twicesafe@127.0.0.1:{server.port}/{server.create_database()}"
    with closing(open_store(url)) as opened:
        opened.apply_schema()
        yield opened


def claimed(store: Any, number: int, lease_us: int = HOUR, effects: Effects = Effects.OPAQUE) -> Any:
    digest = bytes([number]) * 32
    found = store.claim(
        Claim(
            digest=digest,
            scope="user-7",
            operation="charge",
            key_hint="…abcd",
            fingerprint=GivenFingerprint(b"\1" * 33),
            effects=effects,
            owner=bytes([number]) * 16,
            lease_us=lease_us,
            key_us=HOUR,
            request=None,
        )
    )
    assert isinstance(found, Claimed)
    return found.ownership


@pytest.mark.parametrize("kind", KINDS)
def test_every_standing_is_seen(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26: in progress, stale, unknown and completed are told apart on each database, a few rows at a time."""
    monkeypatch.setattr(reading, "AT_A_TIME", 2)
    for number in range(3):
        store.complete(claimed(store, number), StoredResponse(201, (), b"body"), HOUR, HOUR)
    claimed(store, 10)
    claimed(store, 11, lease_us=1)
    answered = claimed(store, 12)
    store.start_answer(answered, StoredResponse(200, (), None))
    store.renew(answered, 1)
    store.hold(claimed(store, 13))
    sight = Look(store).round()
    assert sight.looked == 7 and sight.ended is not None
    assert {standing: sight.count(standing) for standing in Standing if sight.count(standing)} == {
        Standing.COMPLETED: 3,
        Standing.CLAIMED: 1,
        Standing.STALE: 1,
        Standing.ANSWERED: 1,
        Standing.UNKNOWN: 1,
    }
    assert [one.digest for one in sight.listed(Standing.UNKNOWN)] == [bytes([13]) * 32]
    assert sum(sight.minutes()) == 3 and sight.latency().number == 3
    oldest = sight.oldest()
    assert oldest is not None and oldest.digest == bytes([10]) * 32


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_listed_a_page_at_a_time(store: Any) -> None:
    """R26: what waits, what is parked and what was skipped, with an end to every page, on each database."""
    with store.transaction() as transaction:
        transaction.begin()
        for number in range(7):
            Outbox(source="shop").add(transaction.connection, "order.placed", ("order", f"o-{number}"), {})
        transaction.commit()
    first = messages(store, MessageState.PENDING, None, 5)
    rest = messages(store, MessageState.PENDING, first.more, 5)
    assert [len(first.messages), len(rest.messages), rest.more] == [5, 2, None]
    ids = [one.id for one in first.messages]
    with store.transaction() as transaction:
        transaction.begin()
        execute(transaction.connection, "UPDATE twicesafe_outbox SET state = 'skipped' WHERE seq <= 2")
        execute(
            transaction.connection,
            "UPDATE twicesafe_outbox SET state = 'parked', next_at = 9223372036854775807 WHERE seq = 3",
        )
        transaction.commit()
    assert [one.id for one in messages(store, MessageState.PARKED, None, 5).messages] == [ids[2]]
    assert [one.id for one in messages(store, MessageState.SKIPPED, None, 5).messages] == [ids[1], ids[0]]
    few = messages(store, MessageState.SKIPPED, None, 1)
    assert ([one.id for one in few.messages], few.more) == ([ids[1]], 1)
    far = messages(store, MessageState.SKIPPED, None, 5, look_at=3)
    assert (far.messages, far.more) == ([], 4)
    assert Messages(store).retry(ids[2], who="ann", why="there again")


def execute(connection: Any, text: str) -> None:
    cursor = connection.cursor()
    cursor.execute(text)
    cursor.close()


def test_a_round_is_bounded_and_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26: a large table is seen in parts: each round reads so many rows and no more, and the next goes on behind."""
    monkeypatch.setattr(reading, "AT_A_TIME", 2)
    monkeypatch.setattr(looking, "PAGES", 2)
    with closing(open_store(f"sqlite:///{tmp_path}/shop.db")) as store:
        store.apply_schema()
        for number in range(9):
            store.hold(claimed(store, number))
        look = Look(store)
        seen = []
        for _ in range(3):
            sight = look.round()
            seen.append((sight.looked, sight.ended is None))
        assert seen == [(4, True), (8, True), (9, False)]
        look.without(bytes([4]) * 32)
        assert look.sight is not None and look.sight.count(Standing.UNKNOWN) == 8
        assert look.round().looked == 9


def test_what_a_page_shows_does_not_grow_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26: the first look at a large table is shown while it is under way, and each page draws one moment of it."""
    monkeypatch.setattr(reading, "AT_A_TIME", 2)
    monkeypatch.setattr(looking, "PAGES", 1)
    with closing(open_store(f"sqlite:///{tmp_path}/shop.db")) as store:
        store.apply_schema()
        store.complete(claimed(store, 0), StoredResponse(201, (), b""), HOUR, HOUR)
        for number in range(1, 5):
            store.hold(claimed(store, number))
        look = Look(store)
        first = look.round()
        before = (first.looked, first.signature(), len(first.listed(Standing.UNKNOWN)), sum(first.minutes()))
        second = look.round()
        assert (second.looked, len(second.listed(Standing.UNKNOWN))) == (4, 3)
        assert before[0] == 2 and before[2:] == (1, 1)
        assert (first.looked, first.signature(), len(first.listed(Standing.UNKNOWN)), sum(first.minutes())) == before
        look.without(bytes([2]) * 32)
        assert second.count(Standing.UNKNOWN) == 2
        last = look.round()
        assert (last.ended is not None, last.count(Standing.UNKNOWN), sum(last.minutes())) == (True, 3, 1)


def test_a_store_without_sql_tells_what_is_outstanding() -> None:
    """R26: where records cannot be looked through, what waits for somebody is seen all the same."""
    store = MemoryStore()
    store.hold(claimed(store, 1))
    claimed(store, 2)
    sight = Look(store).round()
    assert (sight.count(Standing.UNKNOWN), sight.looked) == (1, 1)


def seen(number: int, standing: Standing, operation: str = "charge", **facts: Any) -> Seen:
    one = Seen(
        number.to_bytes(32, "big"),
        "s",
        operation,
        "…abcd",
        "opaque",
        1,
        number,
        number,
        10**15,
        standing,
        "2 open call",
    )
    return one._replace(**facts)


def test_what_is_kept_of_a_look_is_bounded() -> None:
    """R26: of any number of records and operations the oldest are kept, and a number of names; the counts are whole."""
    sight = Sight(10**12)
    every = [seen(n, Standing.UNKNOWN, f"o-{n % 200}") for n in range(5 * LISTED, 0, -1)]
    sight.add(every)
    assert sight.count(Standing.UNKNOWN) == 5 * LISTED
    assert [one.created_at for one in sight.listed(Standing.UNKNOWN)] == list(range(1, LISTED + 1))
    assert len(sight.operations()) == OPERATIONS + 1 and OTHERS in sight.operations()
    assert every[0].step == "step 2, call: open"


def test_what_is_counted_together_is_listed_together() -> None:
    """R26: records of operations that have no line of their own are listed where their number leads to."""
    sight = Sight(10**12)
    sight.add([seen(n, Standing.UNKNOWN, f"o-{n}") for n in range(1, OPERATIONS + 4)])
    others = sight.listed(Standing.UNKNOWN, OTHERS)
    assert len(others) == sight.count(Standing.UNKNOWN, operation=OTHERS) == 3
    assert [one.operation for one in others] == [f"o-{n}" for n in range(OPERATIONS + 1, OPERATIONS + 4)]
    assert [one.operation for one in sight.listed(Standing.UNKNOWN, "o-1")] == ["o-1"]


def test_first_runs_are_of_the_minute_in_which_they_ended() -> None:
    """R26: one minute's first runs are one bar; those before the window are none; latency is of first claims only."""
    now = 10**15
    minute = 60_000_000
    done = Standing.COMPLETED
    sight = Sight(now)
    for ago, took, epoch in ((0, 100_000, 1), (1, 200_000, 1), (1, 300_000, 1), (90, 100, 2), (MINUTES + 1, 5, 1)):
        ended = now - ago * minute
        sight.add([seen(1, done, created_at=ended - took, lease_until=ended, epoch=epoch)])
    assert sight.minutes()[-3:] == [0, 2, 1] and sum(sight.minutes()) == 3
    assert sum(sight.minutes(minutes=MINUTES)) == 4
    latency = sight.latency("charge")
    assert latency.number == 3
    assert latency.half == pytest.approx(200_000, rel=0.13) and latency.most == pytest.approx(300_000, rel=0.13)
    assert sight.latency("another").half is None


def test_a_tally_counts_by_minute_and_forgets() -> None:
    """R26: by operation and kind, in the minute it happened, for a day; then its place is another minute's."""
    now = [6_000.0]
    told: list[Event] = []
    tally = Tally(told.append, clock=lambda: now[0])
    for name in ("replayed", "replayed.without_body", "conflict", "looked_up"):
        tally(Event(name, "charge", "…abcd", loud=False))
    now[0] += 120
    tally(Event("replayed", "refund", "…abcd", loud=False))
    assert len(told) == 5
    assert tally.numbers(Kind.REPLAY, minutes=4) == [0, 2, 0, 1]
    assert tally.numbers(Kind.REPLAY, "charge", 3) == [2, 0, 0]
    assert tally.numbers(Kind.CONFLICT, "charge", 3) == [1, 0, 0]
    assert [one.name for one in tally.met("charge", "…abcd")] == ["replayed", "replayed.without_body", "conflict"]
    now[0] -= 600
    tally(Event("replayed", "refund", "", loud=False))
    assert tally.numbers(Kind.REPLAY, "refund", 1) == [2]
    now[0] += MINUTES * 60 * 3
    assert sum(tally.numbers(Kind.REPLAY, minutes=MINUTES)) == 0
    for number in range(3 * OPERATIONS):
        tally(Event("mismatch", f"/made/up/{number}", "", loud=False))
    assert len(tally.operations()) <= OPERATIONS + 1
    assert sum(tally.numbers(Kind.MISMATCH)) == 3 * OPERATIONS


def test_a_quiet_operation_makes_room() -> None:
    """R26: a new name has a line once one that is told apart was quiet for an hour; nothing counted is lost."""
    now = [6_000.0]
    tally = Tally(lambda event: None, clock=lambda: now[0])
    for number in range(OPERATIONS):
        tally(Event("replayed", f"/made/up/{number}", "", loud=False))
    tally(Event("replayed", "early", "", loud=False))
    now[0] += QUIET * 60
    tally(Event("replayed", "/made/up/0", "", loud=False))
    tally(Event("replayed", "charge", "", loud=False))
    assert sum(tally.numbers(Kind.REPLAY, "charge", MINUTES)) == 1
    assert sum(tally.numbers(Kind.REPLAY, "/made/up/0", MINUTES)) == 2
    assert sum(tally.numbers(Kind.REPLAY, OTHERS, MINUTES)) == 2
    assert "/made/up/1" not in tally.operations() and len(tally.operations()) == OPERATIONS + 1
    assert sum(tally.numbers(Kind.REPLAY, minutes=MINUTES)) == OPERATIONS + 3


def test_a_tally_stands_in_nobodys_way() -> None:
    """R44: an observer behind it that counts or traces is told what it would be told alone."""

    class Counting:
        counts = True

        def __init__(self) -> None:
            self.told: list[str] = []

        def __call__(self, event: Event) -> None:
            self.told.append(event.name)

        @contextmanager
        def around(self, work: Work) -> Iterator[None]:
            self.told.append(f"around {work.kind}")
            yield

    behind = Counting()
    once = Once(MemoryStore(), scope="jobs", observer=Tally(also=behind))
    for _ in range(2):
        once.operation(key=lambda: "k-0123456789")(lambda: None)()
    assert behind.told == ["completed", "replayed"]
    with around(Tally(also=behind), Work("resume", "charge", "")):
        assert behind.told[-1] == "around resume"
    assert not counts(Tally()) and not traces(Tally())


def test_names_of_a_tally_can_be_shown() -> None:
    """R44: a name that has no UTF-8 is told as one that has."""
    tally = Tally(also=lambda event: None)
    tally(Event("conflict", "caf\udce9", "", loud=False))
    assert tally.operations() == ["caf\\udce9"] and sum(tally.numbers(Kind.CONFLICT, "caf\\udce9")) == 1


def test_a_life_is_told_in_its_order(tmp_path: Path) -> None:
    """R26: claim, steps, what people did, and what is to come, each where it belongs."""
    with closing(open_store(f"sqlite:///{tmp_path}/shop.db")) as store:
        store.apply_schema()
        own = claimed(store, 1, effects=Effects.RESUMABLE)
        journal = Journal()
        for entry in (Entry("reserve", PHASE, DONE, "1"), Entry("charge", CALL, OPEN, "", store.now())):
            move = journal.move(entry)
            store.advance(own, journal.point, move.point, move.addition)
            journal.add(entry)
        found = store.read(own.digest)
        told = [moment.what for moment in life(found.record, found.now)]
        assert told == ["Claimed", "Phase reserve", "Call charge", "In progress", "Lease ends"]
        store.hold(own)
        found = store.read(own.digest)
        assert [moment.what for moment in life(found.record, found.now)][-1] == "Outcome unknown"
        store.complete(own, StoredResponse(201, (), b""), HOUR, 1)
        found = store.read(own.digest)
        assert [moment.what for moment in life(found.record, found.now)][-2:] == ["Completed", "Key forgotten"]


@pytest.mark.parametrize(
    ("us", "said"),
    [(None, "–"), (0, "0 µs"), (999, "999 µs"), (1_500, "1.5 ms"), (61_000_000, "1 min"), (3 * 24 * HOUR, "3 days")],
)
def test_durations_are_short(us: float | None, said: str) -> None:
    """Dashboard: two figures and a unit, whatever the length."""
    assert duration(us) == said


def test_bars_stand_for_their_numbers() -> None:
    """Dashboard: the highest number is the highest bar, nothing is no bar, and sums keep the total."""
    plot = over_time([0, 5, 10])
    assert [bar.height for bar in plot.bars] == [28.0, 56.0]
    assert (plot.most, plot.total, plot.bars[-1].says) == (10, 15, "10 now")
    assert in_steps([1, 2, 3, 4, 5], 2) == [3, 12]
    assert over_time([]).bars == ()
