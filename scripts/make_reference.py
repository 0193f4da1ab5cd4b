"""Writes the site's reference: a page for each public module, with exactly the names of tests/house/public_api.txt.

The pages hold directives for Sphinx's autodoc, which takes signatures and docstrings from the code. They are made into
docs/reference whenever the site is, and are not kept.

    python scripts/make_reference.py
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, isclass, isroutine
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
LIST: Final = ROOT / "tests" / "house" / "public_api.txt"
TARGET: Final = ROOT / "docs" / "reference"


def public() -> dict[str, list[str]]:
    """Each public module and its names, in the order of the list."""
    found = defaultdict(list)
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            module, _, name = line.rpartition(".")
            found[module].append(name)
    return dict(found)


def written() -> dict[str, str]:
    """Every page by its file's name. What two modules offer is described by the first and named by the other."""
    homes: dict[int, str] = {}
    kept: list[object] = []  # for as long as their ids are told apart
    pages = {}
    for name, names in public().items():
        module = import_module(name)
        directives: list[str] = []
        elsewhere: list[str] = []
        for one in names:
            found = getattr(module, one)
            if isclass(found) or isroutine(found):
                kept.append(found)
                home = homes.setdefault(id(found), name)
                if home != name:
                    elsewhere.append(f"- `{one}`, of [{home}]({home}.md)")
                    continue
            directives.append(f".. {directive(found)}:: {name}.{one}\n" + "   :members:\n" * isclass(found))
        body = [f"# {name}\n", "```{eval-rst}", f".. automodule:: {name}\n", *directives, "```\n"]
        pages[f"{name}.md"] = "\n".join(body + (["Also here:\n", *elsewhere, ""] if elsewhere else []))
    return pages


def directive(found: Any) -> str:
    """What autodoc calls this kind of thing."""
    if isclass(found):
        return "autoexception" if issubclass(found, BaseException) else "autoclass"
    return "autofunction" if isroutine(found) else "autodata"


def pages() -> list[str]:
    """The names of the pages, as a tree of pages has them."""
    return list(public())


def table() -> str:
    """The modules, each with the first sentence of its docstring."""
    rows = [f"| [{name}]({name}.md) | {summary(name)} |" for name in public()]
    return "\n".join(["| | |", "|---|---|", *rows, ""])


def summary(module: str) -> str:
    """The first paragraph of a module's docstring, in one line."""
    text = getdoc(import_module(module)) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def as_restructured_text(_app: Any, _what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: code between single backticks or indented, and columns that are set with spaces.

    Those Sphinx is told of; whatever else it would read into them is escaped.
    """
    made: list[str] = []
    if BUILT_IN.match(" ".join(lines)):
        lines.clear()
    for block in blocks(lines):
        if block[0].startswith("    "):
            made += [".. code-block:: python", "", *block, ""]
        elif len(block) > 1 and sum(COLUMNS.search(line) is not None for line in block) * 2 > len(block):
            made += [".. code-block:: text", "", *(f"    {line}" for line in block), ""]
        else:
            made += [*map(escaped, block), ""]
    lines[:] = made


BUILT_IN: Final = re.compile(r"Alias for field number \d+$|Represent a (PEP 604 )?union type")
"""What Python says of a field or an alias that has no docstring of its own."""

COLUMNS: Final = re.compile(r"\S {2,}\S")


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs. One of code goes on over blank lines for as long as it is indented."""
    block: list[str] = []
    blanks = 0
    for line in lines:
        if not line.strip():
            blanks += bool(block)
            continue
        if blanks and block and block[0].startswith("    ") and line.startswith("    "):
            block += [""] * blanks
        elif blanks:
            yield block
            block = []
        blanks = 0
        block.append(line)
    if block:
        yield block


def escaped(line: str) -> str:
    """The line, with the marks of reStructuredText outside of code taken for what they are."""
    pieces = re.split(r"(`[^`]*`)", line)
    return "".join(piece if number % 2 else re.sub(r"([*|_\\])", r"\\\1", piece) for number, piece in enumerate(pieces))


def main() -> None:
    """Write the pages, and take away those of modules that are no longer public."""
    TARGET.mkdir(exist_ok=True)
    made = written()
    for path in TARGET.glob("twicesafe*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        path = TARGET / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
