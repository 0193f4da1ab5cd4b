"""A Starlette application whose routes are mounted in every way that there is."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from twicesafe import PUBLIC
from twicesafe.starlette import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore


class Nothing(BaseHTTPMiddleware):
    async def dispatch(self, request, call_next):
        return await call_next(request)


class Shop:
    """`POST` to `/jobs`, or to wherever it is mounted, appends to the ledger."""

    def __init__(self, *around, **settings) -> None:
        self.ledger: list[str] = []
        self.store = AsyncMemoryStore()
        self.safe = Idempotency(self.store, scope=PUBLIC)

        @self.safe.operation(**settings)
        async def work(request):
            assert await request.json() == {"amount": 1}
            self.ledger.append(request.url.path)
            return JSONResponse({"n": len(self.ledger), "text": "x" * 2000}, 201)

        self.work = work
        self.routes = [Route("/jobs", work, methods=["POST"])]
        self.app = Starlette(
            routes=[
                *self.routes,
                Mount("/routes", routes=self.routes),
                Mount("/router", app=Router(self.routes, middleware=[Middleware(Nothing)])),
                Mount("/app", app=Starlette(routes=self.routes)),
            ],
            middleware=[self.safe.middleware, *around] if around else [self.safe.middleware],
        )
