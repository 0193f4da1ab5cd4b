"""`twicesafe intents`: what people see of intents, how those that were cut off go on, and how others are ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Ran, twicesafe, twicesafe_within
from tests.client.scripted import Exchange, Scripted, answer, problem, serving
from twicesafe.client import Attempt, Intent, IntentStore, Reserved, RetryPolicy, Sent, Stop, Unknown
from twicesafe.stores.cryptography import Keyring

SECRET = "4111 1111 1111 1111"
DAY = timedelta(days=1)
LATER = 2 * 86_400_000_000


class Place:
    """A file of intents, as a client left it that died. `reserved` are those in it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "intents.db"
        self.store = IntentStore(self.file)
        self.reserved: dict[str, Reserved] = {}

    def reserve(self, name: str, url: str = "https://pay.example", **how: Any) -> Reserved:
        intent = Intent.new("POST", f"{url}/charges?for={name[-1]}", json={"card": SECRET}, **how)
        self.reserved[name] = self.store.reserve(name, intent, remembers=DAY)
        return self.reserved[name]

    def cut_off(self, name: str, url: str = "https://pay.example", **how: Any) -> None:
        """One whose run has no end."""
        self.store.runs.begin(self.reserve(name, url, **how), RetryPolicy(), None)

    def overdue(self, name: str, url: str = "https://pay.example") -> None:
        """One that began two days ago, as far as the file knows."""
        self.reserve(name, url)
        before = IntentStore(self.file, clock=lambda: self.reserved[name].reserved_at - LATER)
        before.forget(name)
        intent = self.reserved[name].intent
        self.reserved[name] = before.reserve(name, intent, remembers=DAY)
        before.runs.begin(self.reserved[name], RetryPolicy(), None)

    def run(self, verb: str, *arguments: str) -> Ran:
        ran = twicesafe_within("intents", verb, str(self.file), *arguments)
        told = ran.out + ran.err
        assert SECRET not in told or "--body" in arguments
        assert [name for name, one in self.reserved.items() if one.intent.key in told] == []
        return ran

    def standings(self) -> dict[str, str]:
        """What the file says."""
        return {one.name: str(one.standing) for one in self.store.listed(settled=True)}

    def check(self, server: Scripted, *names: str) -> None:
        """These were sent, in this order, each with its key and its bytes."""
        sent = [self.reserved[name].intent for name in names]
        assert [(hit.key, hit.body) for hit in server.hits] == [(intent.key, intent.body) for intent in sent]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_not_known_is_listed(place: Place) -> None:
    """R34, R22: a line for each intent whose outcome is not known, without its body, its key and its query."""
    assert place.run("list").out == "Nothing is outstanding.\n"
    place.reserve("never sent")
    place.cut_off("cut off, with a name that is longer than a terminal is wide, " * 3 + "7")
    place.reserve("done")
    place.store.settle("done", done=True, why="a test")
    ran = place.run("list")
    head, rule, *lines = [line for line in ran.out.splitlines() if line.strip()]
    assert head.split()[:2] == ["name", "standing"] and rule.strip()
    assert [("unknown" in line, "reserved" in line) for line in lines] == [(True, False), (False, True)]
    assert "POST https://pay.example/charges" in lines[0] and "?" not in lines[0]
    assert "cut off, or at work" in lines[0]
    real = twicesafe("intents", "list", str(place.file), "--json", "--all")
    assert real.status == 0, real.err
    assert sorted(one["standing"] for one in real.json) == ["reserved", "succeeded", "unknown"]


