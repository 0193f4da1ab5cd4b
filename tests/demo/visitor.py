"""Somebody who pays without a browser, byte by byte."""

from __future__ import annotations

import json
import secrets
import socket
import urllib.error
import urllib.request
from uuid import uuid4

from tests.demo.service import PATIENCE, Demo


class Visitor:
    """One shopper. Each is another one."""

    def __init__(self, service: Demo) -> None:
        self.service = service
        self.shopper = secrets.token_hex(16)
        self.port = int(service.url.rpartition(":")[2])

    def request(self, lane: str, key: str, body: bytes | None = None, *lines: str, length: int | None = None) -> bytes:
        """A payment as bytes."""
        content = json.dumps({"cart": str(uuid4()), "espresso": 2, "moka": 1}).encode() if body is None else body
        head = [
            f"POST /{lane}/charges HTTP/1.1", "Host: 127.0.0.1", f"Cookie: shopper={self.shopper}",
            "Content-Type: application/json", f"Idempotency-Key: {key}", "X-Request-Id: by-hand",
            f"Content-Length: {len(content) if length is None else length}", *lines,
        ]  # fmt: skip
        return "\r\n".join(head).encode() + b"\r\n\r\n" + content

    def send(self, request: bytes, *, hang_up: bool = False) -> bytes:
        """Everything that comes back, nothing where the connection is cut. With `hang_up` nobody waits for it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            answer = b""
            try:
                connection.sendall(request)
                while not hang_up and (piece := connection.recv(65536)):
                    answer += piece
            except ConnectionError:
                return b""
            return answer

    def arm(self, key: str, *faults: str) -> None:
        """Throw the switches for one key."""
        request = urllib.request.Request(
            f"{self.service.url}/demo/faults",
            data=json.dumps({"key": key, "faults": faults}).encode(),
            headers={"cookie": f"shopper={self.shopper}"},
        )
        urllib.request.urlopen(request, timeout=PATIENCE).close()

    def ask(self, method: str, path: str) -> int:
        """The status of an address."""
        request = urllib.request.Request(f"{self.service.url}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def charges(self, lane: str) -> list[int]:
        return self.service.charges(lane, self.shopper)
