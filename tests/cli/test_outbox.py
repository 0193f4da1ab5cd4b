"""`twicesafe outbox`: what people see of messages, what they do about those that are stuck, and the trail of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.running import Ran, twicesafe, twicesafe_within
from twicesafe.core.message import Message
from twicesafe.errors import RefusedError
from twicesafe.outbox import Outbox
from twicesafe.outbox.relay import Relay
from twicesafe.stores.urls import open_async_store, open_store

KINDS = ["sqlite", "postgresql", "mysql"]
SECRET = "4111 1111 1111 1111"


class Place:
    """A store with an outbox, and a receiver that refuses what is of a parcel named bad."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.refusing = True
        self.arrived: list[str] = []
        with closing(open_store(url)) as store:
            store.apply_schema()

    def add(self, *messages: tuple[str, str]) -> None:
        """Commit messages, of an aggregate and with an id each."""
        outbox = Outbox("/tests")
        with closing(open_store(self.url)) as store, store.transaction() as transaction:
            transaction.begin()
            for aggregate, name in messages:
                outbox.add(transaction.connection, "parcel.moved", ("parcel", aggregate), {"card": SECRET}, id=name)
            transaction.commit()

    def relay(self) -> list[str]:
        """One round of a relay; what arrived in it."""

        def publish(message: Message) -> None:
            if self.refusing and message.aggregateid == "bad":
                raise RefusedError("no such exchange")
            self.arrived.append(message.id)

        async def run() -> None:
            store = open_async_store(self.url)
            relay = Relay(store, publish, observer=lambda event: None)
            await relay.run_once()
            await relay.aclose()
            await store.aclose()

        before = len(self.arrived)
        asyncio.run(run())
        return self.arrived[before:]

    def outbox(self, verb: str, *arguments: str) -> Ran:
        ran = twicesafe_within("outbox", verb, "--store", self.url, *arguments)
        assert SECRET not in ran.out + ran.err or "--data" in arguments
        return ran


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Place:
    if kind == "sqlite":
        return Place(f"sqlite:///{tmp_path}/shop.db")
    if kind == "postgresql":
        return Place(request.getfixturevalue("postgresql_server").create_database())
    server = request.getfixturevalue("mariadb_server")
    return Place(f"mysql://twicesafe@127.0.0.1:{server.port}/{server.create_database()}")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_reason_in_another_encoding_is_kept(place: Place) -> None:
    """R28, R22: what was typed in another encoding than the terminal's is in the trail, its bytes escaped."""
    place.add(("bad", "b-1"))
    ran = place.outbox("discard", "b-1", "--who", "Zo\udceb", "--why", "k\udcf6nnte")
    shown = place.outbox("show", "b-1").out
    assert "discarded" in shown
    assert "Zo\\udceb: discard the message, done. k\\udcf6nnte" in shown
    assert ran.status == 0


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_pipe_without_the_characters_gets_them_escaped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: where the output's encoding lacks a character of a message's, it is shown all the same."""
    place.add(("bad", "Zo\xeb-\u2603"))
    place.relay()
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ran = twicesafe("outbox", "list", "--store", place.url)
    assert "Zo\\xeb-\\u2603" in ran.out
    assert ran.status == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_releases_what_a_parked_message_held(place: Place) -> None:
    """R28, J2: the head is parked, its aggregate's later ones are held, others flow; a retry releases them in order."""
    place.add(("bad", "b-1"), ("good", "g-1"), ("bad", "b-2"))
    assert place.relay() == ["g-1"]
    place.add(("bad", "b-3"), ("good", "g-2"))
    assert place.relay() == ["g-2"]
    listed = place.outbox("list", "--json").json
    assert (listed["pending"], listed["parked"]) == (2, 1)
    (dead,) = listed["messages"]
    assert (dead["id"], dead["state"], dead["error"]) == ("b-1", "parked", "RefusedError: no such exchange")
    held = place.outbox("list", "--state", "pending", "--json").json["messages"]
    assert [one["id"] for one in held] == ["b-2", "b-3"]
    place.refusing = False
    assert place.relay() == []
    retried = place.outbox("retry", "b-1", "--why", "the exchange is there", "--who", "ann")
    assert retried.status == 0, retried.err
    assert place.relay() == ["b-1", "b-2", "b-3"]
    shown = place.outbox("show", "b-1", "--json").json
    assert shown["state"] == "delivered"
    assert [(one["who"], one["action"], one["why"], one["outcome"]) for one in shown["audit"]] == [
        ("ann", "retry the message", "the exchange is there", "done")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_discarded_holds_nobody(place: Place) -> None:
    """R28: all that are parked are given up at once, never arrive, and what they held flows; once only."""
    place.add(("bad", "b-1"), ("bad", "b-2"))
    assert place.relay() == []
    place.refusing = False
    assert place.outbox("discard", "--parked", "--why", "a test", "--json").json == {
        "discard": ["b-1"],
        "unchanged": [],
    }
    assert place.relay() == ["b-2"]
    again = place.outbox("discard", "b-1", "--why", "a test")
    assert (again.status, "b-1" in again.err) == (1, True)
    assert place.outbox("discard", "--parked", "--why", "a test", "--json").json["discard"] == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_a_message_says_is_shown_to_who_asks(place: Place) -> None:
    """R22: a message's data is in no list and in no view of it, unless somebody asks for it by name."""
    place.add(("bad", "b-1"))
    assert "b-1" in place.outbox("list", "--state", "pending").out
    assert "state:" in place.outbox("show", "b-1").out
    assert json.loads(place.outbox("show", "b-1", "--data", "--json").json["data"]) == {"card": SECRET}


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("retry", "--why", "x"), "--parked"),
        (("retry", "b-1", "--parked", "--why", "x"), "--parked"),
        (("retry", "b-1"), "--why"),
        (("retry", "b-1", "nobody", "--why", "x"), "no message nobody"),
        (("discard", "", "--why", "x"), "empty"),
        (("show", "nobody"), "no message nobody"),
        (("list", "--state", "lost"), "--state"),
    ],
)
def test_what_cannot_be_meant_changes_nothing(place: Place, arguments: tuple[str, ...], said: str) -> None:
    """R28: nothing is changed, and the message names what is wrong."""
    place.add(("bad", "b-1"))
    place.relay()
    ran = place.outbox(*arguments)
    assert (ran.status, said in ran.err) == (2, True), ran.err
    (one,) = place.outbox("list", "--json").json["messages"]
    assert (one["id"], one["state"]) == ("b-1", "parked")
    assert place.outbox("show", "b-1", "--json").json["audit"] == []


def test_a_store_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    """R28: a store without transactions, and one without the tables, end it with one line that says so."""
    without = twicesafe("outbox", "list", "--store", "memory:")
    assert (without.status, "transactions" in without.err) == (2, True)
    bare = twicesafe("outbox", "list", "--store", f"sqlite:///{tmp_path}/bare.db")
    assert (bare.status, "schema apply" in bare.err) == (2, True)
