"""What is found on real servers, and in Django projects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.urls import path as url
from django.views import View
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from tests.doctor import shops
from tests.doctor.test_planted import codes
from tests.servers.postgresql import PostgresqlServer
from tests.servers.redis import RedisServer
from tests.shells.django_site import HERE, OURS, Site, on_file
from twicesafe import PUBLIC, Effects, Policy
from twicesafe.django import idempotent
from twicesafe.doctor import Circumstances, diagnose
from twicesafe.stores.psycopg import PsycopgStore
from twicesafe.stores.redis import AsyncRedisStore, RedisStore
from twicesafe.stores.sqlalchemy import AsyncSqlalchemyStore, SqlalchemyStore

TRANSACTIONAL = Policy(effects=Effects.TRANSACTIONAL)


@pytest.fixture(scope="module")
def database(postgresql_server: PostgresqlServer) -> str:
    """A database with the tables."""
    dsn = postgresql_server.create_database()
    store = PsycopgStore(dsn)
    store.apply_schema()
    store.close()
    return dsn.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"isolation_level": "AUTOCOMMIT"}, ["no-transaction"]),
        ({"isolation_level": "SERIALIZABLE"}, ["isolation-strict"]),
        ({"pool_size": 1, "max_overflow": 0}, ["pool-small"]),
    ],
    ids=repr,
)
def test_an_engine(
    database: str, tmp_path: Path, options: dict[str, Any], expected: list[str], *, asynchronous: bool
) -> None:
    """R23: an engine that commits by itself, is stricter than needed, or has one connection for all is found out."""
    if asynchronous:
        store: Any = AsyncSqlalchemyStore(create_async_engine(database, **options))
        app = shops.starlette_shop(tmp_path, store=store, policy=TRANSACTIONAL)
    else:
        blocking = SqlalchemyStore(sessionmaker(create_engine(database, **options)))
        app = shops.flask_shop(tmp_path, store=blocking, policy=TRANSACTIONAL)
    assert codes(app) == expected


def test_a_pool_by_what_runs_at_once(database: str, tmp_path: Path) -> None:
    """R23: an engine's pool counts with what it may have above its size."""
    store = SqlalchemyStore(create_engine(database, pool_size=5, max_overflow=5))
    app = shops.flask_shop(tmp_path, store=store, policy=TRANSACTIONAL)
    assert codes(app, Circumstances(concurrency=11)) == ["pool-small"]
    assert codes(app, Circumstances(concurrency=10)) == []


def test_redis_without_a_disk(redis_server: RedisServer, tmp_path: Path) -> None:
    """R10: a server that forgets everything when it restarts is found out, by either kind of store."""
    assert codes(shops.starlette_shop(tmp_path, store=AsyncRedisStore(redis_server.url))) == ["redis-forgets"]
    assert codes(shops.flask_shop(tmp_path, store=RedisStore(redis_server.url))) == ["redis-forgets"]


def test_redis_that_keeps_or_evicts(durable_redis: RedisServer, tmp_path: Path) -> None:
    """R10: nothing is found on a server that keeps all; one that writes late, or evicts, is found out."""

    def found() -> list[str]:
        return codes(shops.starlette_shop(tmp_path, store=AsyncRedisStore(durable_redis.url)))

    assert found() == []
    client = durable_redis.client()
    client.config_set("appendfsync", "everysec")
    assert found() == ["redis-forgets"]
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert found() == ["redis-evicts"]
    client.close()


# --- Django -----------------------------------------------------------------------------------------------------------


@idempotent()
def charge(request: HttpRequest) -> HttpResponse:
    return HttpResponse("charged", status=201)


class Refunds(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("refunded", status=201)


def spoofed(request: HttpRequest) -> str | None:
    return request.headers.get("X-User-Id")


AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@pytest.mark.parametrize("handler", [WSGIHandler, ASGIHandler])
def test_a_django_project(handler: Any, tmp_path: Path) -> None:
    """R6, R22: an honest project has nothing; each change to its settings that is wrong is found by itself."""
    gzip, cors = "django.middleware.gzip.GZipMiddleware", f"{HERE}.Callers"
    for number, (settings, expected) in enumerate(
        [
            ({}, []),
            ({"TWICESAFE": {"SCOPE": spoofed}}, ["scope-from-header"]),
            ({"MIDDLEWARE": [cors, OURS, gzip]}, ["compression-inside"]),
            ({"MIDDLEWARE": [cors]}, ["nothing-protected"]),
            ({"TWICESAFE": {"STORE": "nowhere:"}}, ["settings-wrong"]),
        ]
    ):
        changes: Any = settings
        with _site(tmp_path / str(number)) as site, site.serving(url("charges", charge), **changes):
            assert [one.code for one in _diagnosed(handler)] == expected, settings
    with (
        _site(tmp_path / "unprotected") as site,
        site.serving(url("charges", charge), url("refunds", Refunds.as_view())),
    ):
        (found,) = _diagnosed(handler)
        assert (found.code, found.where) == ("route-unprotected", "POST refunds")


@contextmanager
def _site(folder: Path) -> Iterator[Site]:
    """A project of its own: who looks at one closes its store."""
    folder.mkdir()
    site = on_file(folder)
    try:
        yield site
    finally:
        site.close()


def _diagnosed(handler: Any) -> Any:
    """A handler loads its middlewares when it is made, which needs settings that are right."""
    return diagnose(handler.__new__(handler))


def test_a_django_project_that_knows_its_callers(tmp_path: Path) -> None:
    """R6: PUBLIC in a project with django.contrib.auth shares everybody's keys."""
    for order, settings, expected in [
        ([AUTHENTICATION, OURS], {"SCOPE": PUBLIC}, "scope-public"),
        ([OURS, AUTHENTICATION], {}, "authentication-inside"),
    ]:
        with _site(tmp_path / expected) as site, site.serving(charge, MIDDLEWARE=order, TWICESAFE=settings):
            assert [one.code for one in _diagnosed(WSGIHandler)] == [expected]
