"""README.md alone makes an application safe that was there before: its blocks are applied, then the world breaks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.documents.following import Block, blocks, follow
from tests.house.sources import ROOT

APPS = Path(__file__).parent / "apps"
KEY = "8e03978e-40d5-43e8-bc93-6894a57f932"


class Newcomer(NamedTuple):
    """An application, and what README.md says to whoever has one like it."""

    framework: str
    steps: list[Block]

    @property
    def application(self) -> Path:
        return APPS / f"{self.framework}_shop"


def newcomers() -> list[Newcomer]:
    fastapi, django = "An existing FastAPI application", "An existing Django project"
    return [
        Newcomer("fastapi", blocks("README.md", fastapi, django)),
        Newcomer("django", blocks("README.md", django, "The row and the answer are one transaction")),
    ]


NEWCOMERS = pytest.mark.parametrize("newcomer", newcomers(), ids=lambda newcomer: newcomer.framework)


class Shop:
    """The application, running."""

    def __init__(self, folder: Path, port: int, client: httpx2.Client, framework: str) -> None:
        self.folder = folder
        self.client = client
        self.address = f"http://127.0.0.1:{port}/charges"
        self.in_json = framework == "fastapi"

    def pay(self, cents: int, key: str | None = None, token: str = "ada-1") -> httpx2.Response:
        body = {"json": {"cents": cents}} if self.in_json else {"data": {"cents": str(cents)}}
        headers = {"authorization": f"Bearer {token}"} | ({} if key is None else {"idempotency-key": key})
        return self.client.post(self.address, headers=headers, **body)

    def pay_while_it_dies(self, moment: str, cents: int, key: str) -> None:
        """The server is killed under this attempt, which is not answered."""
        told = self.folder / moment
        told.touch()
        with pytest.raises(httpx2.TransportError):
            self.pay(cents, key)
        assert not told.exists()

    def charges(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as database:
            return [cents for (cents,) in database.execute("SELECT cents FROM charges ORDER BY id")]


@contextmanager
def served(folder: Path, framework: str) -> Iterator[Shop]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.documents.serving", framework, str(folder)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    # A connection that is kept could be one to a server that is just being killed.
    with server, httpx2.Client(timeout=100, limits=httpx2.Limits(max_keepalive_connections=0)) as client:
        try:
            yield Shop(folder, int(server.stdout.readline()), client, framework)
        finally:
            server.stdin.close()
            server.wait(timeout=60)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")}


def copied(newcomer: Newcomer, folder: Path) -> Path:
    """The application as it was, with its own tables."""
    shutil.copytree(newcomer.application, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def migrated(newcomer: Newcomer, folder: Path) -> None:
    if newcomer.framework == "django":
        follow([Block("console", "$ python manage.py migrate\n")], folder, environment())


@NEWCOMERS
def test_before_it_happens_twice(newcomer: Newcomer, tmp_path: Path) -> None:
    """House: without README.md's steps the application charges for every attempt, whatever key comes along."""
    folder = copied(newcomer, tmp_path / "shop")
    migrated(newcomer, folder)
    with served(folder, newcomer.framework) as shop:
        answers = [shop.pay(500, KEY + "0") for _ in range(2)]
    assert shop.charges() == [500, 500]
    assert [answer.status_code for answer in answers] == [201, 201]


@NEWCOMERS
def test_afterwards_it_happens_once(newcomer: Newcomer, tmp_path: Path) -> None:
    """R10, R13, R14, R17: twice, at once, and killed at the worst moments: one charge for each key, and one answer."""
    folder = copied(newcomer, tmp_path / "shop")
    follow(newcomer.steps, folder, environment())
    with served(folder, newcomer.framework) as shop:
        first, again = shop.pay(500, KEY + "0"), shop.pay(500, KEY + "0", "ada-2")
        assert shop.charges() == [500]
        with ThreadPoolExecutor(8) as pool:
            rivals = list(pool.map(lambda _: shop.pay(600, KEY + "1"), range(8)))
        after = shop.pay(600, KEY + "1")
        assert shop.charges() == [500, 600]
        shop.pay_while_it_dies("before-the-commit", 700, KEY + "2")
        assert shop.charges() == [500, 600]
        retried = [shop.pay(700, KEY + "2") for _ in range(2)]
        assert shop.charges() == [500, 600, 700]
        shop.pay_while_it_dies("after-the-commit", 800, KEY + "3")
        assert shop.charges() == [500, 600, 700, 800]
        replayed = shop.pay(800, KEY + "3")
        other, keyless, bobs = shop.pay(900, KEY + "0"), shop.pay(900), shop.pay(500, KEY + "0", "bob-1")
        nobody = shop.pay(500, KEY + "0", "nobody")
    assert shop.charges() == [500, 600, 700, 800, 500]
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == replayed.headers["idempotent-replayed"] == "true"
    answered = [rival for rival in rivals if rival.status_code != 409]
    assert answered and {rival.content for rival in answered} == {after.content}
    assert {answer.status_code for answer in (*answered, after, *retried, replayed, bobs)} == {201}
    assert retried[0].content == retried[1].content
    assert [answer.status_code for answer in (other, keyless, nobody)] == [422, 400, 401]


@NEWCOMERS
def test_the_steps_are_few(newcomer: Newcomer) -> None:
    """House: they take minutes: a dozen lines to write at most, two commands, and extras that there are."""
    edits = [edit for block in newcomer.steps if block.language == "diff" for edit in block.edits]
    commands = [command for block in newcomer.steps if block.language == "console" for command in block.commands]
    assert 0 < sum(edit.added for edit in edits) <= 12
    assert len(commands) <= 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = commands[0].partition("[")[2].partition("]")[0].split(",")
    assert commands[0].startswith("pip install ")
    assert set(extras) <= set(project["optional-dependencies"])
