"""What hundreds of clients do to a server that is in trouble: they do not come back together, and not without end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import httpx2
import pytest

from tests.client.certificates import trusting
from tests.client.fleet import DownFor, Process, Queueing, Server, Shedding, World, busy, fullest
from twicesafe.client import AsyncAmbient, Budgets, Intent, RetryPolicy, Succeeded
from twicesafe.client.httpx import asend

CLIENTS = 500
SEEDS = (1, 2, 3)
COME_BACK = ((b"retry-after", b"5"),)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_that_is_told_to_come_back_does_not_come_back_together(seed: int) -> None:
    """R38, R42, K: 500 clients are told 503 and Retry-After 5 in one instant: none is early, and no tenth of a second
    sees more than 15 % of them."""
    world = World(seed)
    server = DownFor(world, 1.0, COME_BACK)
    processes = [Process(server, RetryPolicy(), Budgets(), []) for _ in range(CLIENTS)]
    for process in processes:
        world.at(0.0, process.send)
    world.run()
    first, again = server.arrivals[:CLIENTS], server.arrivals[CLIENTS:]
    assert len(again) == CLIENTS and all(isinstance(process.outcomes[0], Succeeded) for process in processes)
    share = fullest(again, 0.1) / CLIENTS
    print(f"seed {seed}: back after {min(again):.2f} to {max(again):.2f} s, at most {share:.1%} in a tenth of a second")
    assert set(first) == {0.0} and min(again) >= 5.0
    assert share <= 0.15


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_that_is_told_twice_stays_apart(seed: int) -> None:
    """R38, R42: told so again, it does not come together the second time either."""
    world = World(seed)
    server = DownFor(world, 14.0, COME_BACK)
    for _ in range(CLIENTS):
        world.at(0.0, Process(server, RetryPolicy(), Budgets(), []).send)
    world.run()
    shares = [fullest(server.arrivals[start : start + CLIENTS], 0.1) / CLIENTS for start in (CLIENTS, 2 * CLIENTS)]
    print(f"seed {seed}: the fullest tenths of a second of two rounds: {shares[0]:.1%}, {shares[1]:.1%}")
    assert max(shares) <= 0.15


CAPACITY = 250.0
"""Requests a second that the server can do: half of what it is sent."""

TROUBLED: dict[str, Callable[[World], Server]] = {
    "503": lambda world: Shedding(world, CAPACITY, ()),
    "503 and Retry-After": lambda world: Shedding(world, CAPACITY, ((b"retry-after", b"1"),)),
    "silence": lambda world: Queueing(world, CAPACITY),
}


@pytest.mark.parametrize("trouble", TROUBLED)
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_server_at_half_its_capacity_is_not_held_down(seed: int, trouble: str) -> None:
    """R39, R42: 500 clients in ten processes, each with a request a second, are twice what the server can do. Their
    retries add less than 20 % to that; without budgets they would more than double it."""
    extra = {}
    policy = RetryPolicy(attempt_timeout=timedelta(seconds=2))
    for budgets in (True, False):
        server = TROUBLED[trouble](World(seed))
        operations = busy(server, policy, processes=10, rate=CLIENTS / 10, seconds=10.0, budgets=budgets)
        assert operations > 9 * CLIENTS
        extra[budgets] = len(server.arrivals) / operations - 1
    print(f"seed {seed}, {trouble}: extra load {extra[True]:.1%}, without budgets {extra[False]:.1%}")
    assert 0 < extra[True] < 0.2
    assert extra[False] > 1.0


def test_a_fleet_on_real_connections() -> None:
    """R38, R42, K: the same 500 clients through httpx2 and asyncio, on real connections, and only the waiting is not:
    one charge each, and nobody early."""
    seed = SEEDS[0]
    chance, waits, charges = Random(seed), [], []
    first: set[str] = set()
    connections: list[Any] = []

    async def waited(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                await writer.wait_closed()
                return
            key = head.lower().partition(b"idempotency-key: ")[2].partition(b"\r\n")[0].decode()
            if key in first:
                charges.append(key)
                writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            else:
                first.add(key)
                writer.write(b"HTTP/1.1 503 Down\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n")

    async def main() -> list[Any]:
        ambient = AsyncAmbient(sleep=waited, fraction=chance.random)
        some_at_a_time = asyncio.Semaphore(50)

        async def charge(client: Any, url: str) -> Any:
            async with some_at_a_time:
                return await asend(client, Intent.new("POST", url), budgets=Budgets(), ambient=ambient)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/charge"
            async with httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(verify=trusting())) as client:
                outcomes = await asyncio.gather(*[charge(client, url) for _ in range(CLIENTS)])
            await asyncio.gather(*connections)
            return outcomes

    outcomes = asyncio.run(main())
    assert len(charges) == len(set(charges)) == CLIENTS
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    share = fullest(waits, 0.1) / CLIENTS
    print(f"seed {seed}: {share:.1%} of the waits within a tenth of a second of one another")
    assert len(waits) == CLIENTS and min(waits) >= 5.0 and share <= 0.15
