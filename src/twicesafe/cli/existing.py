"""A database that a command looks into has to be there: a mistyped path is an error, not a new and empty file."""

from __future__ import annotations

from pathlib import Path

from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import sqlite_path


def check_there(store: str) -> None:
    """ConfigurationError where an address names a file of SQLite that is not there. Servers answer for themselves."""
    if store.partition(":")[0] != "sqlite":
        return
    path = sqlite_path(store)
    if not Path(path).exists():
        raise ConfigurationError(f"there is no file {path}: `twicesafe schema apply --store {store}` makes it")
