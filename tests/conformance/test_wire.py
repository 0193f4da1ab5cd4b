"""What goes over the wire in a check, as a server that reads bytes sees it."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from tests.gateway.scripted import PATIENCE, Service, answer
from twicesafe.conformance.bench import USER_AGENT, Bench, Known
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.limits import Limits, OutOfBoundsError
from twicesafe.conformance.profiles import profile
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.wire import NoAnswerError, find

TARGET = """
[request]
url = "URL/orders?of={{unique}}"
headers = { Content-Type = "application/json" }
json = { order = "{{unique}}", number = 1 }
"""


@pytest.fixture
def service():
    with closing(Service()) as service:
        yield service


@pytest.fixture
def bench(service):
    target = from_toml(TARGET.replace("URL", service.url))
    bench = Bench(target, profile("ietf"), Limits(answer=PATIENCE), 20, Known(0.0, telling=True))
    yield bench
    bench.close()


def test_an_intent_is_the_same_on_each_attempt(service, bench) -> None:
    """R43, I8: attempts at one intent have one key, one URL and the same bytes; those at another have none of them."""
    intent, other = bench.intent(), bench.intent()
    for one in (intent, intent, other):
        bench.send(bench.request(one))
    first, second, third = service.asked
    assert first == second
    assert first.value("idempotency-key") == intent.key != third.value("idempotency-key")
    assert first.body == f'{{"order": "{intent.unique}", "number": 1}}'.encode() != third.body
    assert first.start == f"POST /orders?of={intent.unique} HTTP/1.1" != third.start
    assert first.values("user-agent") == [USER_AGENT]


@pytest.mark.parametrize("key", ["", "  \t", '"a b"', "a\x01b", "schlüssel-日", "k" * 9000])
def test_a_key_is_sent_as_it_is(service, bench, key) -> None:
    """R43, G5: no key is so wrong that it would be corrected on its way."""
    bench.send(bench.rewritten(bench.request(bench.intent()), key))
    (found,) = service.asked[0].values("idempotency-key")
    assert found in (key.strip(), key.strip().encode().decode("latin-1"))


def test_two_lines_of_a_header_stay_two(service, bench) -> None:
    """R43, R4: two keys arrive as two lines."""
    request = bench.request(bench.intent())
    bench.send(request._replace(lines=(*request.lines, ("Idempotency-Key", "other"))))
    assert service.asked[0].values("idempotency-key") == [request.values("Idempotency-Key")[0], "other"]


@pytest.mark.parametrize("chunked", [False, True])
def test_an_upload_is_cut_in_the_middle(service, bench, chunked) -> None:
    """R43, K: half of a body arrives, and then the end of the connection."""
    seen, over = [], threading.Event()

    def take(wire) -> None:
        seen.append(wire.head())
        seen.append(wire.rest())
        over.set()

    service.take_over = take
    request = bench.request(bench.intent())
    bench.cut(request, chunked=chunked)
    assert over.wait(PATIENCE)
    _, arrived = seen
    assert 0 < len(arrived) <= len(request.body) // 2 + chunked * 10
    assert arrived.endswith(b"0\r\n\r\n") is False
    (exchange,) = bench.evidence
    assert exchange.answer is None and "hung up after" in exchange.note


def test_an_answer_is_lost_after_the_target_gave_it(service, bench) -> None:
    """R42, R43: the target gets the whole request and is rid of its answer; the client gets nothing of it."""
    service.script = lambda wire: wire.send(answer(b"charged"))
    request = bench.request(bench.intent())
    lost = bench.lose(request)
    assert [one.body for one in service.asked] == [request.body]
    assert (lost.status, lost.body) == (201, b"charged")
    assert "dropped" in bench.evidence[0].note


def test_duplicates_are_sent_at_the_same_moment(service, bench) -> None:
    """R42, R43: the last byte of no duplicate goes before all the others have arrived but for theirs."""
    together = threading.Barrier(5)

    def script(wire) -> None:
        # A server that reads one after the other would never get here with all five.
        together.wait(PATIENCE)
        wire.send(answer(b"one"))

    service.script = script
    request = bench.request(bench.intent())
    answers = bench.together([request] * 5)
    assert [one and one.body for one in answers] == [b"one"] * 5
    assert service.connections == 5


def test_a_request_is_left_when_it_is_told_to_be_at_work(service, bench) -> None:
    """R43: nobody hangs up before the target says that the request is at work, however long that takes."""
    asked, gone = threading.Event(), threading.Event()

    def take(wire) -> None:
        if wire.head()[0].startswith("GET"):
            told = (len(service.asked) and b"200 OK") or b"404 Not Found"
            service.asked.append(None)
            wire.send(answer(b"", status=told))
        else:
            asked.set()
            wire.rest()
            gone.set()

    service.take_over = take
    template = from_toml(
        f'[request]\nurl = "{service.url}"\n[slow.reached]\nmethod = "GET"\nurl = "{service.url}/held"'
    ).slow
    intent = bench.intent()
    assert bench.abandon(bench.request(intent), 0.0, lambda ended: bench.reach(template, intent, ended))
    assert asked.wait(PATIENCE) and gone.wait(PATIENCE)
    assert len(service.asked) == 2


def test_an_answer_that_breaks_off_is_none(service, bench) -> None:
    """R43: half an answer is never taken for a whole one."""
    service.script = lambda wire: (wire.send(answer(b"charged")[:-3]), wire.reset())
    with pytest.raises(NoAnswerError):
        bench.send(bench.request(bench.intent()))
    assert bench.evidence[0].answer is None and bench.evidence[0].note


def test_a_trial_stops_at_its_last_request(service, bench) -> None:
    """R43: a trial sends as many requests as it said, and not one more."""
    request = bench.request(bench.intent())
    for _ in range(20):
        bench.send(request)
    with pytest.raises(OutOfBoundsError):
        bench.send(request)
    assert len(service.asked) == 20


@pytest.mark.parametrize("url", ["http://192.0.2.1/", "http://[2001:db8::1]:8000/", "ftp://127.0.0.1/", "nothing"])
def test_other_machines_are_left_alone(url) -> None:
    """R43: what is not on this machine is refused before anything is sent."""
    with pytest.raises(CannotCheckError):
        find(url, anywhere=False)


def test_the_own_machine_is_not(service) -> None:
    """R43: this machine may be named in any way that leads to it; others by those who say that they own them."""
    assert find(service.url, anywhere=False).address == "127.0.0.1"
    assert find("http://localhost:1/", anywhere=False).port == 1
    assert find("http://192.0.2.1/", anywhere=True).address == "192.0.2.1"
