"""A keyed request to a Django application, whole and in-process: by middlewares that remember in memory, and views of
REST framework that do it in the database.

Each peer stands where its documentation puts it, and all views are one; the middlewares are the only ones. What is
remembered in memory has `Lean` of benchmarks.wsgi for its floor. In the database, SQLite in a file, the floor is a
middleware of three statements. The time is that of the processor, as in benchmarks.wsgi: what waits for the disk is not
in it, and the database, which works in this process, is.

What the peers do differently: django-idempotency-key claims nothing, so two at once both run; it knows callers by
their Authorization, and a replay is 409 unless told otherwise, as it is here. drf-idem calls the view for each
duplicate too, then answers as the first did, for a minute at most; it compares no bodies and knows no callers.
drf-idempotency claims and compares, and knows no callers; whoever is late completes what another has taken over.
drf-idempotencykey does it for authenticated callers; a key whose process has died stays taken until it expires.
djangorestframework-idempotency-key runs view and answer in one transaction, and takes no scope. twicesafe's contract is
its default, `opaque`: a transaction before the view and one after it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.cache import caches
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.db import connection
from django.http import HttpResponse
from django.test.utils import override_settings
from django.urls import path

from benchmarks.asgi import ROUNDS
from benchmarks.measure import Row, Subject, interleaved, rows
from benchmarks.wsgi import Lean, first_requests, replays
from twicesafe.stores.memory import MemoryStore

BODY = b'{"amount": 1, "note": "' + b"x" * 1000 + b'"}'
ANSWER = {"id": "ch_1"}
TIMES = 100
MIDDLEWARES = {
    "twicesafe.django": "twicesafe.django.IdempotencyMiddleware",
    "django-idempotency-key": "idempotency_key.middleware.IdempotencyKeyMiddleware",
    "drf-idem": "drf_idem.middleware.IdempotencyMiddleware",
    "drf-idempotency": "drf_idempotency.middleware.IdempotencyMiddleware",
    "djangorestframework-idempotency-key": "rest_framework_idempotency_key.middleware.IdempotencyKeyMiddleware",
    "floor": "benchmarks.wsgi_django.ByHand",
}
IN_MEMORY = ("django-idempotency-key", "drf-idem")
IN_DATABASE = ("drf-idempotency", "drf-idempotencykey", "djangorestframework-idempotency-key")
MODULES = {
    "django-idempotency-key": "idempotency_key", "drf-idem": "drf_idem", "drf-idempotency": "drf_idempotency",
    "drf-idempotencykey": "drf_idempotencykey", "djangorestframework-idempotency-key": "rest_framework_idempotency_key",
}  # fmt: skip
"""Packages to what is imported of them."""


def there(names: tuple[str, ...]) -> list[str]:
    """Those that are installed."""
    return [name for name in names if find_spec(MODULES[name])]


def caller(_: Any) -> str:
    """Who is calling."""
    return "user"


def configure(folder: Path) -> None:
    """Django, with one database in a file and everybody's applications."""
    cache = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10**9}}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={"default": cache, "drf_idem": {**cache, "LOCATION": "drf_idem"}},
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "django.db"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            "django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "twicesafe.django",
            *(MODULES[name] for name in there(IN_DATABASE)),
        ],
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        DRF_IDEM={"HEADER": "HTTP_IDEMPOTENCY_KEY"},
        IDEMPOTENCY={"BACKEND": "drf_idempotency.backends.database.DatabaseBackend"},
        IDEMPOTENCY_KEY={"CONFLICT_STATUS_CODE": None},
        IDEMPOTENCY_KEY_LOCK_TIMEOUT=30,
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [f"{__name__}.Somebody"]},
        TWICESAFE={"SCOPE": caller, "STORE": MemoryStore, "OBSERVER": lambda _: None},
    )  # fmt: skip
    django.setup()
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(
            "CREATE TABLE by_hand (digest BLOB PRIMARY KEY, fingerprint BLOB NOT NULL, status INTEGER, type TEXT, "
            "body BLOB) WITHOUT ROWID"
        )
    Somebody.user = apps.get_model("auth", "User").objects.create(username="user")
    urlpatterns[:] = routes()


# --- views and what is around them ------------------------------------------------------------------------------------


class Somebody:
    """Authenticates everybody as one user, whom no statement looks for."""

    user: Any = None

    def authenticate(self, request: Any) -> tuple[Any, None]:
        """Of REST framework."""
        return self.user, None

    def authenticate_header(self, request: Any) -> None:
        """Of REST framework."""


