"""The command line: what it says, and with which status it ends."""

from __future__ import annotations

import pytest

import twicesafe as package
from tests.cli.running import twicesafe

COMMANDS = (("demo",), ("storm",), ("schema", "apply"), ("schema", "print"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches_by_example(command: tuple[str, ...]) -> None:
    """House: each command's help shows how it is called and what its exit status means."""
    ran = twicesafe(*command, "--help")
    assert ran.status == 0
    assert f"twicesafe {' '.join(command)}" in ran.out.partition("Examples:")[2]
    assert "Exit status:" in ran.out


def test_help_of_the_program_names_every_command() -> None:
    """House: the program's help shows an example of every command."""
    ran = twicesafe("--help")
    assert ran.status == 0
    examples = ran.out.partition("Examples:")[2]
    assert [command for command in COMMANDS if f"twicesafe {' '.join(command)}" not in examples] == []


def test_version() -> None:
    """House: the version is the package's own."""
    assert twicesafe("--version") == (0, f"twicesafe {package.__version__}\n", "")


@pytest.mark.parametrize(
    "wrong",
    [("storm", "--intents", "0"), ("storm", "--seed", "seven"), ("storm", "--servers", "0"), ("sturm",), ("schema",)],
    ids=" ".join,
)
def test_a_wrong_option_is_refused_before_anything_is_done(wrong: tuple[str, ...]) -> None:
    """House: what cannot be asked for ends with status 2 and an explanation."""
    ran = twicesafe(*wrong)
    assert ran.status == 2
    assert "Error" in ran.err or "Usage" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("storm", "--store", "mysql://app:hunter2@localhost/shop"),
        ("schema", "apply", "--store", "mysql://app:hunter2@localhost/shop"),
        ("schema", "print", "--store", "mysql://app:hunter2@localhost/shop"),
        ("storm", "--store", "postgresql://app:hunter2@127.0.0.1:1/shop"),
        ("schema", "apply", "--store", "postgresql://app:hunter2@127.0.0.1:1/shop"),
    ],
    ids=lambda arguments: f"{' '.join(arguments[:2])} {arguments[-1].partition(':')[0]}",
)
def test_an_error_is_one_line_without_the_password(arguments: tuple[str, ...]) -> None:
    """R22: a store that is unknown or out of reach is said so in one line, with status 2 and without its password."""
    ran = twicesafe(*arguments)
    assert (ran.status, ran.out) == (2, "")
    *progress, line = ran.err.splitlines()
    assert line.startswith("twicesafe: ")
    assert len(progress) <= 2
    assert "hunter2" not in ran.err
