"""Writes the tables of docs/gallery.md: each server of the checker's gallery, what is wrong with it, what finds it.

python -m scripts.make_gallery
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[1] / "docs" / "gallery.md"
PLACE: Final = re.compile(r"<!-- made: gallery -->\n.*?<!-- end -->", re.DOTALL)
TITLES: Final = {
    "keys": "Keys",
    "fingerprints": "Requests",
    "claims": "Claims",
    "records": "Records",
}


def gallery(module: str) -> Any:
    """A module of the gallery, which is one of the tests."""
    return import_module(f"tests.conformance.gallery.{module}")


def tables() -> str:
    """A section for each kind of fault."""
    due, mortal = gallery("exhibits").DUE, gallery("exhibits").MORTAL
    faulty = gallery("standing").FAULTY
    found: dict[str, list[str]] = {kind: [] for kind in TITLES}
    for name in dict.fromkeys((*due, *(name for name in mortal if name in faulty))):
        kind = faulty[name].__module__.rpartition("faults_of_")[2]
        trials = {trial for table in (due, mortal) if name in table for trial in table[name].named}
        shown = ", ".join(f"`{trial}`" for trial in sorted(trials))
        found[kind].append(f"| {spaced(name)} | {sentence(faulty[name])} | {shown} |")
    parts = []
    for kind, title in TITLES.items():
        parts.append(
            f"## {title}\n\n| the server | what is wrong | found by |\n|---|---|---|\n" + "\n".join(found[kind])
        )
    return "\n\n".join(parts)


def spaced(name: str) -> str:
    """The name of a class as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", name).lower().capitalize()


def sentence(server: Any) -> str:
    """What its docstring says, in one line."""
    return " ".join((server.__doc__ or "").split()).replace("|", "\\|")


def filled() -> str:
    """The page with its tables written anew."""
    text = PAGE.read_text(encoding="utf-8")
    places = PLACE.findall(text)
    if len(places) != 1:
        raise SystemExit(f"the gallery has {len(places)} places in {PAGE.name}, not one")
    return text.replace(places[0], f"<!-- made: gallery -->\n\n{tables()}\n\n<!-- end -->")


if __name__ == "__main__":
    PAGE.write_text(filled(), encoding="utf-8")
