"""Each misconfiguration is found where it is planted, and nothing is found in an application that is honest."""

from __future__ import annotations

import socket
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import falcon
import flask
import litestar
import pytest
import quart
import tenacity
from fastapi import Header
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.doctor import shops
from tests.doctor.shops import Authentication, WsgiAuthentication
from twicesafe import PUBLIC, Effects, Policy
from twicesafe.doctor import CATALOGUE, Circumstances, Finding, diagnose
from twicesafe.doctor.parts import pool_size
from twicesafe.doctor.stores import file_system
from twicesafe.falcon import Idempotency as FalconIdempotency
from twicesafe.litestar import Idempotency as LitestarIdempotency
from twicesafe.quart import Idempotency as QuartIdempotency
from twicesafe.stores.asyncpg import AsyncpgStore
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.stores.sqlite import AsyncSqliteStore, SqliteStore

HONEST = [shops.starlette_shop, shops.fastapi_shop, shops.flask_shop, shops.asgi_shop, shops.wsgi_shop]


def codes(app: Any, *known: Any, **how: Any) -> list[str]:
    return [finding.code for finding in diagnose(app, *known, **how)]


@pytest.mark.parametrize("shop", HONEST)
def test_an_honest_application(shop: Any, tmp_path: Path) -> None:
    """R6: nothing is found where nothing is wrong: layers in their order, a scope by authentication, tables."""
    assert diagnose(shop(tmp_path), Circumstances(workers=4)) == []


@pytest.mark.parametrize("shop", HONEST)
def test_a_public_scope(shop: Any, tmp_path: Path) -> None:
    """R6: an application that knows its callers and shares their keys is told so; one that knows none is not."""
    assert codes(shop(tmp_path, scope=PUBLIC)) == ["scope-public"]
    if shop is not shops.fastapi_shop:
        assert codes(shop(tmp_path, scope=PUBLIC, around=())) == []


async def header_of_scope(scope: Any) -> str | None:
    return {name: line.decode() for name, line in scope["headers"]}.get(b"x-user-id")


async def header_of_request(request: Request) -> str:
    return f"user-{request.headers['X-User-Id']}"


def header_of_dependency(x_user_id: Annotated[str, Header()]) -> str:
    return x_user_id


def header_of_environ(environ: Any) -> str | None:
    return environ.get("HTTP_X_USER_ID")


def header_in_context() -> str | None:
    return flask.request.headers.get("X-User-Id")


@pytest.mark.parametrize(
    ("shop", "scope"),
    [
        (shops.asgi_shop, header_of_scope),
        (shops.starlette_shop, header_of_request),
        (shops.fastapi_shop, header_of_dependency),
        (shops.wsgi_shop, header_of_environ),
        (shops.flask_shop, header_in_context),
    ],
)
def test_a_scope_that_believes_a_header(shop: Any, scope: Any, tmp_path: Path) -> None:
    """R6: whoever may name anybody is found out by naming nobody's name."""
    (found,) = diagnose(shop(tmp_path, scope=scope))
    assert (found.code, "x-user-id" in found.detail) == ("scope-from-header", True)


def looked_up(request: Request) -> str | None:
    return {"key-1": "ann"}.get(request.headers["x-api-key"])


def test_a_header_that_is_looked_up(tmp_path: Path) -> None:
    """R6: a scope that knows whose a key is believes nothing, and nothing is found."""
    assert codes(shops.starlette_shop(tmp_path, scope=looked_up)) == []


class SessionMiddleware(Authentication):
    pass


class RetryMiddleware(Authentication):
    pass


INSIDE = {
    "compression-inside": Middleware(GZipMiddleware),
    "cors-inside": Middleware(CORSMiddleware),
    "authentication-inside": Middleware(Authentication),
    "session-inside": Middleware(SessionMiddleware),
    "retries-inside": Middleware(RetryMiddleware),
}


@pytest.mark.parametrize("code", INSIDE)
@pytest.mark.parametrize("shop", [shops.starlette_shop, shops.fastapi_shop])
def test_a_layer_inside(shop: Any, code: str, tmp_path: Path) -> None:
    """R22: what has to treat replays as it treats first answers, or may not run twice, stands outside."""
    assert codes(shop(tmp_path, inside=[INSIDE[code]])) == [code]


@pytest.mark.parametrize("code", INSIDE)
def test_a_layer_inside_of_a_bare_application(code: str, tmp_path: Path) -> None:
    """R22: the same without any framework, where layers are known by what they stand around."""
    layer = INSIDE[code].cls
    assert codes(shops.asgi_shop(tmp_path, inside=[layer])) == [code]


