"""Who a caller is said to be, and by whom."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from importlib import import_module
from types import CodeType, SimpleNamespace
from typing import Any, Final

from twicesafe.core.keys import PUBLIC
from twicesafe.doctor.catalogue import Finding
from twicesafe.doctor.subject import Guard, Subject, name_of

PLANTED: Final = "twicesafe-doctor-0f3c"
"""What a header says in a request that was made up. No application has such a caller."""


def judge_callers(subject: Subject) -> Iterator[Finding]:
    """What each scope comes to."""
    for guard in subject.guards:
        if guard.scope is PUBLIC:
            shown = subject.knows_callers or next(
                (layer.name for layer in (*guard.outside, *guard.inside) if _authenticates(layer.name)), ""
            )
            if shown:
                yield Finding("scope-public", guard.name, f"{shown} finds out who is calling")
            continue
        named = spoofed(guard) if guard.asks else ""
        if named:
            yield Finding("scope-from-header", name_of(guard.scope), f"it gives what {named} says")


def _authenticates(name: str) -> bool:
    return "auth" in name.rpartition(".")[2].lower() or "jwt" in name.rpartition(".")[2].lower()


def spoofed(guard: Guard) -> str:
    """The header whose value the scope gives as it stands; empty where there is none, or where that cannot be tried.

    The scope is asked about a request that was made up. It is the application's own, and does no more than it does for
    each request.
    """
    for header in _headers_named(guard.scope):
        try:
            given = _asked(guard, header)
        except (Exception, SystemExit):  # noqa: BLE001 - it wants more than there is: a database, a session, a real request
            given = None
        if isinstance(given, str) and PLANTED in given:
            return header
    return ""


def _headers_named(scope: Any) -> list[str]:
    """What in its code may be the name of a header."""
    found: list[str] = []
    left = [code for code in [_code_of(scope)] if code is not None]
    while left:
        code = left.pop()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                left.append(constant)
            elif isinstance(constant, str | bytes):
                text = constant if isinstance(constant, str) else constant.decode("latin-1")
                name = text.removeprefix("HTTP_").replace("_", "-").lower()
                if 1 < len(name) <= 64 and name.replace("-", "").isalnum():
                    found.append(name)
    return list(dict.fromkeys([*found, *_header_parameters(scope)]))


def _code_of(scope: Any) -> CodeType | None:
    bare = inspect.unwrap(scope)
    code = getattr(bare, "__code__", None) or getattr(getattr(type(bare), "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None


def _header_parameters(scope: Any) -> dict[str, str]:
    """FastAPI's parameters that are header lines: header -> parameter."""
    found: dict[str, str] = {}
    for name, parameter in _parameters(scope).items():
        for said in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
            if type(said).__name__ == "Header" and type(said).__module__ == "fastapi.params":
                found[str(said.alias or name.replace("_", "-")).lower()] = name
    return found


def _parameters(scope: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(scope, eval_str=True).parameters)
    except (TypeError, ValueError, NameError):
        return {}


def _asked(guard: Guard, header: str) -> Any:
    """What the scope gives for a request with this header."""
    scope, raw = guard.scope, [(header.encode(), PLANTED.encode()), (b"host", b"localhost")]
    asgi = {
        "type": "http", "method": "POST", "path": "/", "raw_path": b"/", "root_path": "", "scheme": "http",
        "query_string": b"", "headers": raw, "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    variable = f"HTTP_{header.upper().replace('-', '_')}"
    environ = {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/", "QUERY_STRING": "", "SERVER_NAME": "localhost", "SERVER_PORT": "80",
        "wsgi.url_scheme": "http", variable: PLANTED,
    }  # fmt: skip
    match guard.asks:
        case "asgi":
            return _value(scope(asgi))
        case "environ":
            return _value(scope(environ))
        case "request":
            return _value(scope(import_module("starlette.requests").Request(asgi)))
        case "django":
            request = import_module("django.test").RequestFactory().post("/", **{variable: PLANTED})
            return _value(scope(request))
        case "context":
            flask = import_module("flask")
            with flask.Flask("doctor").test_request_context("/", method="POST", headers={header: PLANTED}):
                return _value(scope())
    return _dependency(scope, header, asgi)


def _dependency(scope: Any, header: str, asgi: dict[str, Any]) -> Any:
    """FastAPI's: asked as far as its parameters are header lines and the request."""
    headers = {parameter: name for name, parameter in _header_parameters(scope).items()}
    values: dict[str, Any] = {}
    for name, parameter in _parameters(scope).items():
        if name in headers:
            values[name] = PLANTED if headers[name] == header else None
        elif getattr(parameter.annotation, "__name__", "") in ("Request", "HTTPConnection"):
            values[name] = import_module("starlette.requests").Request(asgi)
        elif parameter.default is inspect.Parameter.empty:
            raise LookupError(name)
    return _value(scope(**values))


def _value(given: Any) -> Any:
    if inspect.isawaitable(given):

        async def wait() -> Any:
            return await given

        return asyncio.run(wait())
    return SimpleNamespace if given is None else given
