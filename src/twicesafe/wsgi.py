"""twicesafe for any WSGI application, under any WSGI server.

Install it inside authentication and outside of whatever does the work. Requests without a key and with another method
pass through untouched. Flask and Falcon have modules of their own, in which a route carries its contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twicesafe.blocking.dealings import Shared
from twicesafe.blocking.environ import UNDERWAY, Environ, body_before_key, facts_of, key_of, whole_body
from twicesafe.blocking.request import BlockingRequest
from twicesafe.blocking.serving import EnteredOf, StartResponse, WSGIApp, send, serve
from twicesafe.core.keys import PUBLIC, Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.errors import RequestError
from twicesafe.observe import Observer, log_events
from twicesafe.operations import check_blocking, check_effects, check_scope, given_or_named, identified
from twicesafe.stores.contract import Store

__all__ = ["PUBLIC", "BlockingRequest", "Environ", "IdempotencyMiddleware", "WSGIApp", "current", "entered"]

ScopeOf = Callable[[Environ], Scope | None]
OperationOf = Callable[[Environ], Operation | None]


def entered(environ: Environ, status: int) -> bool | None:  # noqa: ARG001 - of an EnteredOf
    """False where Flask's router, or another of Werkzeug's, found nothing for this request; None elsewhere."""
    request = environ.get("werkzeug.request")
    return None if getattr(request, "routing_exception", None) is None else False


class IdempotencyMiddleware:
    """Makes every keyed request happen once.

    `scope` says who the caller is: a function of the environ returning a stable identity that the server knows (from
    its own authentication, never from a header the client may choose), or PUBLIC. There is no default, because every
    default lets one caller see another's answer (R6). Where it returns None the request is refused with 403.

    `operation` names what is done: an Operation for all requests, or a function of the environ; None from it means
    that this request takes no key. `policy` is short for one operation called "http".

    An operation's `rebuild` is given the environ of the duplicate.

    `entered` tells whether the handler proper was reached, so that what a router refuses leaves no record; the default
    can tell it of Flask's.
    """

    def __init__(
        self,
        app: WSGIApp,
        store: Store,
        *,
        scope: ScopeOf | Scope,
        policy: Policy | None = None,
        operation: Operation | OperationOf | None = None,
        observer: Observer = log_events,
        entered: EnteredOf = entered,
    ) -> None:
        asked: Operation | OperationOf = given_or_named(operation, policy, "http")
        check_blocking(store)
        check_scope(scope)
        self._operation: Operation | None = None
        self._operation_of: OperationOf | None = None
        if isinstance(asked, Operation):
            check_effects(asked, store)
            self._operation = asked
        else:
            self._operation_of = asked
        self.app = app
        self._who: ScopeOf = scope if callable(scope) else lambda _: PUBLIC
        self._shared = Shared(store, observer)
        self._entered = entered

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        operation = self._operation
        if operation is None and self._operation_of is not None:
            operation = self._operation_of(environ)
        # Mounted twice, the outer one does the work.
        if operation is None or not operation.policy.takes(environ["REQUEST_METHOD"]) or UNDERWAY in environ:
            return self.app(environ, start_response)
        request = BlockingRequest(self._shared, operation, "")
        instead = None
        try:
            body = self._find_key(request, environ)
            if request.key:
                who = identified(self._who(environ))
                if body is None:
                    body = whole_body(environ, operation.policy)
                instead = request.enter(who, facts_of(environ, operation.policy, body), environ)
        except RequestError as error:
            instead = request.refuse(error)
        if instead is not None:
            return send(instead, start_response)
        if not request.key:
            return self.app(environ, start_response)
        environ[UNDERWAY] = request
        return serve(request, self.app, environ, start_response, self._entered)

    def _find_key(self, request: BlockingRequest, environ: Environ) -> bytes | None:
        """Give the request its key, if there is one. The body, where it had to be read for that."""
        policy = request.operation.policy
        body = whole_body(environ, policy) if body_before_key(environ, policy) else None
        request.key = key_of(environ, policy, body or b"") or ""
        return body


def current(environ: Environ) -> BlockingRequest:
    """The keyed request that this environ belongs to. LookupError where the request carries no key."""
    found = environ.get(UNDERWAY)
    if not isinstance(found, BlockingRequest) or not found.key:
        raise LookupError("this request is not under an idempotency key")
    return found
