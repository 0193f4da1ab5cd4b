"""The command, as its users run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.running import Ran, twicesafe, twicesafe_within
from tests.doctor import served, shops
from twicesafe.cli.doctor import workers_of
from twicesafe.doctor import CATALOGUE

HERE = "tests.doctor.served"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setattr(served, "FOLDER", tmp_path)
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)


def doctor(*arguments: str) -> Ran:
    return twicesafe_within("doctor", *arguments)


def test_a_healthy_application() -> None:
    """R44: nothing found is 0, in words and for machines."""
    ran = doctor(f"{HERE}:honest()")
    assert ran.status == 0 and "Nothing wrong was found" in ran.out
    assert doctor(f"{HERE}:Factory.make()", "--json").json == {"healthy": True, "findings": []}


def test_findings() -> None:
    """R44: something found is 1, with where it is, what it means and what to set."""
    ran = doctor(f"{HERE}:honest()", "--horizon", "1000000", "--json")
    assert ran.status == 1 and not ran.json["healthy"]
    (found,) = ran.json["findings"]
    assert (found["code"], found["severity"], found["where"]) == ("retention-short", "error", "charge")
    text = doctor(f"{HERE}:honest()", "--horizon", "1000000").out
    assert all(word in text for word in ("error retention-short", "where", "means", "do", "1 error, 0 warnings."))


def test_another_store(tmp_path: Path) -> None:
    """R44: --store looks at another store than the application's."""
    shops.records(tmp_path)
    empty = tmp_path / "empty.db"
    empty.touch()
    ran = doctor(f"{HERE}:honest()", "--store", f"sqlite:///{empty}", "--json")
    assert [one["code"] for one in ran.json["findings"]] == ["schema-wrong"]
    assert doctor(f"{HERE}:honest()", "--store", "memory:", "--workers", "3").status == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((HERE,), "MODULE:NAME"),
        ((f"{HERE}:nobody",), "has no 'nobody'"),
        (("tests.doctor.nowhere:app",), "no module"),
        ((f"{HERE}:NOTHING",), "which no server can serve"),
        ((f"{HERE}:broken()",), "no such setting"),
        ((f"{HERE}:leaves()",), "cannot be imported: SystemExit"),
        ((f"{HERE}:honest()", "--store", "nowhere:"), "a store's address begins with"),
        ((f"{HERE}:honest()", "--horizon", "0"), "horizon"),
    ],
)
def test_what_cannot_be_done(arguments: tuple[str, ...], said: str) -> None:
    """R44: what cannot be loaded or is no option is 2, in one line."""
    ran = doctor(*arguments)
    assert ran.status == 2 and said in ran.err


def test_as_a_process() -> None:
    """R44: the program finds a module in the folder that it is run in."""
    ran = twicesafe("doctor", f"{HERE}:honest()", "--json")
    assert (ran.status, ran.json["healthy"]) == (0, True)


@pytest.mark.parametrize(
    ("environment", "workers"),
    [
        ({}, 1),
        ({"WEB_CONCURRENCY": "4"}, 4),
        ({"WEB_CONCURRENCY": "many"}, 1),
        ({"GUNICORN_CMD_ARGS": "--bind :80 -w 3", "WEB_CONCURRENCY": "4"}, 3),
        ({"GUNICORN_CMD_ARGS": "--workers=2 -k uvicorn.workers.UvicornWorker"}, 2),
    ],
)
def test_how_many_workers(environment: dict[str, str], workers: int) -> None:
    """R10: how many processes there will be is read where servers read it."""
    assert workers_of(environment) == workers


def test_the_page_lists_every_finding() -> None:
    """R44: docs/doctor.md says of each finding what it means and what to set, in the code's words and order."""
    page = Path("docs/doctor.md").read_text(encoding="utf-8")
    listed = re.findall(r"^### `([a-z-]+)`", page, re.MULTILINE)
    assert listed == list(CATALOGUE)
    flat = " ".join(page.split())
    for code, kind in CATALOGUE.items():
        for text in (f"`{code}`", kind.severity.value, kind.title, kind.means, kind.do):
            assert text in flat, (code, text)
