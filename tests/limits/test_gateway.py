"""Limits on new keys in front of any service."""

from __future__ import annotations

import asyncio
import socket

from tests.shells.probe import post
from twicesafe.gateway.settings import Settings


def test_the_gateway_limits_new_keys() -> None:
    """R15: a caller's second new key is refused by the gateway, before anything is sent to the service."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        gateway = Settings(
            upstream=f"http://127.0.0.1:{nobody.getsockname()[1]}", store="memory:", scope_header="X-User", new_keys=1
        ).application()

        async def ask(user: bytes, key: str) -> str:
            return (await post(gateway, key=key, headers=[(b"x-user", user)])).kind

        async def run() -> list[str]:
            return [await ask(user, f"k-{n:016}") for n, user in enumerate((b"ann", b"ann", b"bob"))]

        assert asyncio.run(run()) == ["upstream-unreachable", "too-many-keys", "upstream-unreachable"]
