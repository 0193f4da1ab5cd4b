"""The peers of benchmarks.redis that keep their records in Redis, each as its own documentation sets it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def peers(client: Any) -> dict[str, Callable[[Any], Any]]:
    """Name to what it puts around an application, on this client of redis-py and its pool."""
    found: dict[str, Callable[[Any], Any]] = {}
    try:
        import fastapi_idempotency_key as one

        backend = one.RedisBackend(redis=client)
        found["fastapi-idempotency-key"] = lambda app: one.IdempotencyMiddleware(app, backend=backend)
    except ImportError:
        pass
    try:
        import idemkit as two

        config = two.HttpConfig(scope=lambda request: "user")
        found["idemkit"] = lambda app: two.IdempotencyMiddleware(app, backend=two.RedisBackend(client), config=config)
    except ImportError:
        pass
    try:
        import idempotency_header_middleware as three
        from idempotency_header_middleware.backends import RedisBackend

        found["asgi-idempotency-header"] = lambda app: three.IdempotencyHeaderMiddleware(
            app, backend=RedisBackend(redis=client)
        )
    except ImportError:
        pass
    return found
