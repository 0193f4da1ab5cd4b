"""A Django site of a test's own: views, settings and a database alias, in the process of the test.

Settings are those of tests/stores/django_kinds.py, of which a process has one set, with changes while a site is open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path as url
from django.utils.deprecation import MiddlewareMixin
from psycopg.conninfo import conninfo_to_dict

from tests.servers.postgresql import PostgresqlServer
from tests.stores.django_kinds import alias_of, forget
from twicesafe.core.keys import scoped_key
from twicesafe.core.record import Record
from twicesafe.observe import Event
from twicesafe.stores.django import DjangoStore

K = "k-0001-0001-0001"
OURS = "twicesafe.django.IdempotencyMiddleware"
HERE = "tests.shells.django_site"
settings.SECRET_KEY = "test"
settings.TWICESAFE = {}


class Callers(MiddlewareMixin):
    """Callers are named by the header X-User. Its user is nobody's whose account is closed."""

    revoked: set[str] = set()  # noqa: RUF012 - the sites of one test share it on purpose

    def process_request(self, request: HttpRequest) -> None:
        request.user = Caller(request.headers.get("X-User", ""))


class Caller:
    """As much of a user as decorators look at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_authenticated = bool(name) and name not in Callers.revoked

    def has_perms(self, names: object) -> bool:
        return self.is_authenticated


def user_id(request: HttpRequest) -> str | None:
    """Who is calling."""
    name: str = request.user.name
    return name or None


class Site:
    """One alias, one ledger in it, one store beside it."""

    def __init__(
        self, alias: str, *, around: tuple[str, ...] = (f"{HERE}.Callers",), inside: tuple[str, ...] = ()
    ) -> None:
        self.alias = alias
        self.store = DjangoStore(alias)
        self.store.apply_schema()
        self.events: list[Event] = []
        self.middleware = [f"{HERE}.Callers", OURS]
        self.twicesafe: dict[str, Any] = {"STORE": self.store, "SCOPE": user_id, "OBSERVER": self.events.append}
        self.execute("CREATE TABLE signs (sign INTEGER PRIMARY KEY)")
        self.execute("INSERT INTO signs VALUES (1)")
        self.execute("CREATE TABLE ledger (n INTEGER, sign INTEGER REFERENCES signs DEFERRABLE INITIALLY DEFERRED)")

    def execute(self, sql: str) -> None:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql)

    def append(self, *, sign: int = 1) -> int:
        """The effect, by Django's connection. The database refuses another sign at the commit."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute("INSERT INTO ledger VALUES (1, %s)", [sign])
            cursor.execute("SELECT count(*) FROM ledger")
            return int(cursor.fetchone()[0])

    def rows(self) -> int:
        """How many effects were committed."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM ledger")
            return int(cursor.fetchone()[0])

    @property
    def in_atomic(self) -> bool:
        """Whether a transaction of Django's is open."""
        return bool(connections[self.alias].in_atomic_block)

    def record(self, key: str = K, user: str = "ann") -> Record | None:
        """What is stored of a key."""
        return self.store.read(scoped_key(user, key).digest).record

    @contextmanager
    def serving(self, *routes: Any, every_view: bool = False, **changes: Any) -> Iterator[Self]:
        """Serve these routes, or this one view at /jobs, under changed settings."""
        patterns = tuple([url("jobs", route) if callable(route) else route for route in routes])
        with override_settings(
            ALLOWED_HOSTS=["*"],
            MIDDLEWARE=changes.pop("MIDDLEWARE", self.middleware),
            ROOT_URLCONF=patterns,
            TWICESAFE={**self.twicesafe, "EVERY_VIEW": every_view, **changes.pop("TWICESAFE", {})},
            **changes,
        ):
            yield self

    def close(self) -> None:
        self.store.close()
        forget(self.alias)

    # --- requests -----------------------------------------------------------------------------------------------------

    def post(self, path: str = "/jobs", body: Any = b"{}", **how: Any) -> Any:
        """One request under WSGI, as Django's own test client makes it."""
        return request(Client(raise_request_exception=False), path, body, **how)

    async def apost(self, path: str = "/jobs", body: Any = b"{}", **how: Any) -> Any:
        """The same under ASGI."""
        return await request(AsyncClient(raise_request_exception=False), path, body, **how)


def request(
    client: Any,
    path: str,
    body: Any,
    *,
    method: str = "post",
    key: str | None = K,
    user: str | None = "ann",
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
    **how: Any,
) -> Any:
    """One request of `user` under `key`."""
    lines = dict(headers or {})
    if key is not None:
        lines["Idempotency-Key"] = key
    if user is not None:
        lines["X-User"] = user
    return getattr(client, method)(path, body, content_type=content_type, headers=lines, **how)


def lines(response: Any) -> list[tuple[str, str]]:
    """The header lines, cookies included, but for what only tells a replay."""
    told = [*response.headers.items(), *[("Set-Cookie", one.OutputString()) for one in response.cookies.values()]]
    return [line for line in told if line[0] != "idempotent-replayed"]


def replayed(response: Any) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


def same(first: Any, again: Any) -> None:
    """Assert that `again` is the replay of `first`."""
    assert not replayed(first) and replayed(again)
    assert (again.status_code, again.content, lines(again)) == (first.status_code, first.content, lines(first))


def problem(response: Any) -> str:
    """The kind of a problem document."""
    assert response.headers["content-type"] == "application/problem+json", response.content
    return str(json.loads(response.content)["type"]).rpartition(":")[2]


def worker(site: Site, status: int = 201, **more: Any) -> Callable[..., HttpResponse]:
    """A view that appends and says so."""

    def work(request: HttpRequest, **_: Any) -> HttpResponse:
        return JsonResponse({"n": site.append(), **more}, status=status)

    return work


def on_postgresql(server: PostgresqlServer, *, atomic: bool = False) -> Site:
    """The same on a PostgreSQL database of its own."""
    parts = conninfo_to_dict(server.create_database())
    where = {"USER": parts["user"], "HOST": parts["host"], "PORT": str(parts["port"])}
    return Site(alias_of("postgresql", str(parts["dbname"]), ATOMIC_REQUESTS=atomic, **where))


def on_file(folder: Path, *, atomic: bool = False) -> Site:
    """A site on a SQLite file, with ATOMIC_REQUESTS or without."""
    return Site(alias_of("sqlite3", str(folder / "site.db"), ATOMIC_REQUESTS=atomic))
