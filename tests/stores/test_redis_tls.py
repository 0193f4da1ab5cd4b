"""Redis behind TLS."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.redis import RedisServer
from tests.stores.claims import wish
from tests.stores.postgresql_kinds import as_async, complete, won
from tests.stores.redis_kinds import KINDS, new_prefix
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.errors import AmbiguousWriteError


def certificate(folder: Path) -> Path:
    """A file with a certificate for 127.0.0.1, which vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@asynccontextmanager
async def unwrapped(to: int, path: Path) -> AsyncIterator[tuple[int, set[asyncio.StreamWriter]]]:
    """A port that speaks TLS and passes on what it is told, and those it talks to."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    clients: set[asyncio.StreamWriter] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(writer)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", to)
        try:
            await asyncio.gather(carry(reader, server_writer), carry(server_reader, writer), return_exceptions=True)
        finally:
            writer.transport.abort()
            server_writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], clients
    finally:
        server.close()
        for writer in clients:
            writer.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
def test_an_exchange_travels_behind_tls(redis_server: RedisServer, kind: str, tmp_path: Path) -> None:
    """R22: over rediss:// many claims at once are won and completed, a large answer comes back whole, and after
    a connection was cut the next one does what was in doubt."""

    async def trial() -> None:
        path = certificate(tmp_path)
        async with unwrapped(redis_server.port, path) as (port, clients):
            store = as_async(KINDS[kind](f"rediss://127.0.0.1:{port}?ssl_ca_certs={path}", prefix=new_prefix()))
            owns = await asyncio.gather(*(won(store, f"key-{n}") for n in range(20)))
            await asyncio.gather(*(complete(store, own) for own in owns))
            large = await won(store, "large", request=bytes(1 << 20))
            rival = await store.claim(wish("large"))
            assert isinstance(rival, Existing) and rival.verdict is Verdict.IN_PROGRESS
            assert rival.record is not None and rival.record.request == bytes(1 << 20)
            for writer in clients:
                writer.transport.abort()
            try:
                await store.release(large)
            except AmbiguousWriteError:
                # Where the cut was seen before the write, nothing is in doubt.
                await store.release(large)
            assert (await store.read(large.digest)).record is None
            await store.aclose()

    asyncio.run(trial())