class Thief(Authentication):
    """Reads the body for its log, and hands on what is left of it."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await receive()
        await self.app(scope, receive, send)


class WsgiThief(WsgiAuthentication):
    def __call__(self, environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read(10)
        return self.app(environ, start_response)


class Closed(Authentication):
    """Lets nobody through who is not known."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("shop", "around"),
    [
        (shops.starlette_shop, [Middleware(Thief)]),
        (shops.fastapi_shop, [Middleware(Thief)]),
        (shops.asgi_shop, [Thief]),
        (shops.flask_shop, [WsgiThief]),
        (shops.wsgi_shop, [WsgiThief]),
    ],
)
def test_a_layer_that_takes_the_body(shop: Any, around: Any, tmp_path: Path) -> None:
    """R8: a body that does not arrive whole has another fingerprint; the layer that takes it is named."""
    (found,) = diagnose(shop(tmp_path, around=around))
    assert found.code == "body-consumed" and found.where.endswith("Thief")


def test_a_layer_that_lets_nobody_through_is_not_judged(tmp_path: Path) -> None:
    """R22: what refuses a request that was made up takes no body from anybody."""
    assert codes(shops.starlette_shop(tmp_path, around=[Middleware(Closed)])) == []


class Leaver(Authentication):
    """Ends the process where it lacks something."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sys.exit(0)


def test_a_layer_that_ends_the_process_ends_no_look(tmp_path: Path) -> None:
    """R44: what exits while it is tried is not judged, and nothing is said to be well because of it."""
    assert codes(shops.starlette_shop(tmp_path, around=[Middleware(Leaver)])) == []


@tenacity.retry(stop=tenacity.stop_after_attempt(3))
async def stubborn(request: Request) -> JSONResponse:
    return await shops.charged(request)


def test_a_handler_that_is_called_again(tmp_path: Path) -> None:
    """R40: a handler under a retry decorator does its work as often as that likes, under one key."""
    assert codes(shops.starlette_shop(tmp_path, endpoint=stubborn)) == ["retries-inside"]


def test_a_retention_shorter_than_the_clients_horizon(tmp_path: Path) -> None:
    """R20: a key that is forgotten while somebody may still ask runs again."""
    policy = Policy(key_retention=timedelta(hours=24))
    assert codes(shops.starlette_shop(tmp_path, policy=policy)) == []
    assert codes(shops.starlette_shop(tmp_path, policy=policy), Circumstances(horizon=timedelta(days=3))) == [
        "retention-short"
    ]


@pytest.mark.parametrize(
    "policy", [Policy(lease=timedelta(seconds=2)), Policy(lease=timedelta(seconds=10), renewed_for=timedelta(0))]
)
def test_a_lease_shorter_than_the_work(policy: Policy, tmp_path: Path) -> None:
    """R12: a lease that ends while its owner works lets another one run."""
    known = Circumstances(longest=timedelta(seconds=60))
    assert codes(shops.starlette_shop(tmp_path, policy=policy), known) == ["lease-short"]


def test_a_route_without_a_contract(tmp_path: Path) -> None:
    """R2: what changes something and is no operation is named."""
    routes = [Route("/refunds", shops.charged, methods=["POST"]), Route("/charges", shops.charged, methods=["GET"])]
    (found,) = diagnose(shops.starlette_shop(tmp_path, routes=routes))
    assert (found.code, found.where) == ("route-unprotected", "POST /refunds")


def test_an_application_without_twicesafe() -> None:
    """R2: an application that nothing protects is not called healthy."""
    assert codes(shops.charged) == ["nothing-protected"]


def litestar_shop(store: Any) -> Any:
    safe = LitestarIdempotency(store, scope=lambda request: "ann")

    @litestar.post("/charges")
    @safe.operation()
    async def charge() -> str:
        return "charged"

    return litestar.Litestar([charge], plugins=[safe], logging_config=None)


def quart_shop(store: Any) -> Any:
    app = quart.Quart("shop")
    safe = QuartIdempotency(app, store, scope=lambda: "ann")

    @app.post("/charges")
    @safe.operation()
    async def charge() -> Any:
        return "charged", 201

    return app


def falcon_shop(store: Any) -> Any:
    safe = FalconIdempotency(store, scope=lambda req: "ann")

    class Charges:
        @safe.operation()
        def on_post(self, req: Any, resp: Any) -> None:
            raise NotImplementedError

    app = falcon.App()
    app.add_route("/charges", Charges())
    return safe.protect(app)


@pytest.mark.parametrize("shop", [litestar_shop, quart_shop, falcon_shop])
def test_other_frameworks(shop: Any, tmp_path: Path) -> None:
    """R2: an application that is not taken apart is not said to be unprotected: its store and operations are found."""
    kind = SqliteStore if shop is falcon_shop else AsyncSqliteStore
    assert codes(shop(kind(shops.records(tmp_path)))) == []
    known = Circumstances(horizon=timedelta(days=3))
    assert codes(shop(kind(tmp_path / "empty.db")), known) == ["retention-short", "schema-wrong"]


def test_memory_and_several_workers(tmp_path: Path) -> None:
    """R10: records that one process has are no records for its neighbours."""
    app = shops.starlette_shop(tmp_path, store=AsyncMemoryStore())
    (found,) = diagnose(app, Circumstances(workers=4))
    assert (found.code, found.detail) == ("memory-store", "in the memory of each of 4 processes")


def test_a_schema_that_is_missing(tmp_path: Path) -> None:
    """R20: without its tables a store is found out before it is served."""
    (found,) = diagnose(shops.starlette_shop(tmp_path, store=AsyncSqliteStore(tmp_path / "empty.db")))
    assert found.code == "schema-wrong" and "twicesafe schema apply" in found.detail


def test_a_store_out_of_reach(tmp_path: Path) -> None:
    """R44: a server that is not there is told apart from one that is not set up, and no password is repeated."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        store = AsyncpgStore(f"postgresql://app:secret@127.0.0.1:{taken.getsockname()[1]}/shop")
        (found,) = diagnose(shops.starlette_shop(tmp_path, store=store))
    assert found.code == "store-unreachable" and "secret" not in str(found)


