"""`twicesafe keys`: what people see of records, what they do about them, and the trail of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Ran, command, twicesafe, twicesafe_within
from twicesafe.cli.people import name_of
from twicesafe.core.policy import Policy
from twicesafe.errors import CallUnknownError, DefinitionChangedError, OutcomeUnknownError, ResultNotKeptError
from twicesafe.once import Once, current
from twicesafe.stores.urls import open_store

KINDS = ["sqlite", "postgresql", "mysql"]
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


class Place:
    """A store with an unknown outcome in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.runs = 0
        with closing(open_store(url)) as store:
            store.apply_schema()
        with pytest.raises(TimeoutError):
            self.call()

    def call(self) -> Any:
        """The application's call under the key."""
        with closing(open_store(self.url)) as store:
            policy = Policy(unknown_on_error=True)
            once = Once(store, scope="shop", policy=policy, observer=lambda event: None)

            @once.operation(key=lambda: KEY, name="charge")
            def charge() -> str:
                self.runs += 1
                if self.runs == 1:
                    raise TimeoutError
                return f"charged {self.runs}"

            return charge()

    def keys(self, verb: str, *arguments: str) -> Ran:
        return twicesafe_within("keys", verb, "--store", self.url, *arguments)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> Place:
    if kind == "sqlite":
        return Place(f"sqlite:///{tmp_path}/shop.db")
    if kind == "postgresql":
        return Place(request.getfixturevalue("postgresql_server").create_database())
    server = request.getfixturevalue("mariadb_server")
    return Place(f"mysql://twicesafe@127.0.0.1:{server.port}/{server.create_database()}")


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_is_found_settled_and_its_trail_kept(place: Place, tmp_path: Path) -> None:
    """R26, R22: listed, settled with an answer that every retry gets, once; never a key or a body in what is shown."""
    (listed,) = place.keys("list", "--json").json
    assert (listed["operation"], listed["scope"], listed["standing"]) == ("charge", "shop", "unknown")
    answer = tmp_path / "answer.json"
    answer.write_text('"charged by hand"')
    settle = ("settle", listed["digest"][:12], "--why", "saw it at the provider", "--who", "ann", "--body", str(answer))
    settled = place.keys(*settle, "--json")
    assert (settled.status, settled.json) == (
        0,
        {"digest": listed["digest"], "action": "settle as done with 200", "done": True},
    )
    assert place.call() == "charged by hand"
    assert place.runs == 1
    again = place.keys("settle", listed["digest"], "--why", "again", "--body", str(answer))
    assert again.status == 2
    assert "not unknown" in again.err
    shown = place.keys("show", KEY, "--scope", "shop", "--json")
    assert [(one["who"], one["why"], one["outcome"]) for one in shown.json["audit"]] == [
        ("ann", "saw it at the provider", "done")
    ]
    assert KEY not in shown.out
    assert "charged by hand" not in shown.out
    assert place.keys("list", "--json").json == []


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_answer_may_come_by_standard_input(place: Place) -> None:
    """R26: `--body -` is what another program writes, and a file that cannot be read is named, with nothing changed."""
    settle = ("keys", "settle", "--store", place.url, "--scope", "shop", "--why", "seen", KEY, "--body")
    missing = twicesafe_within(*settle, "missing.json")
    assert (missing.status, missing.err) == (2, "twicesafe: --body missing.json: No such file or directory\n")
    piped = subprocess.run(command(*settle, "-"), input=b'"by hand"', capture_output=True, timeout=60, check=False)
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert place.call() == "by hand"


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_done_is_released_and_its_trail_outlives_it(place: Place) -> None:
    """R26: the key is free, the record is gone, and who freed it and why is still there."""
    released = place.keys("release", KEY, "--scope", "shop", "--why", "the provider never saw it", "--who", "bob")
    assert released.status == 0, released.err
    shown = place.keys("show", KEY, "--scope", "shop", "--json").json
    assert [(one["who"], one["action"], one["outcome"]) for one in shown["audit"]] == [
        ("bob", "release as not done", "done")
    ]
    assert "digest" not in shown
    assert place.call() == "charged 2"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_nothing_is_settled_without_a_reason(place: Place) -> None:
    """R26: white space says nothing to whoever reads the trail later."""
    refused = place.keys("release", KEY, "--scope", "shop", "--why", " ")
    assert [one["standing"] for one in place.keys("list", "--json").json] == ["unknown"]
    assert refused.status == 2
    assert "--why" in refused.err