def test_one_intent_and_its_runs_are_shown(place: Place) -> None:
    """R34, R40: each time that it was sent, by which process and what came of it; what it says only if asked for."""
    place.cut_off("cart 17", headers={"Authorization": "Bearer abc"})
    begun = place.store.runs.begin(place.reserved["cart 17"], RetryPolicy(), None)
    timeout = Attempt(1, 0.0, 1.0, Sent.YES, None, None, "timeout", None, Stop.ATTEMPTS, 1.0, 1.0)
    place.store.runs.ended(begun, Unknown(key=None, sent=Sent.YES, attempts=(timeout,), stop=Stop.ATTEMPTS))
    shown = place.run("show", "cart 17", "--json").json
    assert (shown["standing"], shown["withheld"], shown["carrier"]) == ("unknown", ["authorization"], "Idempotency-Key")
    assert [(run["verdict"], run["attempts"], bool(run["ended"])) for run in shown["runs"]] == [
        ("open", 0, False),
        ("open", 1, True),
    ]
    text = place.run("show", "cart 17").out
    assert "\nremembers:   86400 s\n" in text
    assert "timeout; attempts" in text and "body" not in text and "abc" not in text
    assert SECRET in place.run("show", "cart 17", "--body").out
    assert "no intent named" in place.run("show", "nobody").err


def test_what_was_cut_off_is_sent_again(place: Place) -> None:
    """R34, I8, R42: same key, same bytes, and the exit status says that all is known; what was never sent is not."""
    with serving(answer(201), answer(201)) as server:
        for name in ("cart 2", "cart 1"):
            place.cut_off(name, server.origin)
        place.reserve("never sent", server.origin)
        ran = place.run("resume")
        place.check(server, "cart 1", "cart 2")
    assert ran.status == 0, ran.err
    assert "2 known, 0 not known." in ran.out
    assert place.standings() == {"cart 1": "succeeded", "cart 2": "succeeded", "never sent": "reserved"}
    assert place.run("resume").out.splitlines()[-1] == "What was reserved and never sent is left: --unsent sends it."


def test_the_exit_status_says_that_some_are_not_known(place: Place) -> None:
    """R34, I6: lost again, refused beside a run that may have done it, or forgotten by the server: 1, each with why."""
    with serving(answer(402), problem(409, "outcome-unknown")) as server:
        place.overdue("a", server.origin)
        place.cut_off("b", server.origin)
        place.cut_off("c", server.origin)
        ran = place.run("resume", "--json")
        place.check(server, "b", "c")
    assert (ran.status, ran.json["unknown"]) == (1, 3), ran.err
    told = {one["name"]: (one["standing"], one["last"], one["why"][:8]) for one in ran.json["intents"]}
    assert told["a"] == ("overdue", "without an end: cut off, or at work", "not sent")
    assert told["b"] == ("unknown", "402; answered", "")
    assert told["c"] == ("unknown", "409 outcome unknown; answered", "")


def test_those_that_are_named_are_sent(place: Place) -> None:
    """R34: one by its name, what was never sent if asked for, and one that is settled is told and not sent."""
    with serving(answer(201), answer(201)) as server:
        for name in ("a", "b"):
            place.cut_off(name, server.origin)
        place.reserve("c", server.origin)
        assert place.run("resume", "b").status == place.run("resume", "b", "c").status == 0
        place.check(server, "b", "c")
    assert place.standings() == {"a": "unknown", "b": "succeeded", "c": "succeeded"}
    assert place.run("resume", "nobody").status == 2
    refused = place.run("resume", "a", "--unsent")
    assert (refused.status, "not both" in refused.err) == (2, True)


