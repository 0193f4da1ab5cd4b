"""The payment provider: what it charges, for how long it knows a key, and every way in which it breaks."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.demo.provider.ledger import Order, ProviderLedger
from twicesafe.demo.provider.serving import ProviderServer

KEY = "5f0c6f1e-0000-8000-8000-000000000001"
ORDER = {"reference": "order-1", "amount": 4200}
WINDOW = timedelta(seconds=2)


class Time:
    """Stands still unless it is told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: Any


class Place:
    """A provider's address, and its ledger for whoever looks behind the scenes."""

    def __init__(self, port: int, ledger: ProviderLedger, time: Time) -> None:
        self.port = port
        self.ledger = ledger
        self.time = time

    def ask(self, method: str, path: str, content: object = None, key: str | None = None) -> Answer:
        body = None if content is None else json.dumps(content)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, body, {} if key is None else {"Idempotency-Key": key})
            answer = connection.getresponse()
            given = answer.read()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, json.loads(given) if given else None)

    def charge(self, key: str | None = KEY, order: object = ORDER) -> Answer:
        return self.ask("POST", "/charges", order, key)

    def arm(self, fault: ProviderFault, **of: str) -> None:
        assert self.ask("POST", "/faults", {"fault": fault, **of}).status == 204

    def found(self, key: str = KEY) -> Any:
        return self.ask("GET", f"/charges?key={key}").content

    @property
    def made(self) -> int:
        return len(self.ledger.charges())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A provider in a thread, which remembers keys for two seconds of a time that stands still."""
    time = Time()
    ledger = ProviderLedger(tmp_path / "provider.db", WINDOW, time)
    server = ProviderServer(ledger)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Place(server.port, ledger, time)
    server.shutdown()
    thread.join()
    server.server_close()
    ledger.close()


def test_within_its_window_a_key_is_one_charge(place: Place) -> None:
    """R25: a second request under a key is answered with the first one's charge, and marked."""
    first, again = place.charge(), place.charge()
    assert place.made == 1
    assert (first.status, again.status) == (201, 201)
    assert again.content == first.content
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")


def test_past_its_window_a_key_is_another_charge(place: Place) -> None:
    """R25: a provider forgets keys: sent again too late, the same request is a second charge, which it can be asked
    about."""
    place.charge()
    place.time.now += 1.999
    assert place.charge().headers.get("idempotent-replayed") == "true"
    place.time.now += 0.001
    place.charge()
    assert place.made == 2
    assert len(place.found()["charges"]) == 2


def test_without_a_key_every_request_is_a_charge(place: Place) -> None:
    """R42: what does not protect itself is charged as often as it asks."""
    place.charge(None)
    place.charge(None)
    assert place.made == 2


def test_a_key_is_for_one_order(place: Place) -> None:
    """I4: another order under a remembered key is refused and not charged."""
    place.charge()
    assert place.charge(order={"reference": "order-1", "amount": 1}).status == 422
    assert place.made == 1


@pytest.mark.parametrize(
    ("fault", "status", "charged"),
    [
        (ProviderFault.TOO_MANY, 429, 0),
        (ProviderFault.ERROR_BEFORE, 500, 0),
        (ProviderFault.ERROR_AFTER, 500, 1),
    ],
)
def test_errors_it_answers_with(place: Place, fault: ProviderFault, status: int, charged: int) -> None:
    """R42: 429 and 500 before the charge leave nothing, 500 after it leaves one; each strikes once, and is counted."""
    place.arm(fault)
    answer = place.charge()
    assert place.made == charged
    assert len(place.found()["charges"]) == charged
    assert answer.status == status
    assert place.charge().status == 201
    assert place.made == 1
    assert place.ask("GET", "/faults").content == {fault: 1}


@pytest.mark.parametrize(
    ("fault", "error", "charged"),
    [
        (ProviderFault.RESET_BEFORE, ConnectionResetError, 0),
        (ProviderFault.DROP_AFTER, http.client.RemoteDisconnected, 1),
    ],
)
def test_connections_it_ends(place: Place, fault: ProviderFault, error: type[Exception], charged: int) -> None:
    """R42: a reset comes before the charge, a dropped answer after it."""
    place.arm(fault)
    with pytest.raises(error):
        place.charge()
    assert place.made == charged
    place.charge()
    assert place.made == 1


