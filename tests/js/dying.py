"""A server that keeps its connections, and lets the one die on which the first operation came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.js.shop import MODULE


class Dying(ThreadingHTTPServer):
    """`hits` has key, number and body of each operation that arrived whole."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.hits: list[tuple[str | None, str | None, bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Dying

    def do_GET(self) -> None:
        if self.path == "/twicesafe.js":
            self._answer("text/javascript", MODULE.read_bytes())
        else:
            self._answer("text/html", b"<!doctype html><title>Shop</title><link rel=icon href=data:>")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.hits.append((self.headers["idempotency-key"], self.headers["twicesafe-attempt"], body))
        if len(self.server.hits) == 1:
            self.close_connection = True
        else:
            self._answer("application/json", b"{}")

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def dying() -> Iterator[Dying]:
    """The server, in threads of its own."""
    server = Dying()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
