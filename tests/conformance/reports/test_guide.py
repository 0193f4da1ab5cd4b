"""docs/check.md says what the command takes: its description is one, its commands are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from tests.house.sources import ROOT
from twicesafe.cli import app
from twicesafe.conformance.curl import from_curl
from twicesafe.conformance.reports import Form
from twicesafe.conformance.target import Target
from twicesafe.conformance.target_file import _TABLES, from_toml

GUIDE = (ROOT / Path("docs/check.md")).read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of code of one language."""
    return re.findall(rf"^```{language}\n(.+?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The commands of the guide, as a shell hands them over."""
    lines = "".join(blocks("console") + blocks("yaml")).replace("\\\n", " ").splitlines()
    found = [line.partition("twicesafe check ")[2] for line in lines if "twicesafe check " in line]
    return [shlex.split(line) for line in found]


def test_the_description_is_one() -> None:
    """R43: the guide's TOML describes a target, and shows every table and setting that there is at its top."""
    (described,) = blocks("toml")
    made = from_toml(described)
    assert isinstance(made, Target) and made.counter is not None and made.restart == "docker start shop"
    shown = set(re.findall(r"^\[?([a-z_]+)(?:\]| =)", described, re.MULTILINE)) | {"corrected"}
    assert shown >= _TABLES
    assert "`corrected` is what it should have been" in described


@pytest.mark.parametrize("way", ["url", "database", "command"])
def test_each_way_to_count_is_one(way: str) -> None:
    """R43: what stands in a comment of the guide's TOML is a way to count as well."""
    (described,) = blocks("toml")
    before, _, rest = described.partition("[effects]")
    section, _, after = rest.partition("\n\n")
    lines = re.findall(r'^#? ?((url|pointer|database|sql|command) = "[^"]*")', section, re.MULTILINE)
    wanted = {"url": {"url", "pointer"}, "database": {"database", "sql"}, "command": {"command"}}[way]
    chosen = "\n".join(line for line, name in lines if name in wanted)
    assert chosen.count("\n") + 1 == len(wanted)
    assert from_toml(f"{before}[effects]\n{chosen}\n\n{after}").counter is not None


def test_its_commands_are_commands() -> None:
    """R43: each option that the guide uses is one of the command's, and each curl command is read."""
    check = get_command(app).get_command(None, "check")  # type: ignore[attr-defined]
    options = {option for parameter in check.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert len(commands()) > 5
    for words in commands():
        assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= options, words
        if "--curl" in words:
            assert from_curl(words[words.index("--curl") + 1]).request.names_key
    mentioned = set(re.findall(r"`(--[a-z-]+)", GUIDE))
    assert mentioned <= options and {"--i-own-this", "--dry-run", "--timeout", "--parallel"} <= mentioned


def test_every_form_of_a_report_is_explained() -> None:
    """R43: the guide has a row for each form."""
    assert set(re.findall(r"^\| `([a-z]+)` \| [a-z]", GUIDE, re.MULTILINE)) >= {form.value for form in Form}
