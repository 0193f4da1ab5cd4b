"""Somebody who does what a document says: installs what it names, makes its edits, types its commands.

Edits are blocks of `diff`. A line `+++ FILE` names the file, `@@` begins an edit; what the file has to hold already are
the lines with a blank or a minus in front, exactly once. An edit of new lines only goes where the edit before it ended;
the first one of a file goes to the file's end.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.house.sources import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Edit(NamedTuple):
    """One edit of one file."""

    file: str
    old: str
    new: str

    @property
    def added(self) -> int:
        """Lines that somebody has to write."""
        return len(self.new.splitlines()) - len(self.old.splitlines())


class Block(NamedTuple):
    """A block of a document."""

    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What is typed, without the remarks behind it."""
        return [line[2:].partition("  #")[0].strip() for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def edits(self) -> list[Edit]:
        """What is edited."""
        found: list[tuple[str, list[str]]] = []
        file = ""
        for line in self.text.splitlines():
            if line.startswith("+++ "):
                file = line[4:].partition(",")[0]
            elif line.startswith("@@"):
                found.append((file, []))
            else:
                found[-1][1].append(line or " ")
        return [
            Edit(
                name,
                "".join(f"{line[1:]}\n" for line in lines if line[0] in " -"),
                "".join(f"{line[1:]}\n" for line in lines if line[0] in " +"),
            )
            for name, lines in found
        ]


def blocks(document: str, start: str, end: str) -> list[Block]:
    """The blocks of a document between two of its sentences."""
    text = (ROOT / document).read_text(encoding="utf-8")
    assert text.count(start) == 1, start
    part = text.partition(start)[2].partition(end)
    assert part[1], end
    return [Block(*found) for found in BLOCK.findall(part[0])]


def follow(steps: list[Block], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Do it all, in its order. The commands that were typed."""
    typed = []
    for block in steps:
        match block.language:
            case "diff":
                edit(block.edits, folder)
            case "console":
                for command in block.commands:
                    typed.append(command)
                    if not command.startswith("pip install "):
                        run(command, folder, environment)
            case other:
                raise AssertionError(f"a reader would not know what to do with a block of {other}")
    return typed


def edit(edits: list[Edit], folder: Path) -> None:
    """Make edits, of which each must find its place."""
    file, place = "", 0
    for one in edits:
        path = folder / one.file
        text = path.read_text(encoding="utf-8")
        if one.file != file:
            file, place = one.file, len(text)
        if one.old:
            assert text.count(one.old) == 1, f"{one.file} has this {text.count(one.old)} times:\n{one.old}"
            place = text.index(one.old)
        path.write_text(text[:place] + one.new + text[place + len(one.old) :], encoding="utf-8")
        place += len(one.new)


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Type one command, which must succeed; `python` is the one that runs the tests."""
    words = command.split()
    assert words[0] == "python", command
    ran = subprocess.run(
        [sys.executable, *words[1:]], cwd=folder, env=dict(environment), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
