"""Operations of a Falcon application: hooks and middleware before the claim, error handlers inside, ASGI beside."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import falcon
import falcon.asgi
import pytest
from falcon.testing import TestClient

from tests.shells.probe import Wire
from twicesafe import PUBLIC, Policy
from twicesafe.asgi import IdempotencyMiddleware
from twicesafe.core.record import StoredResponse
from twicesafe.errors import ConfigurationError
from twicesafe.falcon import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.stores.sqlite import SqliteStore

KEY = {"Idempotency-Key": "k-1"}
MARKER = "idempotent-replayed"


def made(store=None, **how):
    """An extension and a ledger."""
    return Idempotency(store or MemoryStore(), scope=how.pop("scope", PUBLIC), observer=lambda event: None, **how), []


def served(safe, resource, *, middleware=(), path="/jobs", **how):
    """An application with one resource, and a client of what a server would be given."""
    app = falcon.App(middleware=list(middleware))
    app.add_route(path, resource)
    return app, TestClient(safe.protect(app, **how))


def post(client, path="/jobs", headers=KEY, body="x"):
    return client.simulate_post(path, headers=headers, body=body)


def test_hooks_above_come_before_the_claim_and_hooks_below_are_part_of_the_work():
    """E1, R22: an authorization above the contract refuses replays too; what stands below it runs once."""
    safe, ledger = made()

    def authorized(req, resp, resource, params):
        if not req.get_header("X-User"):
            raise falcon.HTTPForbidden

    def counted(req, resp, resource, params):
        ledger.append("hook")

    class Work:
        @falcon.before(authorized)
        @safe.operation()
        @falcon.before(counted)
        def on_post(self, req, resp):
            ledger.append("work")
            resp.media = {"n": 1}

    _, client = served(safe, Work())
    known = KEY | {"X-User": "ada"}
    assert post(client).status_code == 403
    first, again = post(client, headers=known), post(client, headers=known)
    assert ledger == ["hook", "work"]
    assert (first.json, again.json, again.headers[MARKER]) == ({"n": 1}, {"n": 1}, "true")
    assert post(client).status_code == 403


def test_middleware_works_on_what_is_recorded():
    """E4, R17: what process_response sets is on the first answer and once on its replay; ids are made afresh."""
    safe, ledger = made()

    class Layer:
        def process_response(self, req, resp, resource, req_succeeded):
            ledger.append(resp.status_code)
            resp.set_header("X-Frame-Options", "DENY")
            resp.set_header("X-Request-Id", str(len(ledger)))

    class Work:
        @safe.operation()
        def on_post(self, req, resp):
            resp.status, resp.media = 201, {"done": True}

    _, client = served(safe, Work(), middleware=[Layer()])
    answers = [post(client), post(client), post(client, body="other")]
    assert ledger == [201, 201, 422]
    assert [answer.headers["x-frame-options"] for answer in answers] == ["DENY"] * 3
    assert [answer.headers["x-request-id"] for answer in answers] == ["1", "2", "3"]
    assert answers[1].headers[MARKER] == "true"


def test_a_handler_for_every_exception_answers_inside():
    """E4: registered before or after: the retry gets what it made, of keyed work as well."""
    for early in (True, False):
        safe, ledger = made()

        class Work:
            @safe.operation(effects="keyed")
            def on_post(self, req, resp, safe=safe, ledger=ledger):
                ledger.append(1)
                raise ZeroDivisionError

        def mine(req, resp, error, params):
            resp.status, resp.text = 500, "mine"

        app = falcon.App()
        app.add_route("/jobs", Work())
        if early:
            app.add_error_handler(Exception, mine)
        client = TestClient(safe.protect(app))
        if not early:
            app.add_error_handler(Exception, mine)
        assert [post(client).text for _ in range(2)] == ["mine", "mine"]
        assert len(ledger) == 1


def test_what_nobody_handles_is_left_open_where_it_may_run_again():
    """E4, R13, R16: keyed work whose exception met Falcon's last resort runs again, and the error is in the log."""
    safe, ledger = made()

    class Work:
        @safe.operation(effects="keyed", lease=timedelta(seconds=1))
        def on_post(self, req, resp):
            ledger.append(safe.current(req).derived_key("call"))
            if len(ledger) == 1:
                raise ZeroDivisionError("in the ledger")
            resp.status = 201

    _, client = served(safe, Work())
    first = post(client)
    assert (first.status_code, first.json) == (500, {"title": "500 Internal Server Error"})
    assert (post(client).status_code, len(set(ledger)), len(ledger)) == (201, 1, 2)


