"""The gateway as an ASGI application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from email.utils import formatdate
from typing import Final

from twicesafe.asgi import IdempotencyMiddleware, ScopeOf
from twicesafe.core.keys import Scope
from twicesafe.core.policy import Operation, Policy
from twicesafe.core.problems import problem
from twicesafe.core.record import Effects
from twicesafe.errors import ConfigurationError, StoreError
from twicesafe.gateway.callers import CallerError
from twicesafe.gateway.forwarding import Forwarding
from twicesafe.gateway.lines import RELIED_ON, Onward, in_origin_form, refusal
from twicesafe.gateway.upstream import NotSentError, Upstream, UpstreamError
from twicesafe.incoming import ASGIScope, ClientGoneError, Message, Receive
from twicesafe.keyed import Send
from twicesafe.observe import Event, Observer, log_events, tell
from twicesafe.stores.contract import AsyncStore

OPERATION: Final = "gateway"
NO_TRANSACTION: Final = (
    "what a service behind a gateway does is in no transaction of the gateway's, and the service does not say how far "
    "it got: it is opaque, or keyed"
)
RERUN: Final[Mapping[str, frozenset[int]]] = {
    Effects.OPAQUE: frozenset({502, 504}),
    Effects.KEYED: frozenset({500, 502, 504}),
}
"""What leaves open what was done. 502 and 504 are said by another intermediary that got no answer either; whether a 500
is the last word on a key is for a service to say that knows keys itself."""
POLICY: Final = Policy(rerun=RERUN[Effects.OPAQUE])
DRAIN: Final = timedelta(seconds=10)


class Gateway:
    """Makes every keyed request to `upstream` happen once, whatever it is written in; passes the others on.

    `caller` says who asks: a CallerHeader, a CallerClaim, PUBLIC, or a function of the ASGI scope. The upstream finds
    a key in the header `key_header`, by default the one that callers use: the same on every attempt at one intent,
    another one for every caller and intent. It never sees a caller's own key, nor a line of that name that the gateway
    did not write.

    No transaction is shared with the upstream, so that operations are opaque or keyed. `policy` may say which, and
    everything else. `health` is a path that is answered here: 200 where the store can be reached, 503 otherwise. On
    shutdown it closes `upstream` and `store`.
    """

    def __init__(
        self,
        upstream: Upstream | str,
        store: AsyncStore,
        *,
        caller: ScopeOf | Scope,
        policy: Policy = POLICY,
        key_header: str = "",
        rewrite_host: bool = False,
        trust_forwarded: bool = True,
        health: str = "",
        drain: timedelta = DRAIN,
        observer: Observer = log_events,
    ) -> None:
        if policy.effects not in RERUN:
            raise ConfigurationError(f"{NO_TRANSACTION}, so effects must not be {policy.effects}")
        if health and not health.startswith("/"):
            raise ConfigurationError(f"health must be a path that begins with a slash, not {health!r}")
        # A failure of the upstream's is no answer of its.
        policy = policy.but(unknown_on_error=True)
        if not rewrite_host:
            # The upstream may be many, told apart by it: another host's is another request.
            compared = policy.fingerprint
            policy = policy.but(fingerprint=compared._replace(headers=(*compared.headers, b"host")))
        self._upstream = Upstream(upstream) if isinstance(upstream, str) else upstream
        self._store = store
        self._policy = policy
        self._health = health
        self._observer = observer
        carrier = policy.header.lower().encode("ascii")
        wanted = (key_header or policy.header or "Idempotency-Key").lower().encode("ascii")
        own = frozenset({name for name in (carrier, wanted) if name})
        goes_by: frozenset[bytes] = getattr(caller, "goes_by", frozenset())
        self._relied_on = RELIED_ON | own | goes_by
        onward = Onward(self._upstream.authority, rewrite_host, trust_forwarded, own)
        self._forward = Forwarding(self._upstream, onward, policy, wanted)
        self._safe = IdempotencyMiddleware(
            self._inner,
            store,
            scope=caller,
            operation=Operation(OPERATION, policy),
            observer=observer,
            drain=drain,
            entered=_unknown,
        )

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Any ASGI server may call it."""
        if scope["type"] == "lifespan":
            await self._safe(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            await self._serve(in_origin_form(scope), receive, _Dated(send))

    async def drained(self) -> None:
        """Wait, up to `drain`, for work whose caller is gone. For an application around one that is mounted."""
        await self._safe.drained()

    async def _serve(self, scope: ASGIScope, receive: Receive, answer: _Dated) -> None:
        if self._health and scope["path"] == self._health:
            await self._say_health(answer)
            return
        refused = refusal(scope, self._relied_on)
        if refused is not None:
            await self._say("not-forwarded", answer, refused.status, refused.detail, [(b"connection", b"close")])
            return
        try:
            await self._safe(scope, receive, answer)
        except ClientGoneError:
            return
        except CallerError as error:
            challenge = [(b"www-authenticate", error.challenge.encode("latin-1"))] if error.challenge else []
            await self._say("caller-unknown", answer, error.status, str(error), challenge)
        except UpstreamError as error:
            tell(self._observer, Event("upstream.failed", OPERATION, "", loud=True, error=error))
            if answer.started:
                # The server breaks the message off, so that nobody takes it for a whole one. Why has been told.
                raise error.with_traceback(None) from None
            kind = "upstream-unreachable" if isinstance(error, NotSentError) else "upstream-failed"
            await self._say(kind, answer, error.status)

    async def _say(
        self, kind: str, send: Send, status: int, detail: str | None = None, more: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Answer with a problem document."""
        policy = self._policy
        again = 1 if status == 503 else None
        _, lines, body = problem(
            kind, header=policy.key_name, base=policy.problem_base, detail=detail, status=status, retry_after=again
        )
        with suppress(OSError):
            await send({"type": "http.response.start", "status": status, "headers": [*lines, *more]})
            await send({"type": "http.response.body", "body": body})

    async def _say_health(self, send: Send) -> None:
        try:
            await self._store.check_schema()
        except StoreError:
            status, body = 503, b"the store cannot be reached\n"
        else:
            status, body = 200, b"ok\n"
        lines = [
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": body})

    async def check(self) -> None:
        """StoreError where the store cannot be reached, or lacks its tables. Then close: it is of no other use."""
        try:
            await self._store.check_schema()
        finally:
            await self._close()

    async def _close(self) -> None:
        await self._upstream.aclose()
        await self._store.aclose()

    async def _inner(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._forward(scope, receive, send)
            return
        await receive()
        try:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        finally:
            await self._close()
        await send({"type": "lifespan.shutdown.complete"})


class _Dated:
    """The server's `send`, with a Date where there is none: what was recorded has lost its own."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            lines = message["headers"]
            if not any(name == b"date" for name, _ in lines):
                message = {**message, "headers": [*lines, (b"date", formatdate(usegmt=True).encode("ascii"))]}
        await self._send(message)


def _unknown(scope: ASGIScope, status: int) -> None:
    """Whether the upstream's handler was reached is for nobody to see."""
