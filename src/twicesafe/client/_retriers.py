"""What retries in the libraries that people send with, by the names of their classes. None is imported."""

# ruff: noqa: SLF001 - what libraries say about their retries in private, they say nowhere else

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

from twicesafe.core.retry_policy import RetryPolicy


class Retries(NamedTuple):
    """A thing that retries by itself. `attempts`: how many it makes of one request; None where that has no limit."""

    attempts: int | None
    advice: str
    """What to set."""
    which: str = ""
    """Of which requests, or of which failures, where not of all."""
    multiplies: bool = True
    """False where only connections are tried again: nothing arrives more often."""
    what: str = ""
    """What retries, where that is not the thing itself."""


class Inner(NamedTuple):
    """A part that requests go through."""

    where: str
    thing: Any


Seen: TypeAlias = Iterator[Retries | Inner]


def seen_in(thing: Any) -> Seen:
    """What is known of a thing: that it retries, and what it sends through."""
    for cls in type(thing).__mro__:
        look = _KNOWN.get((cls.__module__.partition(".")[0], cls.__name__))
        if look is not None:
            try:
                yield from look(thing)
            except AttributeError as error:
                yield Retries(None, f"See for yourself: this version of it does not tell ({error})")
            return
    if isinstance(thing, (FunctionType, MethodType)):
        yield from _function(thing)
    elif isinstance(thing, ModuleType):
        yield from _module(thing)
    else:
        yield from _transports_of(thing)


def ours_in(thing: Any) -> int | None:
    """How many attempts a thing makes that is a retry layer of this package; None where it is none."""
    policy = getattr(thing, "_policy", None)
    return policy.attempts if isinstance(policy, RetryPolicy) else None


# --- httpx, httpx2 and what goes under them --------------------------------------------------------------------------


def _httpx_client(client: Any) -> Seen:
    yield Inner("transport", client._transport)
    for pattern, transport in tuple(client._mounts.items()):
        if transport is not None:
            yield Inner(f"mounts[{pattern.pattern!r}]", transport)


def _httpx_transport(transport: Any) -> Seen:
    yield Inner("pool", transport._pool)


def _httpcore_pool(pool: Any) -> Seen:
    if pool._retries:
        yield Retries(
            pool._retries + 1, "Set HTTPTransport(retries=0)", "of connections that do not come about", multiplies=False
        )


def _httpx_retries(transport: Any) -> Seen:
    retry = transport.retry
    if retry.total:
        methods = ", ".join(sorted(str(method) for method in retry.allowed_methods))
        yield Retries(retry.total + 1, "Leave the RetryTransport of httpx-retries out", f"of {methods}")
    for name in ("_sync_transport", "_async_transport"):
        if getattr(transport, name, None) is not None:
            yield Inner(name.strip("_"), getattr(transport, name))


def _transports_of(thing: Any) -> Seen:
    """Of a transport that nobody knows: those that it holds."""
    for name, part in tuple(getattr(thing, "__dict__", {}).items()):
        if hasattr(part, "handle_request") or hasattr(part, "handle_async_request"):
            yield Inner(name.lstrip("_"), part)


# --- requests, niquests, urllib3 -------------------------------------------------------------------------------------


def _requests_session(session: Any) -> Seen:
    for prefix, adapter in tuple(session.adapters.items()):
        yield Inner(f"adapters[{prefix!r}]", adapter)


def _requests_adapter(adapter: Any) -> Seen:
    yield from _urllib3_retry(adapter.max_retries, "Set HTTPAdapter(max_retries=0)")


def _urllib3_manager(manager: Any) -> Seen:
    # Where nothing was said, urllib3 takes three.
    yield from _urllib3_retry(manager.connection_pool_kw.get("retries"), f"Set {type(manager).__name__}(retries=False)")


def _urllib3_pool(pool: Any) -> Seen:
    yield from _urllib3_retry(pool.retries, f"Set {type(pool).__name__}(retries=False)")


def _urllib3_retry(retry: Any, advice: str) -> Seen:
    if retry is None:
        yield Retries(4, advice, "of connections that do not come about, and of idempotent requests that break")
        return
    if isinstance(retry, (bool, int)):
        if retry:
            yield Retries(int(retry) + 1, advice)
        return
    counts = {name: getattr(retry, name, None) for name in ("connect", "read", "status", "other")}
    given = [int(count) for count in counts.values() if count is not None]
    total = retry.total if retry.total is not None or len(given) < len(counts) else sum(given)
    if total is not None and (not total or (len(given) == len(counts) and not any(given))):
        return
    attempts = None if total is None else int(total) + 1
    if counts["read"] in (0, False) and counts["status"] in (0, False):
        yield Retries(attempts, advice, "of connections that do not come about", multiplies=False)
    else:
        methods = ", ".join(sorted(retry.allowed_methods or ()))
        yield Retries(attempts, advice, f"of {methods}, and of connections that do not come about" if methods else "")


# --- aiohttp ---------------------------------------------------------------------------------------------------------