class ByHand:
    """The floor in the database: a claim, an answer, and the answer again."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        key = request.headers.get("Idempotency-Key")
        if request.method != "POST" or key is None:
            return self.get_response(request)
        digest = sha256(f"user\x00{key}".encode()).digest()
        fingerprint = sha256(request.get_full_path().encode() + b"\x00" + request.body).digest()
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO by_hand (digest, fingerprint) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (digest, fingerprint),
            )
            if not cursor.rowcount:
                cursor.execute("SELECT fingerprint, status, type, body FROM by_hand WHERE digest = %s", (digest,))
                theirs, status, kind, body = cursor.fetchone()
                if theirs != fingerprint or status is None:
                    return HttpResponse(status=422 if theirs != fingerprint else 409)
                return HttpResponse(body, kind, status, headers={"Idempotent-Replayed": "true"})
        response = self.get_response(request)
        response.render() if hasattr(response, "render") else None
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE by_hand SET status = %s, type = %s, body = %s WHERE digest = %s",
                (response.status_code, response["Content-Type"], response.content, digest),
            )
        return response


urlpatterns: list[Any] = []


def routes() -> list[Any]:
    """A view in six shapes: of Django and of REST framework, and each as somebody wants it."""
    from django.http import JsonResponse
    from django.views.decorators.csrf import csrf_exempt
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from twicesafe.django import IdempotentMixin, idempotent

    def work(request: Any) -> Any:
        assert request.body
        return JsonResponse(ANSWER, status=201)

    class Work(APIView):
        def post(self, request: Any) -> Any:
            assert request.data
            return Response(ANSWER, status=201)

    class Ours(IdempotentMixin, Work):
        pass

    found = [
        path("plain/bare", csrf_exempt(work)),
        path("plain/twicesafe.django", csrf_exempt(idempotent()(work))),
        path("rest/bare", Work.as_view()),
        path("rest/twicesafe.django", Ours.as_view()),
    ]
    if there(("drf-idempotencykey",)):
        from drf_idempotencykey.mixins import DrfIdempotencyKeyMixin

        theirs = type("Theirs", (DrfIdempotencyKeyMixin, Work), {})
        found.append(path("rest/drf-idempotencykey", theirs.as_view()))
    if there(("djangorestframework-idempotency-key",)):
        from rest_framework_idempotency_key.decorators import simple_idempotency_key_method

        post = simple_idempotency_key_method(Work.post)
        found.append(
            path("rest/djangorestframework-idempotency-key", type("Stepwise", (Work,), {"post": post}).as_view())
        )
    return found


def at(name: str, view: str, _: bytes, **more: Any) -> Any:
    """An application with this middleware alone, if it has one; whatever arrives, arrives at this view."""
    middleware = MIDDLEWARES.get(name)
    with override_settings(MIDDLEWARE=[middleware] if middleware else [], **more):
        handler = WSGIHandler()
    caches["drf_idem"].clear()

    def routed(environ: Any, start_response: Any) -> Any:
        environ["PATH_INFO"] = view
        return handler(environ, start_response)

    return routed


def in_memory() -> dict[str, Callable[[bytes], Any]]:
    """Name to what makes an application that remembers in memory."""
    return {
        "bare": partial(at, "bare", "/plain/bare"),
        "floor": lambda answer: Lean(at("bare", "/plain/bare", answer)),
        "twicesafe.django": partial(at, "twicesafe.django", "/plain/twicesafe.django"),
        **{name: partial(at, name, "/plain/bare") for name in there(IN_MEMORY)},
    }


def in_database() -> dict[str, Callable[[bytes], Any]]:
    """The same, for those that use the database; each on tables of its own."""
    stored = {**settings.TWICESAFE, "STORE": "default"}
    views = {name: f"/rest/{name}" for name in ("drf-idempotencykey", "djangorestframework-idempotency-key")}
    return {
        "bare": partial(at, "bare", "/rest/bare"),
        "floor": partial(at, "floor", "/rest/bare"),
        "twicesafe.django": partial(at, "twicesafe.django", "/rest/twicesafe.django", TWICESAFE=stored),
        **{name: partial(at, name, views.get(name, "/rest/bare")) for name in there(IN_DATABASE)},
    }


@contextmanager
def prepared() -> Iterator[None]:
    """A Django with its tables."""
    with tempfile.TemporaryDirectory() as folder:
        configure(Path(folder))
        yield


async def measured() -> list[Row]:
    """All cases."""
    found: list[Row] = []
    for group, made in (("Django", in_memory()), ("REST framework, database", in_database())):
        for case, how in (("first request", first_requests), ("replay", replays)):
            compared = [Subject(name, how(make, b"", BODY)) for name, make in made.items()]
            await interleaved(compared, rounds=ROUNDS, times=TIMES)
            found += rows(f"{group}, {case}", "us", compared, lambda seconds: seconds * 1e6)
    return found


def run() -> list[Row]:
    """Part of benchmarks.wsgi."""
    with prepared():
        return asyncio.run(measured())
