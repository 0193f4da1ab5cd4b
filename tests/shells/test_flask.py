"""Operations of a Flask application: what comes before the claim, what is recorded, what goes together with Flask."""

from __future__ import annotations

import io
from datetime import timedelta

import flask
import pytest
from flask.views import MethodView

from tests.shells.blocking_rig import Failing
from tests.shells.flask_app import KEY, MARKER, made, post
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.memory import MemoryStore


def test_after_request_functions_leave_what_is_recorded():
    """E4, R17: what they set is on the first answer and on its replay, once; what is of one exchange is made afresh."""
    app, safe, ledger = made()
    calls = []

    @app.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        flask.session["seen"] = len(ledger)
        return {"n": len(ledger)}, 201

    @app.after_request
    def add(response):
        calls.append(response.status_code)
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["X-Request-Id"] = str(len(calls))
        if response.is_json and response.status_code == 201 and len(calls) == 1:
            response.data = b'{"n": "changed"}'
        return response

    first, again, refused = post(app), post(app), post(app, data=b"other")
    assert len(ledger) == 1
    assert first.data == again.data == b'{"n": "changed"}'
    assert [answer.headers.getlist("X-Frame-Options") for answer in (first, again, refused)] == [["DENY"]] * 3
    assert [answer.headers.getlist("X-Request-Id") for answer in (first, again, refused)] == [["1"], ["2"], ["3"]]
    assert calls == [201, 201, 422]
    assert ("Set-Cookie" in first.headers, "Set-Cookie" in again.headers) == (True, False)


def test_before_request_functions_and_the_scope_come_before_the_claim():
    """E1, R22: what they refuse, by an answer or by abort(), leaves no record; the scope is asked under a key only."""
    asked = []

    def scope():
        asked.append(1)
        if "X-User" not in flask.request.headers:
            flask.abort(401)
        return flask.request.headers["X-User"]

    app, safe, ledger = made(scope=scope)

    @app.before_request
    def closed():
        return ("closed", 403) if "X-Closed" in flask.request.headers else None

    @app.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        return "", 204

    assert post(app, headers=KEY | {"X-Closed": "1"}).status_code == 403
    assert post(app).status_code == 401
    assert post(app, headers={"X-User": "ada"}).status_code == 204
    assert (len(ledger), len(asked)) == (1, 1)
    ada = KEY | {"X-User": "ada"}
    assert [post(app, headers=ada).headers.get(MARKER) for _ in range(2)] == [None, "true"]
    assert post(app, headers=ada | {"X-Closed": "1"}).status_code == 403
    assert len(ledger) == 2


def test_error_handlers_answer_inside():
    """E4: those of the application, of a blueprint and for every Exception: the retry gets what they made of it."""
    app, safe, ledger = made()
    shop = flask.Blueprint("shop", __name__, url_prefix="/shop")

    @shop.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        raise KeyError("x")

    @shop.errorhandler(KeyError)
    def missing(error):
        return "of the blueprint", 409

    @app.post("/other")
    @safe.operation()
    def other():
        ledger.append(1)
        raise ValueError("x")

    @app.errorhandler(Exception)
    def anything(error):
        return "of the application", 500

    app.register_blueprint(shop)
    for path, status, said in (("/shop/jobs", 409, b"of the blueprint"), ("/other", 500, b"of the application")):
        first, again = post(app, path, KEY | {"Idempotency-Key": path}), post(app, path, {"Idempotency-Key": path})
        assert (first.status_code, first.data, first.headers.get(MARKER)) == (status, said, None)
        assert (again.status_code, again.data, again.headers.get(MARKER)) == (status, said, "true")
    assert len(ledger) == 2


def test_what_nobody_handles_is_flasks_500_where_nothing_is_stored():
    """E4, R16: keyed work runs again, its caller gets the page of the handler for 500; of opaque work it is stored."""
    app, safe, ledger = made()

    @app.post("/keyed")
    @safe.operation(effects="keyed", lease=timedelta(seconds=1))
    def keyed():
        ledger.append(safe.current.derived_key("call"))
        raise ZeroDivisionError

    @app.post("/opaque")
    @safe.operation()
    def opaque():
        ledger.append("opaque")
        raise ZeroDivisionError

    @app.errorhandler(500)
    def broken(error):
        return "our page", 500

    first = post(app, "/keyed")
    assert (first.status_code, first.data) == (500, b"our page")
    assert post(app, "/keyed").data == b"our page"
    assert len(ledger) == 2 and ledger[0] == ledger[1]
    stored = [post(app, "/opaque", {"Idempotency-Key": "k-2"}) for _ in range(2)]
    assert ledger.count("opaque") == 1
    assert [answer.data for answer in stored] == [b"our page"] * 2
    assert [answer.headers.get(MARKER) for answer in stored] == [None, "true"]


def test_where_flask_lets_exceptions_through_they_come_through():
    """R16: under TESTING the test sees the exception of opaque work as well, and the record is the same."""
    app, safe, ledger = made()
    app.testing = True

    @app.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _ = post(app).data
    assert (post(app).status_code, len(ledger)) == (500, 1)