def held(url: str) -> Any:
    """An operation of several steps, held for a call that nobody knows the outcome of; a function to call it."""
    charges: list[str] = []

    def charge(key: str) -> str:
        charges.append(key)
        if len(charges) == 1:
            raise TimeoutError
        return "ch_2"

    def call() -> Any:
        with closing(open_store(url)) as store:
            once = Once(store, scope="shop", observer=lambda event: None)

            @once.operation(key=lambda: KEY, name="buy", effects="resumable", lease=timedelta(milliseconds=100))
            def buy() -> str:
                return current().call("charge", charge)

            return buy()

    with pytest.raises(TimeoutError):
        call()
    until = time.monotonic() + 30
    while True:
        try:
            call()
        except CallUnknownError:
            break
        except Exception:
            assert time.monotonic() < until
    return call, charges


@pytest.mark.parametrize(
    ("said", "result", "sent"), [(("--done", '"ch_1"'), "ch_1", 1), (("--not-done",), "ch_2", 2)], ids=["done", "not"]
)
def test_an_operation_that_was_held_goes_on(tmp_path: Path, said: tuple[str, ...], result: str, sent: int) -> None:
    """R24, R26: whoever knows what became of its call says so, and it goes on behind it."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(open_store(url)) as store:
        store.apply_schema()
    call, charges = held(url)
    with pytest.raises(OutcomeUnknownError):
        call()
    (listed,) = twicesafe_within("keys", "list", "--store", url, "--json").json
    assert listed["step"] == "call charge: open"
    for verb in ("release", "settle"):
        refused = twicesafe_within("keys", verb, "--store", url, listed["digest"], "--why", "x")
        assert refused.status == 2
        assert "resume" in refused.err
    resumed = twicesafe_within("keys", "resume", "--store", url, listed["digest"], "--why", "asked them", *said)
    assert resumed.status == 0, resumed.err
    assert call() == result
    assert len(charges) == sent


@pytest.mark.parametrize("kind", ["sqlite"])
def test_people_read_tables_and_lines(place: Place) -> None:
    """R26: what is for people has a word for each thing, and in a pipe a line for each record."""
    of = ("--store", place.url)
    (row,) = [line for line in twicesafe("keys", "list", *of).out.splitlines() if "charge" in line]
    assert "unknown" in row
    shown = twicesafe_within("keys", "show", *of, KEY, "--scope", "shop").out
    assert "standing:" in shown and "unknown" in shown
    assert place.keys("list", "--operation", "another").out.strip() == "Nothing is outstanding."


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", KEY), "--scope"),
        (("show", "abcdef"), "no outstanding records"),
        (("show", "another", "--scope", "shop"), "nothing is known"),
        (("show", KEY, "--scope", "shop", "--public"), "not both"),
        (("release", KEY, "--scope", "shop"), "--why"),
        (("resume", KEY, "--scope", "shop", "--why", "x"), "has no steps"),
        (("settle", KEY, "--scope", "shop", "--why", "x", "--header", "nonsense"), "--header"),
        (("settle", KEY, "--scope", "shop", "--why", "x", "--header", "na\u00efve: 1"), "--header"),
        (("settle", KEY, "--scope", "shop", "--why", "x", "--header", "a: \u20ac"), "--header"),
        (("settle", KEY, "--scope", "shop", "--why", "x", "--header", "a: 1\r\nb: 2"), "--header"),
        (("settle", KEY, "--scope", "shop", "--why", "x", "--body", "nowhere.json"), "nowhere.json"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(place: Place, arguments: tuple[str, ...], said: str) -> None:
    """R26: nothing is changed, and the message names the option."""
    ran = place.keys(*arguments)
    assert ran.status == 2
    assert said in ran.err
    assert json.loads(place.keys("list", "--json").out)[0]["standing"] == "unknown"


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(("more", "error"), [(("--status", "201"), None), ((), ResultNotKeptError)])
def test_what_was_settled_as_done_has_not_failed(
    place: Place, tmp_path: Path, more: tuple[str, ...], error: type[Exception] | None
) -> None:
    """I6, R26: with another status of success it is done all the same, and without a body its result is not kept."""
    answer = tmp_path / "answer.json"
    answer.write_text('"ch_1"')
    body = ("--body", str(answer)) if more else ()
    assert place.keys("settle", KEY, "--scope", "shop", "--why", "x", *more, *body).status == 0
    if error is None:
        assert place.call() == "ch_1"
    else:
        with pytest.raises(error):
            place.call()
    assert place.runs == 1


@pytest.mark.parametrize("scope", ["[/]", "[bold]x", "a\x1b[2Jb"])
def test_a_scope_is_shown_as_it_is(tmp_path: Path, scope: str) -> None:
    """R22, G6: whatever a caller is called, it is text, and does nothing to a terminal."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(open_store(url)) as store:
        store.apply_schema()
        once = Once(store, scope=scope, policy=Policy(unknown_on_error=True), observer=lambda event: None)
        with pytest.raises(ZeroDivisionError):
            once(KEY, lambda: 1 / 0)
    for verb in (("list",), ("show", KEY, "--scope", scope)):
        ran = twicesafe_within("keys", *verb, "--store", url)
        assert ran.status == 0, ran.err
        assert scope.replace("\x1b", "\\x1b") in ran.out


