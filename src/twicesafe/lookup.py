"""What became of a key: an application that a caller asks who got no answer and does not want to send it all again.

    app.mount("/keys", AsyncKeyLookup(store, scope=current_user))

`GET` with the key, where the policy lets it stand, gives the stored answer as a replay, 409 while the first attempt
runs or where its outcome is unknown, and 404 where nothing is known. Nobody is told of another caller's key (I7), for a
look-up has the scope of the operations that it is about. It is there only where it is mounted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any, Final

from twicesafe.asgi import send_refusal
from twicesafe.blocking import dealings as blocking
from twicesafe.blocking.environ import Environ, key_of
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.sending import Sendable
from twicesafe.blocking.serving import StartResponse
from twicesafe.blocking.serving import send as send_blocking
from twicesafe.core.carriers import QueryParameter
from twicesafe.core.claims import Claim
from twicesafe.core.keys import PUBLIC, Scope, scoped_key
from twicesafe.core.lookup import close, closing, look_up
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.steps import Exchange
from twicesafe.dealings import Shared
from twicesafe.errors import ConfigurationError, RequestError
from twicesafe.incoming import ASGIScope, ClientGoneError, Receive
from twicesafe.keyed import KeyedRequest, Send
from twicesafe.observe import Observer, log_events
from twicesafe.operations import check_async, check_blocking, check_scope, given_or_named, identified
from twicesafe.owners import new_owner
from twicesafe.reached import entered
from twicesafe.stores.contract import AsyncStore, Store

__all__ = ["AsyncKeyLookup", "KeyLookup"]

ScopeOf = Callable[[ASGIScope], Scope | Awaitable[Scope | None] | None]
BlockingScopeOf = Callable[[Environ], Scope | None]

_NO_OTHER: Final = b"Only the methods in Allow are answered here.\n"


class _Looking:
    """What both look-ups have in common."""

    def __init__(self, operation: Operation, scope: object, *, closes: bool) -> None:
        check_scope(scope)
        self._operation = looking(operation)
        self._methods = ("GET", "DELETE") if closes else ("GET",)

    @property
    def _refusal(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        lines = [(b"allow", ", ".join(self._methods).encode()), (b"content-type", b"text/plain")]
        return 405, [*lines, (b"content-length", b"%d" % len(_NO_OTHER))], _NO_OTHER


def looking(operation: Operation) -> Operation:
    """The operation as a look-up goes by it. ConfigurationError where a request without a body can carry no key."""
    policy = operation.policy
    if not policy.header and not any(isinstance(field, QueryParameter) for field in policy.fields):
        raise ConfigurationError("a look-up has no body to carry the key: give it a policy with a header")
    return Operation(operation.name, policy.but(required=True, refuse_duplicates=False, first_sent=None))


def asked(operation: Operation, who: Scope, key: str, method: str) -> tuple[Exchange, Claim | None]:
    """The exchange that answers this, and its claim, if it makes one."""
    policy = operation.policy
    of = scoped_key(who, key, operation.name if policy.per_operation_keys else None)
    if method != "DELETE":
        return look_up(of.digest, policy), None
    claim = closing(of, operation, new_owner())
    return close(claim, policy), claim


class AsyncKeyLookup(_Looking):
    """An ASGI application. `store`, `scope`, `policy` and `operation` are those of the operations it tells of.

    `operation` is needed where keys are `per_operation_keys`. With `closes`, `DELETE` closes a key that was never used:
    later attempts are refused with 422, and the answer's `final` is true, so that the caller may act under a new key.
    """

    def __init__(
        self,
        store: AsyncStore,
        *,
        scope: ScopeOf | Scope,
        policy: Policy | None = None,
        operation: Operation | None = None,
        closes: bool = False,
        observer: Observer = log_events,
    ) -> None:
        check_async(store)
        super().__init__(given_or_named(operation, policy, "lookup"), scope, closes=closes)
        self._who: ScopeOf = scope if callable(scope) else lambda _: PUBLIC
        self._shared = Shared(store, observer, entered)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] not in self._methods:
            status, headers, body = self._refusal
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        operation = self._operation
        request = KeyedRequest(self._shared, operation, scope, receive, send)
        try:
            key = await request.presented_key()
            assert key is not None
            who: Any = self._who(scope)
            request.key = key
            caller = identified(await who if isawaitable(who) else who)
            await request.enter_by(*asked(operation, caller, key, scope["method"]))
        except RequestError as error:
            await send_refusal(error, operation.policy, send)
            return
        except ClientGoneError:
            return
        await request.finish(None)


class KeyLookup(_Looking):
    """AsyncKeyLookup for WSGI, on a blocking store. `scope` is a function of the environ."""

    def __init__(
        self,
        store: Store,
        *,
        scope: BlockingScopeOf | Scope,
        policy: Policy | None = None,
        operation: Operation | None = None,
        closes: bool = False,
        observer: Observer = log_events,
    ) -> None:
        check_blocking(store)
        super().__init__(given_or_named(operation, policy, "lookup"), scope, closes=closes)
        self._who: BlockingScopeOf = scope if callable(scope) else lambda _: PUBLIC
        self._shared = blocking.Shared(store, observer)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if method not in self._methods:
            status, headers, body = self._refusal
            return send_blocking(Sendable(status, tuple(headers), [body]), start_response)
        request = _BlockingLook(self._shared, self._operation, "")
        try:
            key = key_of(environ, self._operation.policy, b"")
            assert key is not None
            caller = identified(self._who(environ))
            request.key = key
            sendable = request.enter_by(*asked(self._operation, caller, key, method))
        except RequestError as error:
            sendable = request.refuse(error)
        return send_blocking(sendable, start_response)


class _BlockingLook(BlockingRequest):
    """A request for which nothing runs."""

    def enter_by(self, exchange: Exchange, claim: Claim | None) -> Sendable:
        if claim is not None and self.operation.policy.counts_keys:
            exchange = self._within_limits(exchange, claim)
        self._claim, self._exchange = claim, exchange
        self.advance(None)
        return self.instead()