def _aiohttp_session(session: Any) -> Seen:
    middlewares = getattr(session, "_middlewares", ())
    # This package's own sees to it that nothing is sent twice below it.
    if getattr(session, "_retry_connection", False) and not any(map(ours_in, middlewares)):
        yield Retries(
            2,
            "Send through twicesafe.client.aiohttp, which switches it off",
            "of GET, HEAD, OPTIONS, TRACE, PUT, DELETE whose connection breaks",
        )
    for number, middleware in enumerate(middlewares):
        yield Inner(f"middlewares[{number}]", middleware)


def _aiohttp_retry(client: Any) -> Seen:
    options = getattr(client, "retry_options", None) or getattr(client, "_retry_options", None)
    attempts = getattr(options, "attempts", None)
    if attempts is None or attempts > 1:
        yield Retries(attempts, "Send through the ClientSession itself, not through aiohttp-retry's RetryClient")
    yield Inner("client", client._client)


# --- software development kits ---------------------------------------------------------------------------------------


def _botocore_client(client: Any) -> Seen:
    retries = client.meta.config.retries or {}
    mode = retries.get("mode", "legacy")
    attempts = retries.get("total_max_attempts")
    if attempts is None:
        # DynamoDB has been given more since there are retries.
        attempts = (10 if client.meta.service_model.service_name == "dynamodb" else 5) if mode == "legacy" else 3
    if attempts > 1:
        yield Retries(attempts, 'Set Config(retries={"total_max_attempts": 1})', f"in the mode {mode!r}")


def _boto3_resource(resource: Any) -> Seen:
    yield Inner("meta.client", resource.meta.client)


def _generated_sdk(client: Any) -> Seen:
    """openai's and anthropic's, which one generator makes."""
    if client.max_retries:
        yield Retries(client.max_retries + 1, f"Set {type(client).__name__}(max_retries=0)")
    yield Inner("http_client", client._client)


def _stripe_client(client: Any) -> Seen:
    retries = client._requestor._options.max_network_retries
    if retries:
        yield Retries(retries + 1, "Set StripeClient(..., max_network_retries=0)")


def _module(module: ModuleType) -> Seen:
    """Those that are set for the whole process."""
    if module.__name__ == "stripe" and module.max_network_retries:
        yield Retries(module.max_network_retries + 1, "Set stripe.max_network_retries = 0")


# --- decorated functions ---------------------------------------------------------------------------------------------


def _function(function: Any) -> Seen:
    retrying = getattr(function, "retry", None)
    if any(cls.__module__.partition(".")[0] == "tenacity" for cls in type(retrying).__mro__):
        yield from _tenacity(retrying)
    if hasattr(function, "__wrapped__"):
        yield Inner("__wrapped__", function.__wrapped__)


def _tenacity(retrying: Any) -> Seen:
    limits = [limit for stop in _stops(retrying.stop) if (limit := getattr(stop, "max_attempt_number", None))]
    attempts = min(limits, default=None)
    if attempts != 1:
        yield Retries(attempts, "Make the intent outside of the function, and take the decorator off", what="tenacity")


def _stops(stop: Any) -> Iterator[Any]:
    yield stop
    if type(stop).__name__ == "stop_any":
        for part in stop.stops:
            yield from _stops(part)


_KNOWN: Final[Mapping[tuple[str, str], Callable[[Any], Seen]]] = MappingProxyType(
    {
        **{
            (library, name): look
            for library in ("httpx", "httpx2")
            for name, look in {
                "Client": _httpx_client,
                "AsyncClient": _httpx_client,
                "HTTPTransport": _httpx_transport,
                "AsyncHTTPTransport": _httpx_transport,
            }.items()
        },
        **{
            (library, name): _httpcore_pool
            for library in ("httpcore", "httpcore2")
            for name in ("ConnectionPool", "AsyncConnectionPool")
        },
        ("httpx_retries", "RetryTransport"): _httpx_retries,
        **{
            (library, name): look
            for library in ("requests", "niquests")
            for name, look in {
                "Session": _requests_session,
                "AsyncSession": _requests_session,
                "HTTPAdapter": _requests_adapter,
                "AsyncHTTPAdapter": _requests_adapter,
            }.items()
        },
        **{
            (library, name): look
            for library in ("urllib3", "urllib3_future")
            for name, look in {"PoolManager": _urllib3_manager, "HTTPConnectionPool": _urllib3_pool}.items()
        },
        ("aiohttp", "ClientSession"): _aiohttp_session,
        ("aiohttp_retry", "RetryClient"): _aiohttp_retry,
        ("botocore", "BaseClient"): _botocore_client,
        ("boto3", "ServiceResource"): _boto3_resource,
        ("openai", "BaseClient"): _generated_sdk,
        ("anthropic", "BaseClient"): _generated_sdk,
        ("stripe", "StripeClient"): _stripe_client,
        ("tenacity", "BaseRetrying"): _tenacity,
    }
)
"""By the package and the class that made a thing, or that its class descends from."""
