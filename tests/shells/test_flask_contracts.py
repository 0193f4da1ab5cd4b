"""Which views of Flask's are operations, on which applications, and the mistakes that are refused."""

from __future__ import annotations

import flask
import pytest

from tests.shells.blocking_rig import Failing
from tests.shells.flask_app import KEY, MARKER, made, post
from twicesafe import PUBLIC, Operation, Policy
from twicesafe.errors import ConfigurationError
from twicesafe.flask import Idempotency
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware


def test_every_view_may_be_an_operation_and_a_contract_of_its_own_wins():
    """R2, R3: with every_view, undecorated views take keys by the policy; decorated ones by their own contract."""
    app, safe, ledger = made(policy=Policy(required=True), every_view=True)

    @app.route("/jobs", methods=["GET", "POST"])
    def work():
        ledger.append("work")
        return "done"

    @app.post("/own")
    @safe.operation(Policy(), methods={"POST"})
    def own():
        ledger.append("own")
        return "done"

    assert post(app, headers={}).status_code == 400
    assert [post(app).headers.get(MARKER) for _ in range(2)] == [None, "true"]
    assert [post(app, "/own", {}).status_code for _ in range(2)] == [200, 200]
    assert app.test_client().get("/jobs").data == b"done"
    assert ledger == ["work", "own", "own", "work"]


def test_one_extension_serves_two_applications_each_with_its_store():
    """R7: as extensions do, by init_app; no record is shared."""
    ledger = []
    safe = Idempotency(scope=PUBLIC, observer=lambda event: None)
    shop = flask.Blueprint("shop", __name__)

    @shop.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        return "done"

    apps = []
    for name in ("one", "two"):
        app = flask.Flask(name)
        app.register_blueprint(shop)
        safe.init_app(app, MemoryStore())
        apps.append(app)
    assert [post(app).headers.get(MARKER) for app in apps + apps] == [None, None, "true", "true"]
    assert len(ledger) == 2


def test_two_kinds_of_callers_are_two_extensions():
    """R6: each with its own scope, on one application and one store."""
    store = MemoryStore()
    app, public, ledger = made(store)
    private = Idempotency(app, store, scope=lambda: flask.request.headers.get("X-User"), observer=lambda event: None)

    @app.post("/public")
    @public.operation()
    def one():
        ledger.append("public")
        return "done"

    @app.post("/private")
    @private.operation()
    def two():
        ledger.append("private")
        return "done"

    assert [post(app, "/public").headers.get(MARKER) for _ in range(2)] == [None, "true"]
    assert post(app, "/private").status_code == 403
    assert [post(app, "/private", KEY | {"X-User": "ada"}).headers.get(MARKER) for _ in range(2)] == [None, "true"]
    assert ledger == ["public", "private"]


def test_under_the_bare_middleware_that_one_does_the_work():
    """H: one claim for one request; without a key the operation's own contract holds."""
    app, safe, ledger = made()

    @app.post("/jobs")
    @safe.operation(required=True)
    def work():
        ledger.append(safe.current.key)
        return "done"

    app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, MemoryStore(), scope=PUBLIC, observer=lambda event: None)
    assert [post(app).headers.get(MARKER) for _ in range(2)] == [None, "true"]
    assert ledger == ["k-1"]
    assert post(app, headers={}).status_code == 400
    assert post(app, "/nowhere", {"Idempotency-Key": "k-2"}).status_code == 404
    assert post(app, headers={"Idempotency-Key": "k-2"}).status_code == 200


def test_an_operation_called_by_a_view_beside_another_runs_with_it_or_not_at_all():
    """R10, R17: two in one request are one claim: a duplicate, or a claim that failed, runs neither of them."""
    store = Failing(MemoryStore())
    app, safe, ledger = made(store)

    @safe.operation()
    def first():
        ledger.append("first")
        return "first"

    @safe.operation()
    def second():
        ledger.append("second")
        return "second"

    @app.post("/jobs")
    def both():
        try:
            first()
        except ZeroDivisionError:
            ledger.append("no claim")
        return second()

    store.fail("claim", ZeroDivisionError())
    assert (post(app).status_code, ledger) == (500, ["no claim"])
    ledger.clear()
    assert [(answer.data, answer.headers.get(MARKER)) for answer in (post(app), post(app))] == [
        (b"second", None),
        (b"second", "true"),
    ]
    assert ledger == ["first", "second"]


def test_the_contract_has_to_stand_below_the_route():
    """R10: above it, the route would see the bare view and nothing would be protected: refused, at the latest when
    the first request comes."""
    app, safe, _ = made()
    with pytest.raises(ConfigurationError, match="stands above"):

        @safe.operation()
        @app.post("/jobs")
        def work():
            return "done"

    app, safe, _ = made()
    shop = flask.Blueprint("shop", __name__)

    @safe.operation()
    @shop.post("/jobs")
    def late():
        return "done"

    app.register_blueprint(shop)
    with pytest.raises(ConfigurationError, match="stands above"):
        post(app)


def test_a_method_without_a_key_beside_one_with_is_refused():
    """R2: PUT on an operation's route would pass unprotected."""
    app, safe, _ = made()

    @app.route("/jobs", methods=["POST", "PUT", "GET"])
    @safe.operation()
    def work():
        return "done"

    with pytest.raises(ConfigurationError, match="PUT"):
        post(app)


def test_an_operation_on_another_application_is_refused():
    """R10: its own Idempotency was never told of that application."""
    _, safe, _ = made()
    other = flask.Flask("other")
    other.testing = True

    @other.post("/jobs")
    @safe.operation()
    def work():
        return "done"

    with pytest.raises(ConfigurationError, match="was not made for"):
        post(other)


def test_mistakes_are_refused_where_they_are_made():
    """R6, R13: no store, one of another kind, a name used twice, and the rest: never while a request is served."""
    app, safe, _ = made()
    with pytest.raises(ConfigurationError, match="scope must be"):
        Idempotency(app, MemoryStore(), scope=None)
    with pytest.raises(ConfigurationError, match="blocking store"):
        Idempotency(app, AsyncMemoryStore(), scope=PUBLIC)
    with pytest.raises(ConfigurationError, match="no store"):
        Idempotency(scope=PUBLIC).init_app(app)
    with pytest.raises(ConfigurationError, match="already"):
        safe.init_app(app)
    with pytest.raises(ConfigurationError, match="pass the Flask application"):
        safe.init_app(app.wsgi_app)
    with pytest.raises(ConfigurationError, match="parentheses"):
        safe.operation(lambda: "done")
    with pytest.raises(ConfigurationError, match="no transactions"):
        safe.operation(effects="transactional")(lambda: "done")
    safe.operation(name="one")(lambda: "done")
    with pytest.raises(ConfigurationError, match="two operations"):
        safe.operation(name="one")(lambda: "done")
    with pytest.raises(ConfigurationError, match="already"):
        safe.operation(name="three")(safe.operation(name="two")(lambda: "done"))
    late = Idempotency(scope=PUBLIC)
    late.operation(effects="transactional", name="late")(lambda: "done")
    with pytest.raises(ConfigurationError, match="no transactions"):
        late.init_app(app, MemoryStore())


def test_an_operation_has_a_name_of_its_own():
    """R7: its view's, or the one that is given."""
    _, safe, _ = made()

    def create():
        return "done"

    assert safe.operation()(create).twicesafe_operation == Operation("create", Policy())
