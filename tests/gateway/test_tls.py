"""A service behind TLS."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.gateway.scripted import Wire, answer, problem_of
from twicesafe.gateway import CallerHeader, Gateway, Upstream


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a key and its own certificate, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "service")])
    public = key.public_key()
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, public, 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "service.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def test_a_service_is_known_by_its_certificate(rig, certificate):
    """R35: with its own authority the service is asked; without, nothing is sent to whoever answers there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(wire: Wire) -> None:
        with context.wrap_socket(wire.socket, server_side=True) as inside:
            behind = Wire(inside)
            rig.service.asked.append(behind.asked())
            behind.send(answer())

    rig.service.take_over = serve
    url = rig.service.url.replace("http", "https")
    rig.set_up(url=url)
    refused = rig.ask(key="k-1")
    assert rig.service.asked == []
    assert (refused.status, problem_of(refused)) == (503, "upstream-unreachable")
    rig.close()
    rig.upstream = Upstream(url, ca=certificate)
    rig.front.gateway = Gateway(rig.upstream, rig.store, caller=CallerHeader("X-User-Id"), observer=rig.events.append)
    assert rig.ask(key="k-1").status == 201
    assert len(rig.service.asked) == 1
    assert rig.service.asked[0].value("x-forwarded-proto") == "http"
