"""Certificates for servers on 127.0.0.1, made anew by each process: one that the tests' clients trust, and two that
nobody should."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from tempfile import NamedTemporaryFile
from threading import Lock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificate(StrEnum):
    """Whose certificate a server shows."""

    TRUSTED = "trusted"
    STRANGERS = "a stranger's"
    """Signed by nobody whom the client knows."""
    OTHERS = "another host's"
    """Trusted, and for another name than the one that was asked for."""


_NAMES = {
    Certificate.TRUSTED: x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    Certificate.STRANGERS: x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    Certificate.OTHERS: x509.DNSName("pay.example"),
}


@cache
def _all() -> dict[Certificate, tuple[bytes, bytes]]:
    return {whose: _new(whose) for whose in Certificate}


_guard = Lock()


def _made(whose: Certificate) -> tuple[bytes, bytes]:
    """The certificate and its key: the same to all threads."""
    with _guard:
        return _all()[whose]


def _new(whose: Certificate) -> tuple[bytes, bytes]:
    """A certificate that is signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"twicesafe's tests: {whose}")])
    public = key.public_key()
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, public, 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_NAMES[whose]]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def authorities() -> str:
    """What a client of these tests trusts, as PEM."""
    return b"".join([_made(whose)[0] for whose in (Certificate.TRUSTED, Certificate.OTHERS)]).decode("ascii")


@cache
def trusting() -> ssl.SSLContext:
    """A client's context that trusts them and nobody else. Made once: to read a machine's certificates takes long."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authorities())
    return context


@cache
def showing(whose: Certificate) -> ssl.SSLContext:
    """A server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with NamedTemporaryFile(suffix=".pem") as file:
        file.write(b"".join(_made(whose)))
        file.flush()
        context.load_cert_chain(file.name)
    return context
