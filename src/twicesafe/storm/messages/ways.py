"""The ways by their names. A client is imported only where its way is taken."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Final

from twicesafe.errors import ConfigurationError

WAYS: Final = ("rabbitmq", "nats", "webhooks")


def way_to(name: str) -> Any:
    """The module of one: it has `opened`, `publisher` and `consume`."""
    if name not in WAYS:
        raise ConfigurationError(f"messages go to one of {', '.join(WAYS)}, not to {name!r}")
    try:
        module: ModuleType = import_module(f"twicesafe.storm.messages.{name}")
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"the package {missing.name} is missing: pip install 'twicesafe[storm,{name}]'"
        ) from missing
    return module
