"""The probe application in Django: asynchronous views, class-based ones, under ASGI."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path as url
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from tests.behaviour.django_parts import HttpError, configure, keyed_in, ready, response_to, seen_in
from tests.behaviour.knobs import CONTRACTS, UNKEYED, Row, append_async, append_on, work_async

COMMANDS = {
    "uvicorn": "uvicorn tests.behaviour.apps.django_async:app --host 127.0.0.1 --port {port} --log-level warning",
    "granian": "granian tests.behaviour.apps.django_async:app --interface asgi --host 127.0.0.1 --port {port} --no-log",
}
NOT_OFFERED = {
    "background tasks": "nothing of Django's runs after the answer",
    "cross-origin": "Django has no layer for it",
    "repeated lines": "a response of Django's has one line of each name, cookies apart",
}

configure(__name__, "tests.behaviour.django_parts.Authentication", "tests.behaviour.django_parts.Errors")

from twicesafe.django import idempotent  # noqa: E402 - Django's settings come first


@sync_to_async
def append_in_transaction(row: Row) -> int:
    """The effect, by the connection that the transaction is on."""
    return append_on(connection.connection, row)


class AtWork(View):
    """The work of every route."""

    async def post(self, request: HttpRequest, **_: str) -> HttpResponse:
        append: Any = append_in_transaction if request.path == "/tx/jobs" else append_async
        reply = await work_async(seen_in(request), HttpError, keyed=keyed_in(request), append=append)
        return response_to(reply, reply.chunks_async() if reply.stream else None)

    get = put = patch = delete = post


def view(path: str, *methods: str) -> Any:
    """The view of a contract's path."""
    contract = method_decorator(idempotent(CONTRACTS[path], name=path), name="dispatch")
    takes = [method.lower() for method in (*CONTRACTS[path].methods, *methods)]
    return csrf_exempt(contract(type("Work", (AtWork,), {"http_method_names": takes})).as_view())


urlpatterns = [
    url("ready", ready),
    *[url(path[1:], view(path, *(UNKEYED if path == "/jobs" else ()))) for path in CONTRACTS],
    url("things/<str:name>/jobs", view("/jobs")),
]
app = get_asgi_application()
