"""Writes docs/commands.md from the program's own help, so that no command, option or exit status is left out.

python -m scripts.make_commands
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from twicesafe.cli import app

PAGE: Final = Path(__file__).parents[1] / "docs" / "commands.md"
COLUMNS: Final = re.compile(r"\S {2,}\S|^ {2,}\S")
"""What is set with spaces."""

PLACE: Final = re.compile(r"<!-- made: commands -->\n.*?<!-- end -->", re.DOTALL)

MORE: Final = {
    "check": "[Checking any API](check.md)",
    "chaos": "[Chaos](chaos.md)",
    "dashboard": "[The dashboard](dashboard.md)",
    "doctor": "[The doctor](doctor.md)",
    "gateway": "[The gateway](gateway.md)",
    "intents": "[Intents that outlive their process](intents.md)",
    "keys": "[Unknown outcomes](stores.md#unknown-outcomes), [of operations](operations.md#unknown-outcomes)",
    "outbox": "[The outbox](outbox.md)",
    "reap": "[Retention](stores/retention.md)",
    "schema": "[Stores](stores.md#tables)",
    "stores": "[Checking a store](stores/checking.md)",
    "worker": "[Operations of several steps](operations.md)",
}
"""Where more is said of a command."""

PLAIN: Final = {
    "int": "NUMBER",
    "float": "NUMBER",
    "str": "TEXT",
    "file": "FILE",
    "path": "PATH",
    "directory": "FOLDER",
}
TYPES: Final = re.compile(rf"<(?:list\[)?({'|'.join(PLAIN)})(?: range)?\]?>")
"""What typer calls values, and what people do."""

NOT_OURS: Final = ("--install-completion", "--show-completion")
"""Typer's own, which the page's head speaks of."""


def commands() -> str:
    """Every command."""
    root: Any = get_command(app)
    return "\n\n".join(part for name, command in root.commands.items() for part in section(command, name, 2))


def section(command: Any, name: str, level: int) -> Iterator[str]:
    """A command, or a group and its commands."""
    yield f"{'#' * level} twicesafe {name}"
    text, examples, endings = told(command)
    if text:
        yield text
    if examples:
        yield f"```console\n{examples}\n```"
    if rows := list(options(command, name)):
        yield "\n".join(["| | |", "|---|---|", *rows])
    if endings:
        yield endings
    if name in MORE and (PAGE.parent / MORE[name].partition("(")[2].partition(")")[0].partition("#")[0]).exists():
        yield f"More: {MORE[name]}."
    for inner, one in getattr(command, "commands", {}).items():
        yield from section(one, f"{name} {inner}", level + 1)


def told(command: Any) -> tuple[str, str, str]:
    """What its help says: prose, examples as they are typed, and a table of exit statuses."""
    prose, examples, endings = [], "", ""
    for block in re.split(r"\n{2,}", f"{command.help or ''}\n\n{command.epilog or ''}".strip()):
        plain = block.removeprefix("\b\n")
        if plain.startswith("Examples:\n"):
            examples = "\n".join(typed(plain.splitlines()[1:]))
        elif plain.startswith("Exit status:\n"):
            endings = statuses(plain.splitlines()[1:])
        elif plain != block and any(COLUMNS.search(line) for line in plain.splitlines()):
            prose.append("```text\n" + "\n".join(line.rstrip() for line in plain.splitlines()) + "\n```")
        else:
            prose.append("\n".join(line.strip() for line in plain.splitlines()))
    return "\n\n".join(prose), examples, endings


def typed(lines: list[str]) -> Iterator[str]:
    """Examples: what is typed, after a prompt; what is said of it, as a remark."""
    for line in lines:
        words = line.removeprefix("  ")
        command, gap, remark = re.split(r"(?<=\S)( {2,})(?=\S)|$", words, maxsplit=1)
        if not words.startswith(" " * 20):
            prompt = "$ " if words.startswith("twicesafe ") else "  "
            yield f"{prompt}{command}" + (f"{gap}# {remark}" if gap else "")
        else:
            yield f"    # {words.strip()}"


def statuses(lines: list[str]) -> str:
    """A table of exit statuses; a line that begins with none goes on with the one before."""
    rows: list[list[str]] = []
    for line in lines:
        found = re.match(r" {0,2}(\d[\d, ]*?) {2,}(.+)$", line)
        if found is None:
            rows[-1][1] += f" {line.strip()}"
        else:
            rows.append([found[1], found[2]])
    return "\n".join(["| exit status | |", "|---|---|", *(f"| {code} | {cell(text)} |" for code, text in rows)])


def options(command: Any, name: str) -> Iterator[str]:
    """Arguments and options, as its help has them."""
    context = command.make_context(name, [], resilient_parsing=True)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or "--help" in record[0] or any(one in record[0] for one in NOT_OURS):
            continue
        environment = f" Or the environment's `{parameter.envvar}`." if isinstance(parameter.envvar, str) else ""
        said = re.sub(r"\[env var: [^;\]]*\]", "", record[1]).replace(f"env var: {parameter.envvar}; ", "")
        spelled = TYPES.sub(lambda found: PLAIN[found[1]], record[0].strip()).replace("|", "\\|")
        yield f"| `{spelled}` | {cell(said)}{environment} |"


def cell(text: str) -> str:
    """In one line, with nothing that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def filled(page: Path = PAGE) -> str:
    """The page with its commands written anew."""
    text = page.read_text(encoding="utf-8")
    places = PLACE.findall(text)
    if len(places) != 1:
        raise SystemExit(f"the commands have {len(places)} places in {page.name}, not one")
    return text.replace(places[0], f"<!-- made: commands -->\n\n{commands()}\n\n<!-- end -->")


if __name__ == "__main__":
    PAGE.write_text(filled(), encoding="utf-8")