@pytest.mark.parametrize(
    "fault", [ProviderFault.TOO_MANY, ProviderFault.ERROR_BEFORE, ProviderFault.RESET_BEFORE, None]
)
def test_whoever_has_its_answer_is_not_in_its_own_way(tmp_path: Path, fault: ProviderFault | None) -> None:
    """R42: a key is free before a word of the answer is sent or its connection is cut, so that a prompt retry is no
    rival of the attempt before it."""
    with closing(ProviderLedger(tmp_path / "provider.db", WINDOW, Time())) as ledger:
        if fault is not None:
            ledger.arm(fault)
        server = ProviderServer(ledger)
        told = []

        class Watched(server.RequestHandlerClass):  # type: ignore[name-defined, misc]  # it is known at run time only
            def end_headers(self) -> None:
                told.append(server.works_on(KEY))
                super().end_headers()

        server.RequestHandlerClass = Watched
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        place = Place(server.port, ledger, Time())
        if fault is ProviderFault.RESET_BEFORE:
            with pytest.raises(ConnectionResetError):
                place.charge()
            told.append(server.works_on(KEY))
        else:
            place.charge()
        server.shutdown()
        thread.join()
        server.server_close()
        assert told == [False]


def test_a_slow_charge_is_made_although_its_caller_has_gone(tmp_path: Path) -> None:
    """R25: while it takes its time nobody can tell, a second request under the key is refused, and then it is done."""
    time = Time()
    with closing(ProviderLedger(tmp_path / "provider.db", WINDOW, time)) as ledger:
        server = ProviderServer(ledger, slow=timedelta(seconds=60))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        place = Place(server.port, ledger, time)
        place.arm(ProviderFault.SLOW)
        working = threading.Event()
        begin = server.begin

        def begun(key: str) -> bool:
            free = begin(key)
            working.set()
            return free

        server.begin = begun  # type: ignore[method-assign]
        caller = http.client.HTTPConnection("127.0.0.1", server.port)
        caller.request("POST", "/charges", json.dumps(ORDER), {"Idempotency-Key": KEY})
        assert working.wait(30)
        assert place.found() == {"charges": [], "in_progress": True}
        assert place.charge().status == 409
        caller.close()
        server.closing.set()
        for _ in range(3000):
            if place.made:
                break
            threading.Event().wait(0.01)
        assert place.made == 1
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_fault_may_be_meant_for_one_order(place: Place) -> None:
    """R42: faults of one order strike in the order in which they were armed, and nobody else; calm is calm."""
    place.arm(ProviderFault.TOO_MANY, reference="order-1")
    place.arm(ProviderFault.ERROR_BEFORE, reference="order-1")
    place.arm(ProviderFault.ERROR_BEFORE, reference="order-1")
    assert place.charge("another", {"reference": "order-2", "amount": 1}).status == 201
    assert [place.charge().status, place.charge().status] == [429, 500]
    place.ledger.calm()
    assert place.charge().status == 201
    assert place.made == 2


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/charges", {"reference": "order-1"}, 400),
        ("POST", "/charges", [], 400),
        ("POST", "/faults", {"fault": "earthquake"}, 400),
        ("POST", "/refunds", {}, 404),
        ("GET", "/charges", None, 404),
    ],
)
def test_what_it_does_not_know_is_refused(place: Place, method: str, path: str, content: object, status: int) -> None:
    """R42: a request that cannot be meant is answered as one, and charges nothing."""
    assert place.ask(method, path, content).status == status
    assert place.made == 0


@contextmanager
def process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Place]]:
    """A provider as a process of its own."""
    file = folder / "provider.db"
    command = [sys.executable, "-m", "twicesafe.demo.provider", "--port", "0", "--ledger", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            port = int(started.stdout.readline().partition("127.0.0.1:")[2].partition(",")[0])
            with closing(ProviderLedger(file)) as ledger:
                yield started, Place(port, ledger, Time())
        finally:
            started.kill()


@pytest.mark.parametrize(("fault", "charged"), [(ProviderFault.KILL_BEFORE, 0), (ProviderFault.KILL_AFTER, 1)])
def test_it_kills_itself_and_its_ledger_stands(tmp_path: Path, fault: ProviderFault, charged: int) -> None:
    """R42: SIGKILL before or after the charge; whoever starts it again finds what was charged, and the key with it."""
    with process(tmp_path) as (started, place):
        place.arm(fault)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            place.charge()
        assert started.wait(30) == -signal.SIGKILL
        assert place.made == charged
    with process(tmp_path) as (started, place):
        assert place.charge().headers.get("idempotent-replayed") == ("true" if charged else None)
        assert place.made == 1
        assert place.ledger.struck() == {fault: 1}


def test_two_at_once_under_one_key_are_one_charge(tmp_path: Path) -> None:
    """R10: of threads that charge under one key at once, one charges."""
    with closing(ProviderLedger(tmp_path / "provider.db")) as ledger:
        together = threading.Barrier(8)

        def charge() -> None:
            together.wait(30)
            ledger.charge(KEY, Order("order-1", 1))

        threads = [threading.Thread(target=charge) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(ledger.charges()) == 1
