"""The probe application in Django Ninja: operations that block and operations that do not, under ASGI."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path as url

from tests.behaviour.django_parts import configure, keyed_in, ready, response_to, seen_in
from tests.behaviour.knobs import (
    CONTRACTS,
    MAPPED,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    Row,
    append_async,
    append_on,
    user_of,
    work_async,
)

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.ninja:app --host 127.0.0.1 --port {port} --log-level warning",
}
NOT_OFFERED = {
    "background tasks": "nothing of Django's runs after the answer",
    "cross-origin": "Django has no layer for it",
    "repeated lines": "a response of Django's has one line of each name, cookies apart",
}

configure(__name__)

from ninja import NinjaAPI  # noqa: E402 - Django's settings come first
from ninja.errors import AuthenticationError, HttpError  # noqa: E402

from twicesafe.django import idempotent  # noqa: E402


def bearer(request: HttpRequest) -> str | None:
    """Authenticates within the view, as Ninja does."""
    request.probe_user = user_of(request.headers.get("authorization"))
    user: str | None = request.probe_user
    return user


api = NinjaAPI(auth=bearer, docs_url=None, openapi_url=None)


@api.exception_handler(AuthenticationError)
def unauthenticated(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    """Nobody."""
    return HttpResponse(status=401, headers=dict([UNAUTHENTICATED]))


@api.exception_handler(MappedError)
def mapped(request: HttpRequest, error: MappedError) -> HttpResponse:
    """An error of the application's own."""
    return api.create_response(request, MAPPED, status=409)


@sync_to_async
def append_in_transaction(row: Row) -> int:
    """The effect, by the connection that the transaction is on."""
    return append_on(connection.connection, row)


async def at_work(request: HttpRequest) -> HttpResponse:
    """The work of every route."""
    append: Any = append_in_transaction if request.path == "/tx/jobs" else append_async
    reply = await work_async(
        seen_in(request), lambda status: HttpError(status, "no"), keyed=keyed_in(request), append=append
    )
    return response_to(reply, reply.chunks_async() if reply.stream else None)


async def at_work_of(request: HttpRequest, name: str) -> HttpResponse:
    """The same for a thing."""
    return await at_work(request)


for path, policy in CONTRACTS.items():
    api.api_operation([*policy.methods], path)(idempotent(policy, name=path)(at_work))
api.api_operation([*UNKEYED], "/jobs")(at_work)
api.post("/things/{name}/jobs")(idempotent(CONTRACTS["/jobs"], name="/jobs")(at_work_of))
urlpatterns = [url("ready", ready), url("", api.urls)]
app = get_asgi_application()