def test_every_responder_may_be_an_operation_and_a_contract_of_its_own_wins():
    """R2, R3: by the application-wide default, suffixes included; after all other middleware, before hooks."""
    safe, ledger = made(policy=Policy(required=True))

    class Authentication:
        def process_resource(self, req, resp, resource, params):
            if not req.get_header("X-User"):
                raise falcon.HTTPUnauthorized

    class Work:
        def on_get(self, req, resp):
            ledger.append("get")

        def on_post(self, req, resp):
            ledger.append("post")

        @safe.operation(Policy())
        def on_post_own(self, req, resp):
            ledger.append("own")

    app, client = served(safe, Work(), middleware=[Authentication()], every_responder=True)
    app.add_route("/own", Work(), suffix="own")
    ada = {"X-User": "ada"}
    assert post(client, headers={}).status_code == 401
    assert post(client, headers=ada).status_code == 400
    assert [post(client, headers=KEY | ada).headers.get(MARKER) for _ in range(2)] == [None, "true"]
    assert [post(client, "/own", ada).status_code for _ in range(2)] == [200, 200]
    assert client.simulate_get("/jobs", headers=ada).status_code == 200
    assert ledger == ["post", "own", "own", "get"]


def test_a_method_that_is_not_allowed_claims_nothing_with_every_responder():
    """E1: 405 for a resource without a responder of that method, then the right call under the same key: it runs."""
    safe, ledger = made()

    class Readable:
        def on_get(self, req, resp):
            ledger.append("get")

    class Work:
        def on_post(self, req, resp):
            ledger.append("post")
            resp.status = 201

    app, client = served(safe, Readable(), path="/readable", every_responder=True)
    app.add_route("/jobs", Work())
    assert post(client, "/readable").status_code == 405
    assert [post(client).status_code for _ in range(2)] == [201, 201]
    assert ledger == ["post"]


def test_a_transaction_agrees_with_its_answer(tmp_path):
    """H2, R23: an HTTP error rolls back and is stored; success is committed with its answer, with a key or without."""
    store = SqliteStore(tmp_path / "shop.db")
    store.apply_schema()
    with store.transaction() as transaction:
        transaction.begin()
        transaction.connection.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY)")
        transaction.commit()
    safe, _ = made(store)

    def rows() -> int:
        with store.transaction() as transaction:
            transaction.begin()
            return transaction.connection.execute("SELECT count(*) FROM ledger").fetchone()[0]

    class Work:
        @safe.operation(effects="transactional")
        def on_post(self, req, resp, how):
            safe.current(req).connection.execute("INSERT INTO ledger DEFAULT VALUES")
            if how == "raised":
                raise falcon.HTTPConflict
            if how == "broken":
                raise ZeroDivisionError
            resp.status = 400 if how == "returned" else 201

    _, client = served(safe, Work(), path="/jobs/{how}")
    for how, status in (("raised", 409), ("returned", 400)):
        answers = [post(client, f"/jobs/{how}", {"Idempotency-Key": how}) for _ in range(2)]
        assert rows() == 0
        assert [(answer.status_code, answer.headers.get(MARKER)) for answer in answers] == [
            (status, None),
            (status, "true"),
        ]
    assert post(client, "/jobs/broken", {"Idempotency-Key": "b"}).status_code == 500
    assert post(client, "/jobs/raised", {}).status_code == 409
    assert rows() == 0
    assert [post(client, "/jobs/fine").status_code for _ in range(2)] == [201, 201]
    assert rows() == 1
    assert post(client, "/jobs/fine", {}).status_code == 201
    assert rows() == 2
    store.close()