def test_clocks_that_differ(tmp_path: Path) -> None:
    """I12: the store's clock decides, so that somebody has to say where it is another one than this machine's."""
    path = shops.records(tmp_path)
    store = AsyncSqliteStore(path, clock=lambda: 1_000_000)
    assert codes(shops.starlette_shop(tmp_path, store=store)) == ["clock-skew"]


def test_a_file_on_a_network(tmp_path: Path) -> None:
    """R10: the file system is the one whose mount point is the longest that the path begins with."""
    mounts = tmp_path / "mounts"
    share = tmp_path / "a share"
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {escaped} nfs4 rw 0 0\ntmpfs {share}y tmpfs rw 0 0\n")
    assert file_system(share / "records.db", mounts) == "nfs4"
    assert file_system(tmp_path / "records.db", mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "nowhere") == ""


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs"])
def test_a_store_on_a_network(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R10: a store whose file is on such a file system is found, whoever opens it."""
    monkeypatch.setattr("twicesafe.doctor.stores.file_system", lambda path: kind)
    assert codes(shops.starlette_shop(tmp_path)) == codes(shops.flask_shop(tmp_path)) == ["sqlite-network"]


def test_a_pool_smaller_than_what_runs(tmp_path: Path) -> None:
    """R23: transactional requests hold a connection each; with fewer than run at once they wait for one another."""
    store = AsyncpgStore("postgresql://app@127.0.0.1:1/shop", pool_size=5)
    app = shops.starlette_shop(tmp_path, store=store, policy=Policy(effects=Effects.TRANSACTIONAL))
    assert pool_size(store) == 5
    assert codes(app, Circumstances(concurrency=40)) == ["store-unreachable", "pool-small"]
    assert codes(app, Circumstances(concurrency=5)) == ["store-unreachable"]


def test_another_store_than_the_applications(tmp_path: Path) -> None:
    """R44: a store that is named is looked at instead of the application's own."""
    app = shops.starlette_shop(tmp_path, store=AsyncMemoryStore())
    assert codes(app, stores=[AsyncSqliteStore(shops.records(tmp_path))]) == []


def test_looking_leaves_nothing(tmp_path: Path) -> None:
    """I2: the claim that is tried in a transaction is rolled back, and nothing else is written."""
    policy = Policy(effects=Effects.TRANSACTIONAL)
    assert codes(shops.starlette_shop(tmp_path, policy=policy)) == []
    connection = sqlite3.connect(tmp_path / "records.db")
    assert connection.execute("SELECT count(*) FROM twicesafe_records").fetchone() == (0,)
    connection.close()


def test_each_finding_is_planted() -> None:
    """R44: there is an application for each finding, and a test that names it."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [code for code in CATALOGUE if f'"{code}"' not in tests] == []


def test_findings_say_what_to_do() -> None:
    """R44: whatever is found says what it means and what to set."""
    told = [Finding(code, "store").as_dict() for code in CATALOGUE]
    assert all(one[name] for one in told for name in ("severity", "title", "means", "do"))
