"""What every shell asks of an operation, of its store and of its caller."""

from __future__ import annotations

from typing import TypeVar

from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError, ScopeError
from twicesafe.stores.contract import AsyncStore, Store

Given = TypeVar("Given")


def given_or_named(operation: Given | None, policy: Policy | None, name: str) -> Given | Operation:
    """`operation`, or without one an operation called `name` under `policy`. ConfigurationError for both at once."""
    if operation is None:
        return Operation(name, policy or Policy())
    if policy is not None:
        raise ConfigurationError("pass either policy or operation: an operation brings its own policy")
    return operation


def check_scope(scope: object) -> None:
    """ConfigurationError for what neither says who the caller is nor is PUBLIC."""
    if not callable(scope) and scope is not PUBLIC:
        raise ConfigurationError("scope must be a function that says who the caller is, or PUBLIC")


def check_blocking(store: Store) -> None:
    """ConfigurationError for an asynchronous store."""
    if hasattr(store, "aclose"):
        raise ConfigurationError(f"an application that blocks needs a blocking store, not {type(store).__name__}")


def check_async(store: AsyncStore) -> None:
    """ConfigurationError for a store of blocking calls."""
    if not hasattr(store, "aclose"):
        raise ConfigurationError(f"asynchronous work needs an asynchronous store, not {type(store).__name__}")


def check_effects(operation: Operation, store: Store | AsyncStore) -> None:
    """ConfigurationError where `store` cannot do what `operation` declares."""
    if operation.policy.effects is Effects.TRANSACTIONAL and not store.transactional:
        try:
            store.transaction()
        except ConfigurationError as refusal:
            raise ConfigurationError(f"operation {operation.name!r} is transactional, but {refusal}") from None


def check_resumes(operation: Operation, store: Store | AsyncStore) -> None:
    """ConfigurationError where `store` cannot keep how far an operation has come."""
    if not hasattr(store, "advance"):
        raise ConfigurationError(
            f"operation {operation.name!r} is resumable, but {type(store).__name__} keeps no recovery points: use a "
            "store of SQLite, PostgreSQL or MySQL"
        )


def identified(who: object) -> Scope:
    """Who the caller is. ScopeError for nobody; ConfigurationError for what can be no identity, the server's fault."""
    if isinstance(who, str) or who is PUBLIC:
        return who
    if who is None:
        raise ScopeError("the caller could not be identified, and no key is shared by everybody")
    raise ConfigurationError(f"the scope must give a str that identifies the caller, not {type(who).__name__}")