@pytest.mark.parametrize("done", ["[" * 100_000, '{"$decimal": "x"}', '{"$nothing": 1}', "ch_1"])
def test_a_result_that_nobody_could_read_is_refused(tmp_path: Path, done: str) -> None:
    """R26: once it is written down there is no other."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(open_store(url)) as store:
        store.apply_schema()
    call, charges = held(url)
    with closing(open_store(url)) as store:
        (record,) = store.outstanding().records
    ran = twicesafe_within("keys", "resume", "--store", url, record.digest.hex(), "--why", "x", "--done", done)
    assert ran.status == 2
    assert "--done must be JSON" in ran.err
    assert "resume" in twicesafe_within("keys", "settle", "--store", url, record.digest.hex(), "--why", "x").err
    with pytest.raises(OutcomeUnknownError):
        call()
    assert len(charges) == 1


def test_an_operation_whose_code_is_gone_is_settled(tmp_path: Path) -> None:
    """R26, I6: held with no open call, nobody but a human can say what it came to."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(open_store(url)) as store:
        store.apply_schema()
    call, _ = held(url)
    digest = twicesafe_within("keys", "list", "--store", url, "--json").json[0]["digest"]
    assert twicesafe_within("keys", "resume", "--store", url, digest, "--why", "asked", "--done", '"ch_1"').status == 0
    with closing(open_store(url)) as store:
        once = Once(store, scope="shop", observer=lambda event: None)

        @once.operation(key=lambda: KEY, name="buy", effects="resumable")
        def buy() -> str:
            return "without its call"

        with pytest.raises(DefinitionChangedError):
            buy()
    assert twicesafe_within("keys", "release", "--store", url, digest, "--why", "x").status == 2
    answer = tmp_path / "answer.json"
    answer.write_text('"refunded by hand"')
    settled = twicesafe_within("keys", "settle", "--store", url, digest, "--why", "refunded", "--body", str(answer))
    assert settled.status == 0, settled.err
    assert call() == "refunded by hand"


def test_whoever_has_no_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """R26: accounts of containers are in no list of users."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert name_of("").startswith("uid ")
    assert name_of("ann") == "ann"


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    """R26: steps of another release, or an end in ten thousand years, are said so beside what else is outstanding."""
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    with closing(open_store(place.url)) as store:
        once = Once(store, scope="shop", policy=Policy(unknown_on_error=True), observer=lambda event: None)

        @once.operation(key=lambda: "other-0123456789", name="refund")
        def refund() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            refund()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute(
            "UPDATE twicesafe_records SET effects = 'resumable', recovery_point = '9 done x', recovery_data = x'ff',"
            " key_until = 400000000000000000 WHERE operation = 'charge'"
        )
    listed = {one["operation"]: one for one in place.keys("list", "--json").json}
    assert set(listed) == {"charge", "refund"} and listed["charge"]["key_until"] == "never"
    assert "cannot be read by this release" in listed["charge"]["step"]
    assert place.keys("list").status == 0
    shown = place.keys("show", KEY, "--scope", "shop")
    assert shown.status == 0 and "cannot be read by this release" in shown.out
    assert place.keys("release", KEY, "--scope", "shop", "--why", "x").status == 2
