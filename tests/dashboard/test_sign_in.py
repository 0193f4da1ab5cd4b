"""Signing in, by whatever way a request comes: under any prefix, by any socket, and many at once."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.concurrency import run_in_threadpool

from tests.dashboard.place import CHEAP, PASSWORD, PATIENCE, PEOPLE
from twicesafe.dashboard import Dashboard, hash_password
from twicesafe.dashboard.people import TRIES, People
from twicesafe.errors import ConfigurationError
from twicesafe.stores.sqlite import SqliteStore


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    with closing(SqliteStore(tmp_path / "shop.db")) as store:
        store.apply_schema()
        yield Dashboard(store, people=PEOPLE)


async def ask(
    dashboard: Dashboard,
    path: str = "/sign-in",
    body: bytes = b"",
    cookie: str = "",
    root: str = "",
    client: tuple[str, int] | None = None,
    host: bytes = b"ops.example",
) -> tuple[int, dict[str, str], str]:
    """One request as a server hands it over; a form where there is a body. Status, headers, body."""
    scope = {
        "type": "http", "method": "POST" if body else "GET", "path": root + path, "root_path": root,
        "scheme": "http", "query_string": b"", "client": client,
        "headers": [(b"host", host), (b"cookie", cookie.encode())],
    }  # fmt: skip
    came: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        came.append(message)

    await dashboard(scope, receive, send)
    headers = {name.decode(): line.decode() for name, line in came[0]["headers"]}
    return came[0]["status"], headers, b"".join(one.get("body", b"") for one in came[1:]).decode()


async def sign_in(dashboard: Dashboard, password: str, client: tuple[str, int] | None = None) -> int:
    """The answer's status."""
    _, headers, page = await ask(dashboard, client=client)
    found = re.search('name="proof" value="([^"]+)"', page)
    assert found is not None
    form = urlencode({"proof": found[1], "name": "ann", "password": password}).encode()
    return (await ask(dashboard, body=form, cookie=headers["set-cookie"].partition(";")[0], client=client))[0]


def test_by_a_unix_socket_wrong_passwords_are_as_few(dashboard: Dashboard) -> None:
    """R22: where nobody has an address, all who come have one together: ten wrong ones, no fewer and no more."""

    async def run() -> list[int]:
        return [await sign_in(dashboard, "wrong") for _ in range(TRIES + 1)]

    assert asyncio.run(run()) == [403] * TRIES + [429]


def test_whoever_tries_passwords_holds_no_threads(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """R22: however many passwords are tried at once, the application's own work in threads goes on."""
    looking, go_on = Event(), Event()

    def slow(self: People, name: str, password: str) -> bool:
        looking.set()
        return go_on.wait(PATIENCE)

    async def run() -> list[int]:
        tries = [asyncio.create_task(sign_in(dashboard, "wrong", (f"10.0.0.{one}", 1))) for one in range(60)]
        try:
            await asyncio.to_thread(looking.wait, PATIENCE)
            for _ in range(100):
                await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE / 3):
                await run_in_threadpool(len, "")
        finally:
            go_on.set()
        return await asyncio.gather(*tries)

    monkeypatch.setattr(People, "is_right", slow)
    assert set(asyncio.run(run())) == {303}


@pytest.mark.parametrize(
    ("root", "door"), [("", "/sign-in"), ("/ops", "/ops/sign-in"), ("//evil.example/ops", "/evil.example/ops/sign-in")]
)
def test_it_leads_to_no_other_host(dashboard: Dashboard, root: str, door: str) -> None:
    """R22: whatever it is mounted under, a stranger is led to the sign-in of this host, and to no other."""
    status, headers, _ = asyncio.run(ask(dashboard, "/", root=root))
    assert (status, headers["location"]) == (303, door)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"127.0.0.1:8090", "twicesafe_dashboard_8090"),
        (b"[::1]:8091", "twicesafe_dashboard_8091"),
        (b"[::1]", "twicesafe_dashboard"),
        (b"ops.example", "twicesafe_dashboard"),
        (b"ops.example:; x=1", "twicesafe_dashboard"),
        (b"ops.example:" + b"9" * 9, "twicesafe_dashboard"),
    ],
)
def test_dashboards_on_one_host_keep_their_visits_apart(dashboard: Dashboard, host: bytes, name: str) -> None:
    """R22: signing in to one on another port ends no visit here: browsers send cookies to all ports of a host."""
    _, headers, _ = asyncio.run(ask(dashboard, host=host))
    assert headers["set-cookie"].partition("=")[0] == name


def test_what_could_never_be_compared_is_refused_at_the_start() -> None:
    """House: a hash that was cut, or whose cost scrypt refuses, is said at once, and not to the first who signs in."""
    kept = hash_password(PASSWORD, CHEAP)
    _, n, r, p, salt, made = kept.split("$")
    for wrong in (
        kept[:-8],
        kept[:-1],
        f"scrypt$3${r}${p}${salt}${made}",
        f"scrypt$0${r}${p}${salt}${made}",
        f"scrypt${2**29}$8$1${salt}${made}",
        f"scrypt${2**17}$1$1${salt}${made}",
        f"scrypt${n}${r}${9**9}${salt}${made}",
        f"scrypt${n}${r}${p}$====${made}",
        f"scrypt${n}${r}${p}${b64encode(b'short').decode()}${made}",
        f"scrypt${'9' * 5000}${r}${p}${salt}${made}",
    ):
        with pytest.raises(ConfigurationError, match="hash_password"):
            People({"ann": wrong})
