"""The examples of docs/frameworks/ for Starlette, Quart and Litestar, each under a real server, as a user has them."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
SERVERS = {
    "starlette": "uvicorn shop:app --host 127.0.0.1 --port {port} --log-level warning",
    "quart": "hypercorn shop:app --bind 127.0.0.1:{port}",
    "litestar": "granian shop:app --interface asgi --host 127.0.0.1 --port {port}",
}


class Shop:
    """A page's example, served."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def post(
        self, cents: object, *, user: str | None = "ann", key: str | None = KEY, sent: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {"Content-Type": "application/json"}
        headers |= {"X-User": user} if user else {}
        headers |= {"Idempotency-Key": key} if key else {}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("POST", "/charges", sent or json.dumps({"cents": cents}), headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): line for name, line in answer.getheaders()}, answer.read()

    def charges(self) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            return connection.execute("SELECT user, cents FROM charges ORDER BY id").fetchall()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=SERVERS)
def shop(request, tmp_path_factory) -> Iterator[Shop]:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    page = (ROOT / "docs" / "frameworks" / f"{name}.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^```python\n# shop\.py\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    (folder / "shop.py").write_text(text, encoding="utf-8")
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, user TEXT, cents INTEGER)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-m", *SERVERS[name].format(port=port).split()]
    process = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        end = time.monotonic() + PATIENCE
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < end, "the server does not come up"
            threading.Event().wait(0.02)
        yield Shop(folder, port)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_the_example_charges_once(shop):
    """R11, R17, R23, R42, C1: sixteen requests at once and one later make one charge; a replay is the first answer."""
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: shop.post(5), range(16)))
    again = shop.post(5)
    assert shop.charges().count(("ann", 5)) == 1
    assert {status for status, *_ in answers} <= {201, 409}
    first = next(body for status, headers, body in answers if status == 201)
    assert (again[0], again[1]["idempotent-replayed"], again[2]) == (201, "true", first)


def test_what_the_example_refuses(shop):
    """R3, R22, E1, F6: no caller, no key, no number and another body charge nothing, and say what is wrong."""
    before = shop.charges()
    assert shop.post(6, user=None, key="k-1")[0] == 401
    assert shop.post(6, key=None)[0] == 400
    assert shop.post(6, sent=b'{"cents": ', key="k-2")[0] >= 400
    assert shop.charges() == before
    assert shop.post(6, user="bob", key="k-1")[0] == 201
    assert shop.post(7, user="bob", key="k-1")[0] == 422
    assert shop.charges() == [*before, ("bob", 6)]