def test_headers_that_are_not_kept_come_from_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """R22, R34: what was sent with a secret is not sent without one; its value is in no argument and in no output."""
    monkeypatch.setenv("PAY_KEY", "s3cret-5")
    with serving(answer(201)) as server:
        place.cut_off("a", server.origin, headers={"Authorization": "Bearer first", "Cookie": "c=1"})
        for arguments, said in (
            ((), "authorization, cookie"),
            (("--header", "Cookie:"), "authorization"),
            (("--header", "Authorization: Bearer ${NO_SUCH}"), "NO_SUCH"),
            (("--header", "Authorization: $"), "$$"),
            (("--header", "Bearer s3cret-5"), "name: value"),
            (("--header", "Authorization: s3cretü"), "no header can"),
        ):
            ran = place.run("resume", *arguments)
            assert (ran.status, said in ran.err, "s3cret" in ran.err) == (2, True, False), ran.err
        assert server.hits == []
        ran = place.run("resume", "--header", "Authorization: Bearer ${PAY_KEY}", "--header", "Cookie:")
        (hit,) = server.hits
    assert ran.status == 0 and "s3cret" not in ran.out
    assert (hit.header("authorization"), hit.header("cookie")) == ("Bearer s3cret-5", None)


def test_headers_are_for_one_server(place: Place) -> None:
    """R22, R34: where intents go to several servers, one server's secret is not sent to the others."""
    with serving() as one, serving() as other:
        place.cut_off("a", one.origin)
        place.cut_off("b", other.origin)
        for arguments in (("--header", "X-Api-Key: 1"), ("--base-url", "https://pay.example")):
            ran = place.run("resume", *arguments)
            assert (ran.status, "several servers" in ran.err) == (2, True)
        assert one.hits == other.hits == []


def test_a_service_may_have_moved(place: Place) -> None:
    """R34, I8: the same key and bytes go to the same service at another address; never from https into the clear."""
    with serving(answer(201)) as server:
        place.cut_off("a", "https://pay.example")
        for base, said in (
            (server.origin, "in the clear"),
            ("pay.example", "https://host"),
            ("ftp://x", "https://host"),
        ):
            ran = place.run("resume", "--base-url", base)
            assert (ran.status, said in ran.err) == (2, True), ran.err
        place.store.settle("a", done=False, why="a test")
        place.cut_off("b", "http://old.example:8080/api")
        ran = place.run("resume", "--base-url", f"{server.origin}/new/")
        place.check(server, "b")
        assert server.hits[0].target == "/new/api/charges?for=b"
    assert ran.status == 0, ran.err


def test_a_redirect_is_not_followed(place: Place) -> None:
    """R22, R34: what a redirect leads to gets neither the key nor the headers; the intent is unknown as before."""
    with serving() as elsewhere, serving(answer(307, f"Location: {elsewhere.origin}/charges")) as server:
        place.cut_off("a", server.origin)
        ran = place.run("resume", "--header", "X-Api-Key: 1")
        assert elsewhere.hits == []
    assert (ran.status, place.standings()) == (1, {"a": "unknown"})


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Who runs the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_was_interrupted_is_told_and_stays_unknown(place: Place, interruptible: None) -> None:
    """R34: Ctrl-C between the send and the answer: what came before is told, the rest can be resumed."""

    def interrupt(exchange: Exchange) -> None:
        exchange.read()
        os.kill(os.getpid(), signal.SIGINT)
        exchange.wait_until_left()

    with serving(answer(201), interrupt) as server:
        for name in ("a", "b", "c"):
            place.cut_off(name, server.origin)
        ran = place.run("resume", "--json")
        place.check(server, "a", "b")
    assert ran.status == 130
    assert [(one["name"], one["standing"], one["why"]) for one in ran.json["intents"]] == [
        ("a", "succeeded", ""),
        ("b", "unknown", "interrupted"),
    ]
    assert place.standings() == {"a": "succeeded", "b": "unknown", "c": "unknown"}


def test_what_cannot_be_sent_at_all_is_told(place: Place) -> None:
    """R34: an intent that no request can be made of does not keep the others, and stays as it was."""
    with serving(answer(201)) as server:
        place.cut_off("a", server.origin, headers={"X-Name": "ü"})
        place.cut_off("b", server.origin)
        ran = place.run("resume")
        place.check(server, "b")
    assert (ran.status, "cannot be sent: UnicodeEncodeError" in ran.out) == (1, True), ran.out
    assert place.standings() == {"a": "unknown", "b": "succeeded"}


