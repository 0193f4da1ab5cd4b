"""The probe application in Django: views that block, under WSGI."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path as url
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from tests.behaviour.django_parts import HttpError, configure, keyed_in, ready, response_to, seen_in
from tests.behaviour.knobs import CONTRACTS, UNKEYED, append, append_on, work

COMMANDS = {
    "gunicorn, threads": "gunicorn tests.behaviour.apps.django:app -b 127.0.0.1:{port} -k gthread --threads 24 "
    "--limit-request-field_size 131072 --log-level warning",
    "gunicorn": "gunicorn tests.behaviour.apps.django:app -b 127.0.0.1:{port} -k sync --log-level warning",
}
NOT_OFFERED = {
    "background tasks": "nothing of Django's runs after the answer",
    "cross-origin": "Django has no layer for it",
    "repeated lines": "a response of Django's has one line of each name, cookies apart",
}

configure(__name__, "tests.behaviour.django_parts.Authentication", "tests.behaviour.django_parts.Errors")

from twicesafe.django import idempotent  # noqa: E402 - Django's settings come first


def at_work(request: HttpRequest, **_: str) -> HttpResponse:
    """The work of every route."""
    how = partial(append_on, connection.connection) if request.path == "/tx/jobs" else append
    return response_to(work(seen_in(request), HttpError, keyed=keyed_in(request), append=how))


def view(path: str, *methods: str) -> Any:
    """The view of a contract's path."""
    takes = [*CONTRACTS[path].methods, *methods]
    return csrf_exempt(require_http_methods(takes)(idempotent(CONTRACTS[path], name=path)(at_work)))


urlpatterns = [
    url("ready", ready),
    *[url(path[1:], view(path, *(UNKEYED if path == "/jobs" else ()))) for path in CONTRACTS],
    url("things/<str:name>/jobs", csrf_exempt(require_http_methods(["POST"])(view("/jobs")))),
]
app = get_wsgi_application()
