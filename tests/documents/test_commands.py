"""Every command is documented, by its own help and on docs/commands.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from scripts import make_commands
from twicesafe.cli import app


def each(command: Any, path: tuple[Any, ...] = (), name: str = "twicesafe") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every command that does something, with the groups that it is in."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, (*path, command)
    else:
        for word, one in inner.items():
            yield from each(one, (*path, command), f"{name} {word}")


COMMANDS = dict(each(get_command(app)))


def test_the_page_of_commands_is_what_the_program_says() -> None:
    """House: docs/commands.md has every command, option and exit status; `make docs` writes it anew."""
    assert make_commands.filled() == make_commands.PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^##+ (twicesafe .+)$", make_commands.commands(), re.MULTILINE)
    assert set(COMMANDS) <= set(shown)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(name: str) -> None:
    """House: each command's help, or its group's, shows how it is typed and what its exit status means."""
    taught = "\n\n".join(f"{one.help or ''}\n{one.epilog or ''}" for one in COMMANDS[name][1:])
    examples = re.search(r"Examples:\n(.+?)\n\n|Examples:\n(.+)", taught, re.DOTALL)
    assert examples is not None
    assert name in examples[0]
    assert re.search(r"Exit status:\n +0 ", taught)
    assert re.search(r"^ +2 ", taught, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name: str) -> None:
    """House: no argument and no option is without a sentence."""
    command = COMMANDS[name][-1]
    silent = [one.name for one in command.params if one.name != "help" and not getattr(one, "help", None)]
    assert silent == []
    assert command.help
