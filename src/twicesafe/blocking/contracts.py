"""Contracts on routes: what the shells of blocking frameworks that have routes are built on.

A layer around the application lets everything through; who claims is the route itself, once the framework has
authenticated its caller. So what is refused before leaves no record (E1), on a replay as on a first run (R22), and from
the claim on the layer holds the answer back until it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twicesafe.blocking.dealings import Shared
from twicesafe.blocking.environ import (
    UNDERWAY,
    Environ,
    body_before_key,
    facts_of,
    key_of,
    take_body,
    too_large,
    variable,
)
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.sending import Sendable
from twicesafe.blocking.serving import StartResponse, WSGIApp, serve
from twicesafe.contracts import Declared
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError, RequestError
from twicesafe.operations import identified


class Contracts(Declared):
    """The operations of one shell, and what becomes of a request to one of them."""

    def __init__(self, policy: Policy | None) -> None:
        super().__init__(policy)
        self._slot = f"twicesafe.{id(self)}"
        self._body_slot = f"{self._slot}.body"
        self._carriers: frozenset[str] = frozenset()

    def add(self, operation: Operation) -> None:
        super().add(operation)
        headers = (known.policy.header for known in self.operations.values())
        self._carriers = frozenset(variable(header) for header in headers if header)

    # --- one request --------------------------------------------------------------------------------------------------

    def serve(self, app: WSGIApp, shared: Shared, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Let the application answer, in a layer that holds the answer back from the moment a route is entered."""
        if environ["REQUEST_METHOD"].upper() not in self.methods or UNDERWAY in environ:
            # Behind a WSGI middleware of ours, that one does the work.
            return app(environ, start_response)
        keyed = environ[self._slot] = BlockingRequest(shared, self.undecided, "")
        if self.fields or not self._carriers.isdisjoint(environ):
            # Before the framework reads it: from then on it gives no more than a parsed form.
            environ[self._body_slot] = take_body(environ, self.undecided.policy.body_limit)
        return serve(keyed, app, environ, start_response, _as_it_says)

    def underway(self, environ: Environ) -> BlockingRequest | None:
        """The request that this environ belongs to, if it is one for which a route may claim."""
        found: BlockingRequest | None = environ.get(self._slot) or environ.get(UNDERWAY)
        return found

    def current(self, environ: Environ) -> BlockingRequest:
        """The request that this environ belongs to. ConfigurationError where nothing protects it."""
        found = self.underway(environ)
        if found is None:
            raise ConfigurationError(
                "an operation is served by an application that its Idempotency was not made for, so nothing protects it"
            )
        return found

    def enter(self, operation: Operation, environ: Environ, who: Callable[[], object], request: Any) -> Sendable | None:
        """Claim, or begin, what this request asks for, unless that is done. None means run.

        `request` is what the operation's `rebuild` is given.
        """
        keyed = self.current(environ)
        instead = keyed.once_more() if keyed.begun else self._enter(keyed, operation, environ, who, request)
        if instead is None:
            keyed.entered = True
        return instead

    def _enter(
        self, keyed: BlockingRequest, operation: Operation, environ: Environ, who: Callable[[], object], request: Any
    ) -> Sendable | None:
        policy = operation.policy
        keyed.bind(operation, "")
        body: bytes | RequestError = environ.get(self._body_slot, b"")
        try:
            if isinstance(body, bytes) and len(body) > policy.body_limit:
                body = too_large(policy.body_limit)
            if isinstance(body, RequestError) and body_before_key(environ, policy):
                raise body
            key = key_of(environ, policy, body if isinstance(body, bytes) else b"")
            if key is not None:
                keyed.key = key
                caller = identified(who())
                if isinstance(body, RequestError):
                    raise body
                return keyed.enter(caller, facts_of(environ, policy, body), request)
        except RequestError as error:
            return keyed.refuse(error)
        if policy.effects is Effects.TRANSACTIONAL:
            return keyed.enter_without_key()
        return None


def _as_it_says(environ: Environ, status: int) -> bool | None:  # noqa: ARG001 - of an EnteredOf
    """The route says so itself, when it is reached."""
    return None
