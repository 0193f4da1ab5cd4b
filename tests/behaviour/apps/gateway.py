"""The gateway, in front of a probe application that knows nothing of twicesafe and is reached over HTTP alone."""

from __future__ import annotations

import socket
import threading
from typing import Any, NamedTuple

import uvicorn

from tests.behaviour.apps.asgi import answer, header, innermost
from tests.behaviour.knobs import CONTRACTS, UNAUTHENTICATED, database, route_of, user_of
from twicesafe import Effects, Policy
from twicesafe.gateway import Gateway, Upstream
from twicesafe.gateway.application import RERUN
from twicesafe.gateway.callers import CallerError
from twicesafe.stores.sqlite import AsyncSqliteStore

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.gateway:app --host 127.0.0.1 --port {port} --http h11 --no-date-header"
    " --log-level warning",
    "granian": "granian tests.behaviour.apps.gateway:app --interface asgi --host 127.0.0.1 --port {port}",
}
NOT_OFFERED = {
    "/tx/jobs": "the service's effects are in no transaction of the gateway's",
    "cross-origin": "a layer of the service's own, or of the proxy in front",
    "nothing done": "the service is another process: it says so by a status",
}


class Told(NamedTuple):
    """What the service knows of its request under a key: the key that the gateway derived."""

    key: str

    def derived_key(self, _: str) -> str:
        """The one that came."""
        return self.key


async def service(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The probe without twicesafe, with an authentication of its own."""
    scope["user"] = user_of(header(scope, b"authorization"))
    if scope["user"] is None:
        await answer(send, 401, {}, tuple(part.encode() for part in UNAUTHENTICATED))
        return
    if key := header(scope, b"idempotency-key") or header(scope, b"x-idempotency-key"):
        scope["twicesafe"] = Told(key)
    await innermost(scope, receive, send)


def served() -> str:
    """Serve it, as long as this process lives. Its address."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)
    config = uvicorn.Config(service, http="h11", lifespan="off", log_level="critical", server_header=False)
    threading.Thread(target=uvicorn.Server(config).run, args=([listening],), daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def user(scope: Any) -> str:
    """Who is calling; 401 for nobody, on replays too."""
    who = user_of(header(scope, b"authorization"))
    if who is None:
        raise CallerError("who are you?", 401, UNAUTHENTICATED[1])
    return who


store = AsyncSqliteStore(database())
upstream = Upstream(served())
GATEWAYS = {
    path: Gateway(upstream, store, caller=user, policy=policy)
    for path, policy in CONTRACTS.items()
    if policy.effects is Effects.OPAQUE
}
GATEWAYS["/keyed/jobs"] = Gateway(
    upstream, store, caller=user, policy=CONTRACTS["/keyed/jobs"].but(rerun=RERUN[Effects.KEYED])
)
KEYLESS = Gateway(upstream, store, caller=user, policy=Policy(methods=frozenset()), health="/ready")


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """A gateway for each contract, and one for what has none."""
    if scope["type"] == "lifespan":
        await receive()
        await store.apply_schema()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for gateway in GATEWAYS.values():
            await gateway.drained()
        await upstream.aclose()
        await store.aclose()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await GATEWAYS.get(route_of(scope["path"]) or "", KEYLESS)(scope, receive, send)
