"""The fault proxy: each fault as its client and as the server see it, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from twicesafe.storm.plan import Fault, Planned
from twicesafe.storm.proxy import CUT, FaultProxy

KEY = "6f1c2d1e-8a3f-4a57-9a44-0d3a1f7c5b60"
BODY = b'{"amount": "12.30", "intent": 1}'
REQUEST = (
    f"POST /payments HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nIdempotency-Key: {KEY}\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n"
).encode() + BODY
ANSWER = b"HTTP/1.1 201 Created\r\nContent-Length: 40\r\nConnection: close\r\n\r\n" + b"p" * 40
REFUSAL = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

FAILURE = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Backend:
    """A server that keeps what it received and answers with `answers`, in order; the last one again and again."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.received: list[bytes] = []
        self.seen = asyncio.Event()
        self.hold: asyncio.Event | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(len(BODY))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.received.append(getattr(error, "partial", b""))
            writer.close()
            self.seen.set()
            return
        self.received.append(head + body)
        self.seen.set()
        if self.hold is not None:
            await self.hold.wait()
        writer.write(self.answers[0] if len(self.answers) == 1 else self.answers.pop(0))
        writer.close()


def through(
    backend_answers: tuple[bytes, ...], faults: tuple[Fault, ...], act: Callable[[FaultProxy, Backend], Awaitable[Any]]
) -> Any:
    """Run `act` with a proxy in front of a backend, bounded."""

    async def run() -> Any:
        backend = Backend(*backend_answers)
        server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def pick() -> int:
            return port

        proxy = FaultProxy()
        await proxy.start(pick)
        proxy.expect(KEY, [Planned(fault, 0.0) for fault in faults])
        try:
            async with asyncio.timeout(60):
                return await act(proxy, backend)
        finally:
            await proxy.close()
            server.close()

    return asyncio.run(run())


async def attempt(proxy: FaultProxy) -> bytes | None:
    """One attempt: what arrived, or None where the connection was reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(REQUEST)
    try:
        return await reader.read()
    except ConnectionError:
        return None
    finally:
        writer.transport.abort()


async def counted(proxy: FaultProxy) -> dict[str, int]:
    """The faults, once one is counted: a fault is counted when its exchange is over."""
    while not proxy.faults:  # noqa: ASYNC110 - the proxy has no event for it, and `through` bounds it
        await asyncio.sleep(0)
    return dict(proxy.faults)


async def attempt_without_patience(proxy: FaultProxy, backend: Backend) -> None:
    """One attempt whose client hangs up as soon as the server has the request."""
    attempting = asyncio.create_task(attempt(proxy))
    await backend.seen.wait()
    attempting.cancel()
    await asyncio.wait([attempting])


def test_without_a_fault_everything_arrives() -> None:
    """R42: the request reaches the server with its key and body, the answer its client, byte for byte."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        assert await attempt(proxy) == ANSWER
        assert len(backend.received) == 1
        assert KEY.encode() in backend.received[0]
        assert backend.received[0].endswith(b"\r\n\r\n" + BODY)
        assert b"keep-alive" not in backend.received[0]
        assert (proxy.attempts, dict(proxy.faults)) == (1, {})

    through((ANSWER,), (), act)


def test_reset_before() -> None:
    """R42: the client sees a reset, the server nothing."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        assert await attempt(proxy) is None
        assert backend.received == []
        assert await counted(proxy) == {Fault.RESET_BEFORE: 1}

    through((ANSWER,), (Fault.RESET_BEFORE,), act)


def test_reset_midway() -> None:
    """H1: half of the body reaches the server, then both sides see a reset."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        assert await attempt(proxy) is None
        await backend.seen.wait()
        assert len(backend.received[0]) < len(BODY)
        assert await counted(proxy) == {Fault.RESET_MIDWAY: 1}

    through((ANSWER,), (Fault.RESET_MIDWAY,), act)


