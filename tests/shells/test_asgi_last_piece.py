"""An answer that flows is recorded before the piece by which its client has it all."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.shells.probe import Probe, Reply, post
from tests.shells.rig import Rig
from twicesafe.core.policy import Policy

COUNTED = ((b"content-type", b"text/plain"), (b"content-length", b"8"))


def answered_in_between(probe: Probe, *, raises: type[BaseException] | tuple[()] = ()) -> tuple[Rig, Reply, Reply]:
    """The first answer, and that to a retry which comes after its last byte and before its end."""
    rig = Rig(Policy(response_limit=4), probe)

    async def requests() -> tuple[Reply, Reply]:
        retries = []
        end = probe.between

        async def between(number: int) -> None:
            if number == len(probe.chunks or ()):
                probe.between = None
                retries.append(await post(rig.safe))
                if end is not None:
                    await end(number)

        probe.between = between
        first = await post(rig.safe, raises=raises)
        return first, retries[0]

    return rig, *asyncio.run(requests())


def test_the_last_byte_that_was_promised_is_the_last_piece() -> None:
    """R18: a client that counts bytes has the whole answer before its end is told, and is not told to wait."""
    rig, first, retry = answered_in_between(Probe(headers=COUNTED, chunks=(b"1234", b"5678")))
    assert rig.effects == 1
    assert (first.status, first.body, first.whole) == (201, b"12345678", True)
    assert (retry.status, retry.kind, retry.replayed) == (201, "result-not-kept", True)


def test_all_of_it_in_one_piece_is_the_last_piece() -> None:
    """R18: some frameworks send a whole body as one piece to which they announce another, and then an empty one."""
    rig, first, retry = answered_in_between(Probe(headers=COUNTED, chunks=(b"12345678",)))
    assert rig.effects == 1
    assert (first.status, first.body, first.whole) == (201, b"12345678", True)
    assert (retry.status, retry.kind, retry.replayed) == (201, "result-not-kept", True)


def test_the_application_is_not_told_that_it_is_over_before_it_has_said_so() -> None:
    """H1: a framework that hears of the end gives up its answer, whose last message is still to come."""
    told = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": list(COUNTED)})
        await send({"type": "http.response.body", "body": b"12345678", "more_body": True})
        hearing = asyncio.ensure_future(receive())
        for _ in range(10):
            await asyncio.sleep(0)
        told.append(hearing.done())
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        told.append((await hearing)["type"])

    rig = Rig(Policy(response_limit=4), app=application)
    reply = asyncio.run(post(rig.safe))
    assert reply.whole
    assert told == [False, "http.disconnect"]


def test_what_breaks_after_the_last_byte_breaks_no_answer() -> None:
    """R14: the client has it all; a failure afterwards is for the log, and nothing is unknown."""

    async def broken(_: int) -> None:
        raise ZeroDivisionError

    probe = Probe(headers=COUNTED, chunks=(b"1234", b"5678"), between=broken)
    rig, first, retry = answered_in_between(probe, raises=ZeroDivisionError)
    assert rig.effects == 1
    assert first.body == b"12345678" and isinstance(first.raised, ZeroDivisionError)
    assert (retry.status, retry.kind) == (201, "result-not-kept")
    assert "outcome.unknown" not in rig.told
