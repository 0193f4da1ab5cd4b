"""Credentials of a target's description, from the file to the report that is passed on."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO

import pytest

from twicesafe.conformance.reports import Form, write
from twicesafe.conformance.run import check
from twicesafe.conformance.target_file import from_toml
from twicesafe.conformance.trials import chosen

SECRETS = {"SHOP_TOKEN": "tok_0123456789", "SHOP_PIN": "pin/ééé/77", "SHOP_TENANT": "tenant-4711"}

DESCRIBED = """
secret_headers = ["X-Shop"]
[request]
url = "ADDRESS/charges?tenant={{env:SHOP_TENANT}}"
headers = { Authorization = "Bearer {{env:SHOP_TOKEN}}", X-Shop = "shop-secret" }
json = { cart = "{{unique}}", remark = "{{env:SHOP_PIN}}" }
"""


class Chatty(BaseHTTPRequestHandler):
    """Answers with all it was told, in the ways in which servers like to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = "".join(f"{name}: {value}\n" for name, value in self.headers.items())
        said = f"{self.path}\n{told}{base64.b64encode(told.encode()).decode()}\n".encode() + body
        self.send_response(201)
        self.send_header("Content-Length", str(len(said)))
        self.send_header("X-Seen", self.headers["X-Shop"])
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the chatty server is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chatty)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_credentials_of_the_description_leave_with_no_report(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R43: what a header that is secret has, and what came from the environment, is in no form of the report."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    target = from_toml(DESCRIBED.replace("ADDRESS", address))
    report = check(target, trials=chosen(["replay"]))
    assert report.findings[0].evidence, "it was tried"
    for form in Form:
        stream = StringIO()
        write(report, stream, form, evidence=True)
        text = stream.getvalue()
        for secret in (*SECRETS.values(), "shop-secret"):
            assert secret not in text, form
            assert base64.b64encode(secret.encode())[4:-4].decode() not in text, form
        assert "***" in text or form is Form.TABLE
