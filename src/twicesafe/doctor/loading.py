"""The application that MODULE:NAME names."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from twicesafe.errors import ConfigurationError


def load(name: str) -> Any:
    """The object, looked for from the working directory as python -m does. ConfigurationError where there is none."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ConfigurationError(f"name what is served as MODULE:NAME, such as shop.main:app, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigurationError(f"{name}: it imports {error.name!r}, which is not installed") from error
        raise ConfigurationError(f"{name}: there is no module {error.name!r} to be imported from here") from None
    called = attribute.endswith("()")
    for part in attribute.removesuffix("()").split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"{name}: {module} has no {attribute!r}") from None
    return found() if called else found