def test_what_somebody_knows_ends_an_intent(place: Place) -> None:
    """R26, R34: an intent that cannot be asked for any more is settled from other knowledge, with a reason, once."""
    place.overdue("a")
    for arguments in ((), ("--done", "--not-done")):
        assert place.run("settle", "a", "--why", "x", *arguments).status == 2
    assert place.run("settle", "a", "--done").status == 2
    settled = place.run("settle", "a", "--done", "--why", "ch_1 is in the account", "--json")
    assert (settled.status, settled.json) == (0, {"name": "a", "settled": "done"})
    again = place.run("settle", "a", "--not-done", "--why", "a slip")
    assert (again.status, "not changed" in again.err) == (1, True)
    assert "known already: it is succeeded" in again.err and "forgotten" not in again.err
    shown = place.run("show", "a", "--json").json
    assert (shown["standing"], shown["last"]) == ("succeeded", "ch_1 is in the account")


def test_nothing_is_settled_without_a_reason(place: Place) -> None:
    """R34: an empty reason is none: one line says so, and the intent stays as it is."""
    place.cut_off("cut off")
    ran = place.run("settle", "cut off", "--done", "--why", " ")
    assert place.standings() == {"cut off": "unknown"}
    assert (ran.status, ran.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("address", ["http://[", "http://127.0.0.1:99999", "127.0.0.1:8000", "http://a/?b"])
def test_an_address_that_is_none_is_refused(place: Place, address: str) -> None:
    """R34: --base-url is checked before anything is sent, and a slip in it ends with one line."""
    place.cut_off("cut off")
    ran = place.run("resume", "--base-url", address)
    assert place.standings() == {"cut off": "unknown"}
    assert ran.status == 2 and ran.err.startswith("twicesafe: --base-url must be an address")


def test_what_is_over_is_forgotten(place: Place) -> None:
    """R34, I6: settled ones go when asked for, all those at once that their servers forgot; the unknown stay."""
    place.overdue("old")
    place.cut_off("unknown")
    for name in ("fresh", "named"):
        place.reserve(name)
        place.store.settle(name, done=True, why="a test")
    assert place.run("forget", "--settled", "--json").json == {"forgotten": 0}
    place.store.settle("old", done=True, why="a test")
    assert place.run("forget", "--settled").out == "Done: forgot 1 intent.\n"
    refused = place.run("forget", "named", "unknown")
    assert (refused.status, "nothing was forgotten" in refused.err) == (1, True)
    assert sorted(place.standings()) == ["fresh", "named", "unknown"]
    assert place.run("forget", "named", "unknown", "--even-unknown").status == 0
    assert sorted(place.standings()) == ["fresh"]
    assert place.run("forget").status == place.run("forget", "fresh", "--settled").status == 2


def test_an_encrypted_file_is_counted_and_not_sent(tmp_path: Path) -> None:
    """R22, R34: without its keys the names and standings of intents are told, and nothing is sent."""
    place = Place(tmp_path)
    place.store = IntentStore(place.file, keys=Keyring({"1": Keyring.new_key()}, "1"))
    with serving() as server:
        place.cut_off("a", server.origin)
        assert "encrypted" in place.run("list").out
        ran = place.run("resume")
        assert (ran.status, "encrypted" in ran.err) == (2, True)
        assert server.hits == []


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    """R34: no file, and a file of something else: 2, one line, and none is made or changed."""
    missing, other = tmp_path / "intents.db", tmp_path / "notes.txt"
    other.write_text("not a database, by its length and by its looks" * 10)
    other.chmod(0o600)
    for file, verb in ((missing, ["list"]), (other, ["resume"]), (other, ["forget", "--settled"])):
        ran = twicesafe_within("intents", verb[0], str(file), *verb[1:])
        assert ran.status == 2 and file.name in "".join(ran.err.split()), ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
