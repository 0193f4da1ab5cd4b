"""Small wrongs done to a copy of the code, to see which invariant tells.

A mutation names the text that it replaces. The copy is all of the package, imported anew with that text in place of
what the file says; where the text is no longer there once, it fails loudly.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module, invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import twicesafe

ROOT: Final = Path(twicesafe.__file__).parent
ANEW: Final = ("twicesafe", "tests.model")
"""What is imported anew. The model has to know the copy's errors and records, and not the others."""


class Change(NamedTuple):
    """One text for another, in one file of the package. `after` is a text of the file that comes before it."""

    file: str
    old: str
    new: str
    after: str = ""


class Mutation(NamedTuple):
    """A wrong, and where it shows: see mutations.toml."""

    what: str
    changes: tuple[Change, ...]
    scenario: str
    bounds: Mapping[str, int]
    settings: Mapping[str, int]


def mutations() -> list[Mutation]:
    """All of them."""
    listed = tomllib.loads(Path(__file__).with_name("mutations.toml").read_text(encoding="utf-8"))
    return [
        Mutation(
            one["what"],
            tuple(Change(**change) for change in one["change"]),
            one["scenario"],
            one.get("bounds", {}),
            one.get("settings", {}),
        )
        for one in listed["mutation"]
    ]


class Found(NamedTuple):
    """What told: plain words, for the copy's own types end with it."""

    invariant: str
    what: str
    schedule: str
    after: int


class TextIsGoneError(LookupError):
    """The code says something else by now: the mutation has to be thought over."""


def patched(changes: tuple[Change, ...]) -> dict[Path, str]:
    """The files as the mutation has them."""
    texts: dict[Path, str] = {}
    for file, old, new, after in changes:
        path = ROOT / file
        text = texts.get(path) or path.read_text(encoding="utf-8")
        front, found, rest = text.partition(after) if after else ("", "", text)
        if (after and text.count(after) != 1) or old not in rest or (not after and text.count(old) != 1):
            raise TextIsGoneError(f"{file} no longer has this, or has it twice: {after!r} {old!r}")
        texts[path] = front + found + rest.replace(old, new, 1)
    return texts


def go(mutation: Mutation, *, sound: bool = False) -> Found | None:
    """Explore the scenario on the wrong copy. None where nothing tells. `sound`: on a copy without the wrong."""
    with copied(() if sound else mutation.changes, mutation.settings) as scenarios:
        explored = scenarios.gone_through(mutation.scenario, **mutation.bounds)
    return None if explored.broken is None else Found(*explored.broken)


def scenarios_as_they_are() -> AbstractContextManager[Any]:
    """The model's scenarios on the package itself."""
    return nullcontext(import_module("tests.model.scenarios"))


def told(mutation: Mutation, schedule: str, *, sound: bool = False) -> str | None:
    """Which invariant tells on this one schedule. `sound`: on code without the wrong, where it may not be possible."""
    as_it_is = sound and not mutation.settings
    changes = () if sound else mutation.changes
    with scenarios_as_they_are() if as_it_is else copied(changes, mutation.settings) as scenarios:
        try:
            scenarios.replayed(f"{mutation.scenario}: {schedule}")
        except ValueError:
            assert sound, "the wrong code no longer comes this way"
        except AssertionError as broken:
            return str(broken.invariant)  # type: ignore[attr-defined]  # of the copy's BrokenError
    return None


@contextmanager
def copied(changes: tuple[Change, ...], settings: Mapping[str, int]) -> Iterator[Any]:
    """The model's scenarios on a copy of the package."""
    texts = patched(changes)
    kept = {name: module for name, module in sys.modules.items() if _is_anew(name)}
    finder = _Finder(texts)
    for name in kept:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        for module in ("statements", "messages"):
            _tell_files(import_module(f"twicesafe.stores.sql.{module}"), texts)
        for setting, value in settings.items():
            name, _, constant = setting.rpartition(".")
            module_of: Any = import_module(name)
            assert getattr(module_of, constant) != value
            setattr(module_of, constant, value)
        yield import_module("tests.model.scenarios")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_anew(name)]:
            del sys.modules[name]
        sys.modules.update(kept)
        invalidate_caches()


def _is_anew(name: str) -> bool:
    return name.startswith(ANEW) and name != __name__


class _Finder(MetaPathFinder):
    """Finds the files that a mutation changes."""

    def __init__(self, texts: dict[Path, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith("twicesafe."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or (text := self._texts.get(Path(spec.origin))) is None:
            return None
        return spec_from_file_location(fullname, spec.origin, loader=_Loader(fullname, spec.origin, text))


class _Loader(SourceFileLoader):
    """Loads another text than the file's, and leaves nothing compiled behind."""

    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_data(self, path: Any) -> bytes:
        if str(path) != self.path:
            raise OSError("what was compiled is of the file")
        return self._text.encode("utf-8")

    def set_data(self, path: Any, data: Any, *, _mode: int = 0) -> None:
        """Nothing is kept."""


def _tell_files(module: Any, texts: dict[Path, str]) -> None:
    """Have a module that reads statements from a file read them as the mutation has them."""

    class Folder:
        def joinpath(self, name: str) -> Folder:
            self.path = ROOT / "stores" / "sql" / name
            return self

        def read_text(self, encoding: str) -> str:
            return texts.get(self.path) or self.path.read_text(encoding=encoding)

    module.files = lambda package: Folder()
