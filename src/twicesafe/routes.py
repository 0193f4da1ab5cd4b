"""Contracts on routes: what the shells of web frameworks that have routes are built on.

A middleware lets everything through; who claims is the route itself, once the framework has authenticated its caller
and taken the request for valid. So what is refused before leaves no record (E1), on a replay as on a first run (R22),
and from the claim on the middleware holds the answer back until it is recorded.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from twicesafe.asgi import begun, checked, drained, draining
from twicesafe.contracts import Declared
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.record import Effects
from twicesafe.core.steps import FORWARD, Result
from twicesafe.dealings import Shared
from twicesafe.errors import ConfigurationError, RequestError, SchemaError, StoreError
from twicesafe.incoming import ASGIScope, Message, Receive
from twicesafe.keyed import ASGIApp, KeyedRequest, Send
from twicesafe.observe import Event, Observer, tell
from twicesafe.operations import check_async, check_effects, identified
from twicesafe.reached import entered
from twicesafe.stores.contract import AsyncStore


class Contracts:
    """The operations of one application, and what becomes of a request to one of them."""

    _request_class: type[KeyedRequest] = KeyedRequest

    def __init__(self, store: AsyncStore, policy: Policy | None, observer: Observer, drain: timedelta) -> None:
        check_async(store)
        self._declared = Declared(policy)
        self._policy, self._operations = self._declared.policy, self._declared.operations
        self._shared = Shared(store, observer, entered)
        self._drain = drain
        self._slot = f"twicesafe.{id(self)}"
        self._carriers: frozenset[bytes] = frozenset()
        self._seen_whole = False

    async def drained(self) -> None:
        """Wait, up to `drain`, for work whose client is gone.

        For the lifespan of an application around a mounted one: servers tell mounted ones of no shutdown.
        """
        await drained(self._shared, self._drain)

    # --- the contract -------------------------------------------------------------------------------------------------

    def _chosen(self, policy: object, settings: dict[str, Any]) -> Policy:
        return self._declared.chosen(policy, settings)

    def _check(self, endpoint: object, operation: Operation) -> None:
        self._declared.check(endpoint, operation)
        check_effects(operation, self._shared.store)

    def _add(self, operation: Operation) -> None:
        self._declared.add(operation)
        self._carriers = frozenset(known.policy.header_name for known in self._operations.values())

    def _operation_of(self, endpoint: object) -> Operation | None:
        return self._declared.operation_of(endpoint)

    # --- one request --------------------------------------------------------------------------------------------------

    async def _serve(self, app: ASGIApp, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                receive, send = draining(receive, self.drained), checked(send, self._shared)
                await self._start(receive, send)
            await app(scope, receive, send)
            return
        if not self._seen_whole:
            self._see_whole()
        declared = self._declared
        if scope["method"].upper() not in declared.methods or "twicesafe" in scope:
            # Behind an ASGI middleware of ours, that one does the work.
            await app(scope, receive, send)
            return
        keyed = scope[self._slot] = self._request_class(self._shared, declared.undecided, scope, receive, send)
        if declared.fields or not self._carriers.isdisjoint(keyed.lines or dict(scope["headers"])):
            rest = begun(keyed, keyed.run(app, keyed.receive), self._shared)
            if rest is not None:
                await rest
        else:
            await keyed.run(app, receive)

    def _keyed(self, scope: ASGIScope) -> KeyedRequest:
        found: KeyedRequest | None = scope.get(self._slot) or scope.get("twicesafe")
        if found is None:
            raise ConfigurationError(
                "an operation is served by an application that its Idempotency was not made for, so nothing protects "
                "it: make one on that application"
            )
        return found

    async def _enter(self, keyed: KeyedRequest, operation: Operation, request: Any, who: Any) -> Result | None:
        """Claim, or begin, what this request asks for, unless that is done. None means run.

        `request` is what the operation's `rebuild` is given.
        """
        if keyed.begun:
            return keyed.result
        policy = operation.policy
        keyed.bind(operation)
        try:
            key = keyed.plain_key() or await keyed.presented_key()
            if key is not None:
                keyed.key = key
                result = await keyed.enter(identified(who))
                return result if result is None or operation.rebuild is None else await keyed.rebuild(request)
        except RequestError as error:
            return keyed.refuse(error)
        if policy.effects is Effects.TRANSACTIONAL:
            return await keyed.enter_without_key()
        return None

    # --- the application ----------------------------------------------------------------------------------------------

    async def _start(self, receive: Receive, send: Send) -> None:
        try:
            self._see_whole()
        except ConfigurationError as error:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise

    def _see_whole(self) -> None:
        """Refuse what can only be seen when all routes stand."""
        self._seen_whole = True

    async def _check_schema(self) -> None:
        """What `checked` does, for frameworks with a hook for it."""
        try:
            await self._shared.store.check_schema()
        except SchemaError:
            raise
        except StoreError as error:
            tell(self._shared.observer, Event("store.unavailable", "", "", loud=True, error=error))


class SettledRequest(KeyedRequest):
    """For frameworks that turn an exception of the handler's into an answer before anybody else sees it."""

    _wire: Send | None = None
    """Where the framework's own answer to an exception goes, once nothing is stored of it."""

    async def failed(self, error: Exception) -> None:
        """The handler raised what nobody handled: the answer that is sent next is its framework's last resort.

        It is recorded where the policy records exceptions. Elsewhere it is sent as it is, and what is open to another
        attempt is left open.
        """
        awaited = self._own is not None or self._exchange is not None
        if not awaited or self._result is not None or self._start is not None:
            return
        if self.operation.policy.records_exceptions:
            return
        wire = self._send
        try:
            await self.finish(error)
        except Exception as raised:
            if raised is not error:
                raise
        self._wire = wire
        # Whoever answers an exception logs it: the server is not told once more.
        self._result = FORWARD

    async def send(self, message: Message) -> None:
        if self._wire is None:
            await super().send(message)
        elif not self._detached:
            with suppress(OSError):
                start = message["type"] == "http.response.start"
                await self._wire(self._announcing(message) if start else message)
