"""A network that loses answers: it brings a request to the target whole, waits for the whole answer, and drops it."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Final

from twicesafe.conformance.findings import Answer, Request
from twicesafe.conformance.wire import NoAnswerError, Place, connected, written

_AT_ONCE: Final = struct.pack("ii", 1, 0)


class LosingProxy:
    """Listens on 127.0.0.1 for one request, which it knows beforehand. What the target answered is in `lost`."""

    def __init__(self, place: Place, request: Request, patience: float) -> None:
        self._place = place
        self._request = request
        self._patience = patience
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(patience)
        self.lost: Answer | None = None
        self.reason = ""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> LosingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(2 * self._patience)
        self._listening.close()

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place("127.0.0.1", self._listening.getsockname()[1], tls=False, address="127.0.0.1")

    def _serve(self) -> None:
        try:
            client, _ = self._listening.accept()
        except OSError as error:
            self.reason = str(error)
            return
        with client:
            client.settimeout(self._patience)
            try:
                head, body = written(self._request, self._place)
                arrived = _read(client, len(head) + len(body))
                with connected(self._place, self._patience) as onward:
                    onward.send(arrived)
                    self.lost = onward.answer(self._request.method)
            except (OSError, NoAnswerError) as error:
                self.reason = str(error)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


def _read(client: socket.socket, size: int) -> bytes:
    arrived = b""
    while len(arrived) < size:
        piece = client.recv(size - len(arrived))
        if not piece:
            raise ConnectionError("the request ended early")
        arrived += piece
    return arrived
