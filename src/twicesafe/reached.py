"""What the routers of Starlette, and of what is built on it, leave in the ASGI scope. Imports none of them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

BY_ROUTERS: Final = frozenset({307, 404, 405})
"""What a router answers by itself: the other spelling of the path, nothing there, not by this method."""

LAYERS: Final = 50
"""How many middlewares may stand around a mounted router; further in, nothing is certain."""


def entered(scope: MutableMapping[str, Any], status: int) -> bool | None:
    """False where a router answered because none of its routes is for this request, None where that is not certain.

    A route that is taken writes its endpoint into the scope. Where there is none, or where it is a mounted router, that
    router is asked once more: a middleware that works on a copy of the scope hides what happened behind it.
    """
    if status not in BY_ROUTERS:
        return None
    last: Any = scope.get("endpoint", scope.get("router"))
    for _ in range(LAYERS):
        if hasattr(last, "routes") or not hasattr(last, "app"):
            break
        last = last.app
    routes = getattr(last, "routes", None)
    if routes is None or any(route.matches(scope)[0].name == "FULL" for route in routes):
        return None
    return False
