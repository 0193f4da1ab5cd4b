"""`twicesafe schema`."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing, closing
from importlib.util import find_spec
from typing import Annotated, Final

from twicesafe.cli.terminal import typer, until_interrupted
from twicesafe.errors import ConfigurationError
from twicesafe.stores.connecting import without_password
from twicesafe.stores.contract import Store
from twicesafe.stores.sql.schema import schema_text, versions
from twicesafe.stores.sql.statements import Dialect
from twicesafe.stores.urls import open_async_store, open_store

schema = typer.Typer(
    help="Make or print the tables that twicesafe keeps its records in.",
    short_help="Make or print the tables.",
    no_args_is_help=True,
)

EPILOG: Final = """
\b
Examples:
  twicesafe schema print --store postgresql > twicesafe.sql
  twicesafe schema apply --store sqlite:///shop.db
  twicesafe schema apply --store postgresql://app:secret@localhost/shop
  twicesafe schema apply --store dynamodb://eu-central-1/records

\b
Exit status:
  0  the tables are as this release needs them
  2  they could not be made, or a newer release made them
"""


@schema.command("apply", epilog=EPILOG, short_help="Make or upgrade the tables.")
def schema_apply(
    store: Annotated[
        str, typer.Option(help="URL of a store: sqlite:///FILE, {postgresql,mysql}://USER:PASSWORD@HOST/DATABASE.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make or upgrade the tables. Running it again changes nothing; running it everywhere at once is safe."""
    kind = _kind(store)
    records = _blocking(store)
    if records is None:
        until_interrupted(_apply_by_asyncio(store))
    else:
        with closing(records):
            records.apply_schema()
            records.check_schema()
    version = versions(Dialect(kind))[-1].number if kind in set(Dialect) else None
    name = without_password(store)
    if as_json:
        sys.stdout.write(json.dumps({"store": name, "dialect": kind, "version": version}) + "\n")
    elif version is None:
        sys.stdout.write(f"{name} is as this release needs it.\n")
    else:
        sys.stdout.write(f"The tables in {name} are of version {version}, as this release needs them.\n")


def _blocking(store: str) -> Store | None:
    """None where asyncio is the better way, or the only one that is installed."""
    if _kind(store) == Dialect.POSTGRESQL and find_spec("asyncpg") is not None:
        # It says at once where nobody answers; psycopg's pool goes on trying.
        return None
    try:
        return open_store(store)
    except ConfigurationError as refusal:
        if not isinstance(refusal.__cause__, ModuleNotFoundError):
            raise
        return None


async def _apply_by_asyncio(store: str) -> None:
    async with aclosing(open_async_store(store)) as records:
        await records.apply_schema()
        # What a newer release made was left alone, and is of no use here.
        await records.check_schema()


@schema.command("print", epilog=EPILOG, short_help="Print the tables as a script.")
def schema_print(
    store: Annotated[str, typer.Option(help="`sqlite`, `postgresql`, `mysql`, or a URL; nothing is connected to.")],
) -> None:
    """Print the tables as a script, for those who apply it by other means."""
    sys.stdout.write(schema_text(_dialect(store)))


def _kind(store: str) -> str:
    """What the address begins with."""
    scheme = store.partition(":")[0]
    return "postgresql" if scheme == "postgres" else scheme


def _dialect(store: str) -> Dialect:
    """By the name or the scheme of a URL."""
    kind = _kind(store)
    try:
        return Dialect(kind)
    except ValueError:
        raise ConfigurationError(
            f"tables of SQL are kept in {' or '.join(Dialect)}, not in {kind!r}: name one of them, or a URL of one"
        ) from None
