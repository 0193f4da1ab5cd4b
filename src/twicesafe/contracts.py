"""The contracts that stand on routes, as every shell with routes keeps them, blocking or not.

Whether a request may concern one of them is asked before the framework has routed it, of what they have in common.
"""

from __future__ import annotations

from typing import Any

from twicesafe.core.policy import Operation, Policy
from twicesafe.errors import ConfigurationError


class Declared:
    """The operations of one shell. `policy` is that of operations that say nothing else."""

    def __init__(self, policy: Policy | None) -> None:
        self.policy = policy or Policy()
        self.operations: dict[str, Operation] = {}
        self.undecided = Operation("undecided", self.policy)
        """Goes for a request until a route is entered: it may be as large as the largest that any of them takes."""
        self.methods: frozenset[str] = frozenset()
        self.fields = False
        """Whether keys may stand elsewhere, so that any request may turn out to have one."""

    def chosen(self, policy: object, settings: dict[str, Any]) -> Policy:
        """The policy that a decorator's arguments come to."""
        if policy is not None and not isinstance(policy, Policy):
            raise ConfigurationError("write @safe.operation(), with parentheses: settings and a policy go between them")
        return (policy or self.policy).but(**settings)

    def check(self, endpoint: object, operation: Operation) -> None:
        """ConfigurationError for what can be seen before the routes stand."""
        if hasattr(endpoint, "twicesafe_operation"):
            raise ConfigurationError(f"{operation.name!r} is an operation already")
        if operation.name in self.operations:
            raise ConfigurationError(f"two operations are called {operation.name!r}: give one of them another name=")

    def add(self, operation: Operation) -> None:
        """From now on requests are looked at with this one in mind."""
        self.operations[operation.name] = operation
        known = [known.policy for known in self.operations.values()]
        self.undecided = Operation("undecided", Policy(body_limit=max(policy.body_limit for policy in known)))
        self.methods = frozenset().union(*(policy.methods for policy in known))
        self.fields = any(policy.fields for policy in known)

    def operation_of(self, endpoint: object) -> Operation | None:
        """The operation that this endpoint is, if it is one of these."""
        found: Operation | None = getattr(endpoint, "twicesafe_operation", None)
        return found if found is not None and self.operations.get(found.name) is found else None