def test_a_stream_with_its_context_flows_and_is_replayed():
    """D5: stream_with_context() works as ever, and the replay is whole."""
    app, safe, ledger = made()

    @app.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)

        def pieces():
            yield flask.request.path.encode()
            yield b"!"

        return flask.Response(flask.stream_with_context(pieces()), 201)

    assert [post(app).data, post(app).data] == [b"/jobs!"] * 2
    assert len(ledger) == 1


def test_a_file_is_sent_and_replayed():
    """D4: send_file() with its headers."""
    app, safe, ledger = made()

    @app.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        return flask.send_file(
            io.BytesIO(bytes(range(256))), "application/pdf", as_attachment=True, download_name="a.pdf"
        )

    first, again = post(app), post(app)
    assert len(ledger) == 1
    assert first.data == again.data == bytes(range(256))
    assert first.headers["Content-Disposition"] == again.headers["Content-Disposition"]


def test_views_may_be_asynchronous_or_classes():
    """R11: async views, and methods of a MethodView by its decorators; GET beside POST takes no key."""
    app, safe, ledger = made()

    @app.post("/async")
    @safe.operation()
    async def work():
        ledger.append(safe.current.key)
        return {"n": len(ledger)}

    class Form(MethodView):
        decorators = [safe.operation(name="form")]  # noqa: RUF012 - as Flask has it

        def get(self):
            return "the form"

        def post(self):
            ledger.append("form")
            return "sent"

    app.add_url_rule("/form", view_func=Form.as_view("form"))
    assert [post(app, "/async").json for _ in range(2)] == [{"n": 1}] * 2
    assert [post(app, "/form", {"Idempotency-Key": "k-2"}).data for _ in range(2)] == [b"sent"] * 2
    assert app.test_client().get("/form", headers=KEY).data == b"the form"
    assert ledger == ["k-1", "form"]


def test_views_that_are_no_operations_see_nothing_of_it():
    """H1, R3: under a key, a body over every limit still reaches them from its first byte, whatever its length."""
    app, safe, ledger = made()

    @app.post("/jobs")
    @safe.operation(body_limit=10)
    def work():
        return "done"

    @app.post("/upload")
    def upload():
        ledger.append(flask.request.stream.read())
        return "done"

    body = bytes(range(256)) * 100
    assert post(app, "/upload", data=body).status_code == 200
    chunked = {"wsgi.input_terminated": True, "CONTENT_LENGTH": "", "wsgi.input": io.BytesIO(body)}
    assert post(app, "/upload", environ_overrides=chunked).status_code == 200
    assert post(app, "/jobs", data=body).status_code == 413
    assert ledger == [body, body]


@pytest.mark.parametrize("told", ["", "10"])
def test_an_upload_that_breaks_off_breaks_off_for_views_that_are_no_operations(told):
    """K, H1: under a key as without one, what arrived of it is never taken for the whole."""
    app, safe, ledger = made()

    @app.post("/jobs")
    @safe.operation()
    def work():
        return "done"

    @app.post("/upload")
    def upload():
        ledger.append(flask.request.environ["wsgi.input"].read())
        return "done"

    class Broken(io.BytesIO):
        def read(self, size=-1):
            if size < 0 or self.tell() == 4:
                raise ConnectionError("the client is gone")
            return super().read(size)

    for headers in ({}, KEY):
        cut = {"wsgi.input_terminated": True, "CONTENT_LENGTH": told, "wsgi.input": Broken(b"half")}
        assert post(app, "/upload", headers, environ_overrides=cut).status_code == 500
    assert ledger == []


def test_without_a_store_the_refusal_goes_through_the_applications_layers():
    """R10, R21: 503, nothing runs, and an after_request function can still let another origin read it."""
    store = Failing(MemoryStore())
    store.fail("claim", StoreUnavailableError("down"))
    app, safe, ledger = made(store)

    @app.post("/jobs")
    @safe.operation()
    def work():
        ledger.append(1)
        return "done"

    @app.after_request
    def cors(response):
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    refused = post(app)
    assert ledger == []
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (503, "*")
    assert refused.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_may_be_rebuilt(kind):
    """R18, R19: from what is stored, in the duplicate's context, as a view would answer; None is what is stored."""
    app, safe, ledger = made()
    if kind == "sync":

        def again(stored):
            return {"status": stored.status, "path": flask.request.path, "n": len(ledger)} if ledger else None
    else:

        async def again(stored):
            return {"status": stored.status, "path": flask.request.path, "n": len(ledger)} if ledger else None

    @app.post("/jobs")
    @safe.operation(duplicates="rebuilt", rebuild=again)
    def work():
        ledger.append(1)
        return "first", 201

    assert post(app).data == b"first"
    rebuilt = post(app)
    assert (len(ledger), rebuilt.json, rebuilt.headers[MARKER]) == (1, {"status": 201, "path": "/jobs", "n": 1}, "true")
    ledger.clear()
    assert (post(app).data, ledger) == (b"first", [])
