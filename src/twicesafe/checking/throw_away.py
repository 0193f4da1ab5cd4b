"""The way from a store's address to its throw-away place. Each kind's libraries are imported only when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twicesafe.checking.local import beside_a_file, in_memory
from twicesafe.checking.places import Place, ways
from twicesafe.errors import ConfigurationError
from twicesafe.stores.urls import kind_of


@contextmanager
def throw_away(url: str) -> Iterator[Place]:
    """A place at this address. ConfigurationError where no driver is installed, StoreUnavailableError where nobody
    answers or nothing may be made."""
    scheme = url.partition(":")[0].partition("+")[0]
    kind_of(url)
    if scheme == "memory":
        yield in_memory()
        return
    opened, remarks = ways(url)
    if scheme == "sqlite":
        with beside_a_file(url, opened, remarks) as place:
            yield place
    elif scheme in ("postgresql", "postgres"):
        from twicesafe.checking.databases import in_a_database
        from twicesafe.checking.postgresql import POSTGRESQL

        with in_a_database(POSTGRESQL, url, opened, remarks) as place:
            yield place
    elif scheme == "mysql":
        from twicesafe.checking.databases import in_a_database
        from twicesafe.checking.mysql import MYSQL

        with in_a_database(MYSQL, url, opened, remarks) as place:
            yield place
    elif scheme == "dynamodb":
        from twicesafe.checking.tables import in_a_table

        with in_a_table(url, opened, remarks) as place:
            yield place
    elif scheme in ("redis", "rediss"):
        from twicesafe.checking.prefixes import under_a_prefix

        with under_a_prefix(url, opened, remarks) as place:
            yield place
    else:
        raise ConfigurationError(f"{scheme} stores cannot be checked yet")
