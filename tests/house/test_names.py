"""The words of the house, and those it does not use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.public_api import PUBLIC
from tests.house.sources import modules, path_of

NOT_A_CONCEPT = {"base", "bases", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
"""Names for modules nobody could name."""

OTHER_WORDS = {
    "cache": "record or replay",
    "helper": "what it does",
    "job": "operation",
    "jobs": "operation",
    "lock": "claim or lease",
    "locked": "claimed",
    "manager": "what it does",
    "sweeper": "reaper or purge",
    "token": "idempotency key or owner token",
    "ttl": "lease or retention",
    "util": "what it does",
    "utils": "what it does",
}
"""Words that mean something else in each reader's head, and the one to use."""

WITH_TOKEN = re.compile(r"owner_?token", re.IGNORECASE)


def words(name: str) -> list[str]:
    """`OwnerToken`, `owner_token` and `OWNER_TOKEN` are two words each."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def public_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that a reader of the documentation meets: definitions, their parameters, and attributes of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_") or node.name == "__init__":
                arguments = node.args
                yield node.name, node.lineno
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                    yield argument.arg, argument.lineno
        elif isinstance(node, ast.ClassDef | ast.Module):
            if isinstance(node, ast.ClassDef):
                yield node.name, node.lineno
            for inner in node.body:
                targets = inner.targets if isinstance(inner, ast.Assign) else [getattr(inner, "target", None)]
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield target.id, target.lineno


def test_modules_are_named_after_concepts() -> None:
    """House: no utils, helpers, base, common or manager."""
    wrong = [name for name in modules() if NOT_A_CONCEPT & set(words(name.rpartition(".")[2]))]
    assert modules() and not wrong


def test_public_names_use_the_words_of_the_glossary() -> None:
    """House: one word per concept; no lock, token, job, TTL or sweeper in a public name."""
    wrong = [
        f"{path_of(module)}:{line}: {name}: say {OTHER_WORDS[word]}"
        for module, tree in modules().items()
        if module in PUBLIC or module.startswith("twicesafe.core.")
        for name, line in public_names(tree)
        if not name.startswith("_")
        for word in set(words(WITH_TOKEN.sub("owner", name))) & OTHER_WORDS.keys()
    ]
    assert not wrong, "\n".join(wrong)


def test_error_names_end_in_error() -> None:
    """House: whoever reads an except clause sees that it catches an error."""
    tree = modules()["twicesafe.errors"]
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert "TwicesafeError" in names
    assert [name for name in names if not name.endswith("Error")] == []