def test_an_answer_may_be_rebuilt():
    """R18, R19: from what is stored and the duplicate's request."""
    safe, ledger = made()

    def again(stored, req):
        return StoredResponse(stored.status, ((b"content-type", b"text/plain"),), req.path.encode())

    class Work:
        @safe.operation(duplicates="rebuilt", rebuild=again)
        def on_post(self, req, resp):
            ledger.append(1)
            resp.status, resp.text = 201, "first"

    _, client = served(safe, Work())
    assert [post(client).text, post(client).text] == ["first", "/jobs"]
    assert len(ledger) == 1


def test_falcon_on_asgi_is_served_by_the_asgi_middleware():
    """H: its streams, errors and headers are those of any ASGI application: one run, and a replay."""
    ledger = []

    class Work:
        async def on_post(self, req, resp):
            ledger.append(await req.stream.read())
            resp.status, resp.media = 201, {"n": len(ledger)}

        async def on_patch(self, req, resp):
            ledger.append(b"")
            raise falcon.HTTPConflict

    app = falcon.asgi.App()
    app.add_route("/jobs", Work())
    safe = IdempotencyMiddleware(app, AsyncMemoryStore(), scope=PUBLIC, observer=lambda event: None)

    async def trial():
        for method, status in (("POST", 201), ("PATCH", 409)):
            first, again = [await Wire(safe, method=method, key=method).end() for _ in range(2)]
            assert (first.status, again.status, again.replayed) == (status, status, True)
            assert first.body == again.body
        assert ledger == [b'{"amount": 1}', b""]

    asyncio.run(trial())


def test_an_operation_that_nothing_protects_is_refused():
    """R10: the server was given the application itself, and not what protect() gave."""
    safe, ledger = made()

    class Work:
        @safe.operation()
        def on_post(self, req, resp):
            ledger.append(1)

    app = falcon.App()
    app.add_route("/jobs", Work())
    app.add_error_handler(ConfigurationError, lambda req, resp, error, params: resp.set_header("x-said", str(error)))
    assert "nothing protects it" in post(TestClient(app)).headers["x-said"]
    assert ledger == []


def test_mistakes_are_refused_where_they_are_made():
    """R2, R6, R13: on falcon.asgi, on a responder of another method, an asynchronous one, and the rest."""
    safe, _ = made()
    with pytest.raises(ConfigurationError, match="scope must be"):
        Idempotency(MemoryStore(), scope=None)
    with pytest.raises(ConfigurationError, match="blocking store"):
        Idempotency(AsyncMemoryStore(), scope=PUBLIC)
    with pytest.raises(ConfigurationError, match=r"falcon\.asgi"):
        safe.protect(falcon.asgi.App())
    with pytest.raises(ConfigurationError, match="parentheses"):
        safe.operation(lambda self, req, resp: None)

    def on_get(self, req, resp):
        """Changes nothing."""

    async def on_post(self, req, resp):
        """On ASGI."""

    with pytest.raises(ConfigurationError, match="GET"):
        safe.operation()(on_get)
    with pytest.raises(ConfigurationError, match="asynchronous"):
        safe.operation()(on_post)
    with pytest.raises(ConfigurationError, match="no transactions"):
        safe.operation(effects="transactional")(lambda self, req, resp: None)
    safe.operation(name="one")(lambda self, req, resp: None)
    with pytest.raises(ConfigurationError, match="two operations"):
        safe.operation(name="one")(lambda self, req, resp: None)
