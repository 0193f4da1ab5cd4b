"""Clients that hang up on an answer while it flows."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.shells.probe import Wire, post
from tests.shells.rig import Rig, settled
from twicesafe import incoming
from twicesafe.core.policy import Policy
from twicesafe.core.record import Effects

NDJSON = [(b"content-type", b"application/x-ndjson")]
LEASED = [Policy(effects=effects, response_limit=100) for effects in (Effects.OPAQUE, Effects.KEYED)]
CHUNK = b'{"progress": 1}\n'


class Stream:
    """One effect, then chunks: `chunks` of them or without end. `at` lets the client leave before that chunk."""

    def __init__(self, chunks: int | None = None, headers=(), *, at: int = 2, listens: bool = False) -> None:
        self.chunks = chunks
        self.headers = [*NDJSON, *headers]
        self.at = at
        self.listens = listens
        self.ledger: list[bytes] = []
        self.sent = 0
        self.leave = lambda: None
        self.error: BaseException | None = None

    async def __call__(self, scope, receive, send):
        self.ledger.append(b"")
        await receive()
        gone = asyncio.ensure_future(receive()) if self.listens else None
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for number in count() if self.chunks is None else range(self.chunks):
            assert number < 10_000, "it does not end"
            if number == self.at:
                self.leave()
            if self.error is not None and number == self.at + 1:
                raise self.error
            if gone is not None and gone.done():
                assert gone.result() == {"type": "http.disconnect"}
                return
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
            self.sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def leaving(wire: Wire, how: str):
    """How a server shows that the client is gone: a message, a broken `send`, or the end of the request's task."""

    def leave() -> None:
        if how == "message":
            wire.hang_up()
        elif how == "broken send":
            wire._on_send = broken
        else:
            assert wire.task is not None
            wire.task.cancel()

    return leave


def broken(message):
    raise OSError("broken pipe")


async def abandoned(stream: Stream, policy: Policy, how: str):
    """The client leaves; the retry comes when all is over."""
    rig = Rig(policy, app=stream)
    wire = Wire(rig.safe)
    stream.leave = leaving(wire, how)
    first = await wire.start().end()
    await settled(rig)
    assert len(stream.ledger) == 1
    return rig, first, await post(rig.safe)


HOWS = ["message", "broken send", "cancelled"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("policy", LEASED, ids=lambda policy: policy.effects.name)
def test_a_download_that_is_given_up_is_done(policy, listens, how):
    """R14, R18: the client quits a body over the limit: the handler is told and stops, and no operator is needed."""
    stream = Stream(at=20, listens=listens)
    rig, first, again = asyncio.run(abandoned(stream, policy, how))
    assert len(stream.ledger) == 1
    assert 20 <= stream.sent < 30
    assert (again.status, again.kind, again.replayed) == (200, "result-not-kept", True)
    assert not any(event.loud for event in rig.events)
    assert first.raised is None or how == "cancelled"


def test_a_declared_length_over_the_limit_is_told_at_once():
    """R18: what is bound to exceed the limit is not made for its record's sake."""
    stream = Stream(1000, [(b"content-length", b"%d" % (1000 * len(CHUNK)))], at=1)
    _, _, again = asyncio.run(abandoned(stream, LEASED[0], "message"))
    assert len(stream.ledger) == 1
    assert stream.sent < 10
    assert again.kind == "result-not-kept"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("listens", [False, True])
def test_an_endless_stream_below_the_limit_ends(monkeypatch, listens, how):
    """R14: without a reader a stream that may still be recorded goes on for LINGER only, and is then done."""
    monkeypatch.setattr(incoming, "LINGER", 0.0)
    stream = Stream(listens=listens)
    rig, first, again = asyncio.run(abandoned(stream, Policy(), how))
    assert len(stream.ledger) == 1
    assert (again.status, again.kind, again.replayed) == (200, "result-not-kept", True)
    assert not any(event.loud for event in rig.events)
    assert first.raised is None or how == "cancelled"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("at", [0, 2])
def test_a_short_stream_is_finished_and_recorded_without_its_client(at, how):
    """A1, R14: within LINGER nothing is told to the handler, and the retry gets all that the client has missed."""
    stream = Stream(5, at=at)
    _, _, again = asyncio.run(abandoned(stream, Policy(), how))
    assert len(stream.ledger) == 1
    assert (again.status, again.body, again.replayed) == (200, CHUNK * 5, True)


@pytest.mark.parametrize("how", [None, "message"])
def test_a_stream_that_its_handler_breaks_is_unknown(how):
    """D5, I6: the handler's own error is not the client's leaving, though both happen."""

    async def trial():
        stream = Stream(5)
        stream.error = ValueError("row 3")
        rig = Rig(app=stream)
        wire = Wire(rig.safe)
        if how is not None:
            stream.leave = leaving(wire, how)
        first = await wire.start().end()
        again = await post(rig.safe)
        assert len(stream.ledger) == 1
        assert first.raised is stream.error
        assert (again.status, again.kind) == (409, "outcome-unknown")

    asyncio.run(trial())


def test_nothing_is_left_watching():
    """K: a stream that ended leaves no task behind, nor a timer that would keep it."""

    async def trial():
        rig = Rig(app=Stream(5))
        await post(rig.safe)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(trial())
