"""What the probe applications on Django share: settings, of which a process has one set, and what they are made of."""

from __future__ import annotations

from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.utils.deprecation import MiddlewareMixin

from tests.behaviour.knobs import EXPIRES, MAPPED, UNAUTHENTICATED, MappedError, Reply, Seen, database, user_of


def configure(application: str, *around: str, **more: Any) -> None:
    """Configure Django for the application in this module; `around` are its middlewares."""
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database(), "OPTIONS": {"timeout": 30}}},
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        INSTALLED_APPS=["twicesafe.django"],
        MIDDLEWARE=[*around, "twicesafe.django.IdempotencyMiddleware"],
        ROOT_URLCONF=application,
        SECRET_KEY="probe",
        TWICESAFE={"SCOPE": "tests.behaviour.django_parts.user_id"},
        USE_TZ=True,
        **more,
    )
    django.setup()
    call_command("migrate", verbosity=0)


class HttpError(Exception):
    """Django has errors of its own for a few statuses only."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def user_id(request: HttpRequest) -> str | None:
    """Who is calling."""
    user: str | None = request.probe_user
    return user


class Authentication(MiddlewareMixin):
    """Knows who is calling, before anything else is done for them."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        request.probe_user = user_of(request.headers.get("authorization"))
        if request.probe_user is None and request.path != "/ready":
            return HttpResponse(status=401, headers=dict([UNAUTHENTICATED]))
        return None


class Errors(MiddlewareMixin):
    """Turns the application's exceptions into answers."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, MappedError):
            return JsonResponse(MAPPED, status=409)
        if isinstance(error, HttpError):
            return JsonResponse({"status": error.status}, status=error.status)
        return None


def seen_in(request: HttpRequest) -> Seen:
    """The request as the application saw it."""
    return Seen(request.headers.get("probe"), request.method, request.path, request.probe_user, request.body)


def keyed_in(request: HttpRequest) -> Any:
    """twicesafe's view of the request, None where it has no key."""
    # Django's settings come first.
    from twicesafe.django import current

    try:
        return current(request)
    except LookupError:
        return None


def response_to(reply: Reply, chunks: Any = None) -> HttpResponse:
    """The answer in Django's terms."""
    if reply.stream:
        response = StreamingHttpResponse(chunks or reply.chunks(), status=reply.status)
    else:
        response = HttpResponse(reply.body, status=reply.status)
        if reply.body:
            # As CommonMiddleware does, which does so for a 204, too.
            response.headers["Content-Length"] = len(reply.body)
    for name, line in reply.lines:
        response.headers[name.decode()] = line.decode("latin-1")
    for name in reply.cookies:
        response.set_cookie(name, "1", expires=EXPIRES)
    return response


def ready(request: HttpRequest) -> HttpResponse:
    """It serves."""
    return HttpResponse("ready")