def test_reset_after() -> None:
    """A1: the server has the whole request and works on, its client is gone."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        backend.hold = asyncio.Event()
        assert await attempt(proxy) is None
        await backend.seen.wait()
        assert backend.received[0].endswith(BODY)
        assert await counted(proxy) == {Fault.RESET_AFTER: 1}
        backend.hold.set()

    through((ANSWER,), (Fault.RESET_AFTER,), act)


@pytest.mark.parametrize(("fault", "seen"), [(Fault.ANSWER_DROPPED, None), (Fault.ANSWER_CUT, ANSWER[:-CUT])])
def test_a_success_that_its_client_never_sees_whole(fault: Fault, seen: bytes | None) -> None:
    """A7: the server answered with a success, which is dropped or cut short on its way back; the next one arrives."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        assert await attempt(proxy) == seen
        assert len(backend.received) == 1
        assert await counted(proxy) == {fault: 1}
        assert await attempt(proxy) == ANSWER

    through((ANSWER,), (fault,), act)


def test_a_success_that_comes_too_late() -> None:
    """A7: the server answered, and the answer is kept back until its client has given up."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        await attempt_without_patience(proxy, backend)
        assert len(backend.received) == 1
        assert await counted(proxy) == {Fault.ANSWER_DELAYED: 1}
        assert await attempt(proxy) == ANSWER

    through((ANSWER,), (Fault.ANSWER_DELAYED,), act)


def test_an_answer_that_is_no_success_is_passed_on_and_the_fault_kept() -> None:
    """R42: answers are dropped after a commit, so a refusal goes through and the next success is dropped."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        assert await attempt(proxy) == REFUSAL
        assert not proxy.faults
        assert await attempt(proxy) is None
        assert await counted(proxy) == {Fault.ANSWER_DROPPED: 1}
        assert await attempt(proxy) == ANSWER

    through((REFUSAL, ANSWER), (Fault.ANSWER_DROPPED,), act)


def test_a_slow_handler_counts_when_its_client_gave_up() -> None:
    """R42: the server is told to be slow; the fault has happened when the client's time-out came first."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        backend.hold = asyncio.Event()
        await attempt_without_patience(proxy, backend)
        assert b"\r\nstorm-fault: slow_handler\r\n" in backend.received[0]
        assert await counted(proxy) == {Fault.SLOW_HANDLER: 1}
        backend.hold.set()
        assert await attempt(proxy) == ANSWER
        assert b"storm-fault" not in backend.received[1]

    through((ANSWER,), (Fault.SLOW_HANDLER,), act)


def test_a_handler_that_is_to_fail_is_told_so_until_it_did() -> None:
    """R42: a failing handler is counted when a server error came of it; a success means that it met no handler."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        assert await attempt(proxy) == ANSWER
        assert await attempt(proxy) == FAILURE
        assert await counted(proxy) == {Fault.HANDLER_FAILS: 1}
        assert [b"storm-fault: handler_fails" in request for request in backend.received] == [True, True]
        assert await attempt(proxy) == ANSWER
        assert b"storm-fault" not in backend.received[2]

    through((ANSWER, FAILURE, ANSWER), (Fault.HANDLER_FAILS,), act)


def test_an_armed_kill_is_ordered_until_the_server_reports_it() -> None:
    """R42: a server may die of something else first, so the order stands until the death is announced."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        ordered = b"\r\nstorm-fault: sigkill_after_effect\r\n"
        await attempt(proxy)
        await attempt(proxy)
        proxy.struck(KEY)
        await attempt(proxy)
        assert [ordered in received for received in backend.received] == [True, True, False]
        assert not proxy.faults

    through((b"",), (Fault.KILL_AFTER_EFFECT,), act)


def test_calm_is_calm() -> None:
    """R42: once it is calm, no planned fault happens any more."""

    async def act(proxy: FaultProxy, backend: Backend) -> None:
        proxy.calm()
        assert await attempt(proxy) == ANSWER
        assert not proxy.faults

    through((ANSWER,), (Fault.RESET_BEFORE, Fault.ANSWER_DROPPED), act)
