"""The provider over HTTP, on 127.0.0.1. A thread for each connection, so that one that sleeps holds up nobody."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from twicesafe.demo.provider.faults import ProviderFault
from twicesafe.demo.provider.ledger import Charge, KeyMisusedError, Order, ProviderLedger

SLOW: Final = timedelta(seconds=3)
"""How long a slow charge takes unless it is said otherwise: longer than its callers should wait."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: closing sends RST instead of FIN."""

_BEFORE: Final = frozenset(
    {ProviderFault.TOO_MANY, ProviderFault.ERROR_BEFORE, ProviderFault.RESET_BEFORE, ProviderFault.KILL_BEFORE}
)
"""The faults that keep the charge from being made."""


class ProviderServer(ThreadingHTTPServer):
    """Serves `ledger` on `port`, or on a free one: `serve_forever`, until `shutdown`. `port` is then what it got."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, ledger: ProviderLedger, port: int = 0, slow: timedelta = SLOW) -> None:
        self.ledger = ledger
        self.slow = slow.total_seconds()
        self.closing = threading.Event()
        self._working: set[str] = set()
        self._turn = threading.Lock()
        super().__init__(("127.0.0.1", port), _Request)
        self.port: int = self.server_address[1]

    def begin(self, key: str) -> bool:
        """Begin to work on a request under `key`; False where another one is at it."""
        with self._turn:
            free = key not in self._working
            self._working.add(key)
            return free

    def end(self, key: str) -> None:
        """The request under `key` is done with."""
        with self._turn:
            self._working.discard(key)

    def works_on(self, key: str) -> bool:
        """Whether a request under `key` may still be charged."""
        with self._turn:
            return key in self._working

    def server_bind(self) -> None:
        """Without asking the network for a name of this machine, which takes some networks long."""
        TCPServer.server_bind(self)

    def server_close(self) -> None:
        """Give the port back, and let nobody sleep."""
        self.closing.set()
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has gone is no news."""


class _Request(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    server: ProviderServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            given = json.loads(body)
            if self.path == "/charges":
                order = Order(str(given["reference"]), int(given["amount"]))
            elif self.path == "/faults":
                self.server.ledger.arm(ProviderFault(given["fault"]), given.get("reference"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._answer(400, {"error": f"this cannot be read: {error}"})
            return
        if self.path == "/charges":
            self._charge(self.headers.get("idempotency-key"), order)
        elif self.path == "/faults":
            self._answer(204)
        else:
            self._answer(404, {"error": "POST /charges or /faults"})

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        keys = parse_qs(address.query).get("key", [])
        if address.path == "/charges" and len(keys) == 1:
            # In this order: what is charged in between is found by one of the two.
            working = self.server.works_on(keys[0])
            charges = [_shown(charge) for charge in self.server.ledger.under(keys[0])]
            self._answer(200, {"charges": charges, "in_progress": working})
        elif address.path == "/faults":
            self._answer(200, dict(self.server.ledger.struck()))
        else:
            self._answer(404, {"error": "GET /charges?key=... or /faults"})

    # --- a charge -----------------------------------------------------------------------------------------------------

    def _charge(self, key: str | None, order: Order) -> None:
        if key is not None and not self.server.begin(key):
            self._answer(409, {"error": "a request under this key is being worked on"})
            return
        try:
            fault = self.server.ledger.strike(order.reference)
            made = None if fault in _BEFORE else self._made(key, order, fault)
        finally:
            # Before a word of the answer: whoever hears it may come again at once, and is not in the way of itself.
            if key is not None:
                self.server.end(key)
        if made is None:
            self._refuse(fault)
        else:
            self._tell(made, fault)

    def _made(self, key: str | None, order: Order, fault: ProviderFault | None) -> tuple[Charge | None, bool]:
        """The charge, and whether it had been made before; none where the key was used with another order."""
        if fault is ProviderFault.SLOW:
            self.server.closing.wait(self.server.slow)
        try:
            return self.server.ledger.charge(key, order)
        except KeyMisusedError:
            return None, False

    def _tell(self, made: tuple[Charge | None, bool], fault: ProviderFault | None) -> None:
        charge, replayed = made
        if charge is None:
            self._answer(422, {"error": "this key was used with another order"})
            return
        match fault:
            case ProviderFault.ERROR_AFTER:
                self._answer(500, {"error": "an accident"})
            case ProviderFault.DROP_AFTER:
                self.close_connection = True
            case ProviderFault.KILL_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                self._answer(201, _shown(charge), {"Idempotent-Replayed": "true"} if replayed else {})

    def _refuse(self, fault: ProviderFault | None) -> None:
        """Answer, or cut, a charge that this fault kept from being made."""
        match fault:
            case ProviderFault.TOO_MANY:
                self._answer(429, {"error": "too many requests"}, {"Retry-After": "1"})
            case ProviderFault.ERROR_BEFORE:
                self._answer(500, {"error": "an accident"})
            case ProviderFault.RESET_BEFORE:
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # The base class would say good-bye first.
                os.close(self.connection.detach())
            case ProviderFault.KILL_BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)

    def _answer(self, status: int, content: object = None, headers: Mapping[str, str] = {}) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if content is not None:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
        """What it did is in its ledger."""


def _shown(charge: Charge) -> dict[str, str | int]:
    return {"charge": charge.number, "reference": charge.reference, "amount": charge.amount}
