"""The probe application in Django REST Framework."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse
from django.urls import path as url

from tests.behaviour.django_parts import configure, keyed_in, ready, response_to
from tests.behaviour.knobs import (
    CONTRACTS,
    MAPPED,
    UNAUTHENTICATED,
    UNKEYED,
    MappedError,
    Seen,
    append,
    append_on,
    user_of,
    work,
)

COMMANDS = {
    "gunicorn": "gunicorn tests.behaviour.apps.drf:app -b 127.0.0.1:{port} -k gthread --threads 24 "
    "--limit-request-field_size 131072 --log-level warning",
}
NOT_OFFERED = {
    "background tasks": "nothing of Django's runs after the answer",
    "cross-origin": "Django has no layer for it",
    "repeated lines": "a response of Django's has one line of each name, cookies apart",
}

configure(
    __name__,
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "EXCEPTION_HANDLER": "tests.behaviour.apps.drf.handler",
        "UNAUTHENTICATED_USER": None,
    },
)

from rest_framework.authentication import BaseAuthentication  # noqa: E402 - Django's settings come first
from rest_framework.exceptions import APIException  # noqa: E402
from rest_framework.permissions import IsAuthenticated  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView, exception_handler  # noqa: E402

from twicesafe.django import IdempotentMixin  # noqa: E402


class User(str):
    """A user, by name."""

    is_authenticated = True


class Bearer(BaseAuthentication):
    """Authenticates within the view, as REST framework does."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        user = user_of(request.headers.get("authorization"))
        request._request.probe_user = user
        return None if user is None else (User(user), None)

    def authenticate_header(self, request: Request) -> str:
        return UNAUTHENTICATED[1]


def handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """An error of the application's own."""
    return Response(MAPPED, 409) if isinstance(error, MappedError) else exception_handler(error, context)


def http_error(status: int) -> APIException:
    """REST framework's own."""
    error = APIException({"status": status})
    error.status_code = status
    return error


class AtWork(IdempotentMixin, APIView):
    """The work of every route."""

    authentication_classes = (Bearer,)
    permission_classes = (IsAuthenticated,)

    def post(self, request: Request, **_: str) -> HttpResponse:
        how = partial(append_on, connection.connection) if request.path == "/tx/jobs" else append
        seen = Seen(request.headers.get("probe"), request.method, request.path, str(request.user), request.body)
        return response_to(work(seen, http_error, keyed=keyed_in(request), append=how))

    get = put = patch = delete = post


def view(path: str, *methods: str) -> Any:
    """The view of a contract's path."""
    takes = [method.lower() for method in (*CONTRACTS[path].methods, *methods)]
    return type("Work", (AtWork,), {"http_method_names": takes, "idempotency": CONTRACTS[path]}).as_view()


urlpatterns = [
    url("ready", ready),
    *[url(path[1:], view(path, *(UNKEYED if path == "/jobs" else ()))) for path in CONTRACTS],
    url("things/<str:name>/jobs", view("/jobs")),
]
app = get_wsgi_application()
