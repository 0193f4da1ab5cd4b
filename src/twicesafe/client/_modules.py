"""Libraries that are told by what is handed in, and never imported."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from twicesafe.errors import ConfigurationError


@cache
def module_of(kind: type, names: tuple[str, ...], wanted: str) -> Any:
    """The module with all these names in which `kind`, or a class that it descends from, is defined.

    ConfigurationError, which says that it is not of what is `wanted`, where there is none.
    """
    for cls in kind.__mro__:
        module = sys.modules.get(cls.__module__.partition(".")[0])
        if all(hasattr(module, name) for name in names):
            return module
    raise ConfigurationError(f"{kind.__module__}.{kind.__qualname__} is {wanted}")
