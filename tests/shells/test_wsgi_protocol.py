"""The WSGI shell between a server and an application, by the letter of PEP 3333."""

from __future__ import annotations

import gc
import sys
import weakref
from io import BytesIO
from wsgiref.util import FileWrapper
from wsgiref.validate import validator

import pytest

from tests.shells.blocking_rig import Failing
from tests.shells.wsgi_subjects import Probe, Reply, Subject, request
from twicesafe import PUBLIC, Operation, Policy
from twicesafe.blocking.environ import UNDERWAY
from twicesafe.errors import ConfigurationError, StoreUnavailableError
from twicesafe.stores.memory import AsyncMemoryStore, MemoryStore
from twicesafe.wsgi import IdempotencyMiddleware, current, entered

TYPE = ("Content-Type", "text/plain")


class Application:
    """Counts its runs; `answer` is a WSGI application."""

    def __init__(self, answer, **how) -> None:
        self.runs = 0
        self.answer = answer
        self.store = Failing(MemoryStore())
        self.safe = IdempotencyMiddleware(self.run, self.store, scope=PUBLIC, observer=lambda event: None, **how)

    def run(self, environ, start_response):
        self.runs += 1
        return self.answer(environ, start_response)

    def post(self, *, raises=(), after=None, **how) -> Reply:
        reply = Reply(self.safe, request(**how), after=after)
        if reply.raised is not None and not isinstance(reply.raised, raises):
            raise reply.raised
        return reply


def plain(environ, start_response):
    start_response("201 Very Good", [TYPE, ("Content-Length", "4")])
    return [b"done"]


def late(environ, start_response):
    """Starts when it is first read, with an empty piece."""
    start_response("201 Created", [TYPE])
    yield b""
    yield b"do"
    yield b"ne"


def writing(environ, start_response):
    write = start_response("201 Created", [TYPE, ("Content-Length", "6")])
    write(b"do")
    write(bytearray(b"ne"))
    return [b"!!"]


def only_writing(environ, start_response):
    write = start_response("201 Created", [TYPE])
    write(b"done!!")
    return iter(())


def twice(environ, start_response):
    """Changes its mind before its first byte."""
    start_response("200 OK", [TYPE])
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        start_response("500 Oops", [TYPE], sys.exc_info())
    return [b"sorry"]


def no_length(environ, start_response):
    start_response("201 Created", [TYPE])
    return (b"do", b"ne")


def file_of(environ, start_response):
    start_response("201 Created", [TYPE, ("Content-Length", "10")])
    return environ.get("wsgi.file_wrapper", FileWrapper)(BytesIO(b"0123456789"), 4)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (plain, 201, b"done"),
        (late, 201, b"done"),
        (writing, 201, b"done!!"),
        (only_writing, 201, b"done!!"),
        (twice, 500, b"sorry"),
        (no_length, 201, b"done"),
        (file_of, 201, b"0123456789"),
    ],
)
def test_whatever_way_an_answer_takes_it_is_whole_and_replayed(answer, status, body):
    """K, H: generators, write(), files, a start that comes late or twice: nothing is cut, lost or run again."""
    application = Application(answer)
    unkeyed = application.post(key=None)
    first, again = application.post(), application.post()
    assert application.runs == 2
    assert [(reply.status, reply.body) for reply in (unkeyed, first, again)] == [(status, body)] * 3
    assert (unkeyed.own, first.own) == (again.own, again.own)
    assert again.replayed


@pytest.mark.parametrize("key", ["k-1", None])
@pytest.mark.parametrize("answer", [plain, no_length, file_of])
def test_both_sides_keep_to_the_protocol(answer, key):
    """H: with a validator on each side, of what the server sees and of what the application does, nobody complains."""
    application = Application(validator(answer))
    checked = validator(application.safe)
    for _ in range(2):
        reply = Reply(
            checked, request(key=key, headers=[], body=b"") | {"wsgi.input": BytesIO(b""), "CONTENT_LENGTH": ""}
        )
        assert reply.raised is None, reply.raised
        assert reply.status == 201
    assert application.runs == (1 if key else 2)


def test_after_its_first_byte_an_application_cannot_change_its_mind():
    """K, I6: start_response with exc_info then raises what it was given: a broken stream, as under a server."""

    def answer(environ, start_response):
        start_response("201 Created", [TYPE])
        yield b"half"
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            start_response("500 Oops", [TYPE], sys.exc_info())
        yield b"never"

    application = Application(answer)
    first = application.post(raises=ZeroDivisionError)
    assert (first.status, first.body, type(first.raised)) == (201, b"half", ZeroDivisionError)
    assert application.post().kind == "outcome-unknown"
    assert application.runs == 1


def test_starting_twice_is_the_applications_error():
    """K: without exc_info a second start_response is a mistake that is told, not a second answer."""

    def answer(environ, start_response):
        start_response("201 Created", [TYPE])
        start_response("202 Accepted", [TYPE])
        return [b""]

    application = Application(answer)
    first = application.post(raises=AssertionError)
    assert (first.status, first.kind) == (500, "handler-failed")
    assert application.runs == 1


@pytest.mark.parametrize("answer", [lambda environ, start: [b"x"], lambda environ, start: iter([b"x"])])
def test_an_application_that_never_starts_has_no_answer(answer):
    """D5, I6: it may have done its work, so the outcome is unknown; the server gets an error, not an empty 200."""
    application = Application(answer)
    first = application.post(raises=RuntimeError)
    assert first.status is None
    assert application.post().kind == "outcome-unknown"
    assert application.runs == 1


@pytest.mark.parametrize("key", ["k-1", None])
def test_close_is_called_exactly_once(key):
    """K: whatever the server reads, of a first answer and of one that nobody touches; and never of a replay."""
    closed = []

    class Pieces(list):
        def close(self):
            closed.append(1)

    def answer(environ, start_response):
        start_response("201 Created", [TYPE])
        return Pieces([b"a", b"b"])

    application = Application(answer)
    application.post(key=key, after=1)
    assert closed == [1]
    application.post(key=key)
    assert closed == ([1] if key else [1, 1])


def test_close_is_called_when_the_answer_is_dropped():
    """K, R10: an answer that another takes the place of is closed too."""
    closed = []

    class Pieces(list):
        def close(self):
            closed.append(1)

    def answer(environ, start_response):
        start_response("201 Created", [TYPE, ("Content-Length", "9")])
        return Pieces([b"short"])

    application = Application(answer)
    assert application.post(raises=RuntimeError).status is None
    assert (application.runs, closed) == (1, [1])


def test_the_first_caller_gets_the_applications_own_status_line():
    """D2: the reason phrase is the application's on the first answer; a replay has HTTP's."""
    application = Application(plain)
    assert [application.post().line, application.post().line] == ["201 Very Good", "201 Created"]


def test_without_a_key_the_application_talks_to_its_server():
    """R3, H: its iterable, its write() and its input are the server's own; other methods are not looked at."""
    seen = {}

    def answer(environ, start_response):
        seen["start"], seen["input"] = start_response, environ["wsgi.input"]
        start_response("200 OK", [TYPE])
        return seen.setdefault("pieces", [b"x"])

    application = Application(answer)
    for how in ({"key": None}, {"method": "PUT"}):
        environ = request(**how)

        def start_response(status, headers):
            """Nothing."""

        seen.pop("pieces", None)
        assert application.safe(environ, start_response) is seen["pieces"]
        assert seen["start"] is start_response
        assert seen["input"] is environ["wsgi.input"]
    assert application.runs == 2


def test_installed_twice_the_outer_one_does_the_work():
    """H: one claim, one record, and nothing waits for itself."""
    application = Application(plain)
    inner, application.safe = application.safe, None
    outer = IdempotencyMiddleware(inner, application.store, scope=PUBLIC)
    assert [Reply(outer, request()).replayed for _ in range(2)] == [False, True]
    assert application.runs == 1


def test_a_mounted_application_has_the_whole_path():
    """G2, K: the same inner path under two mounts is two requests."""
    application = Application(plain)
    first = Reply(application.safe, request() | {"SCRIPT_NAME": "/a"})
    other = Reply(application.safe, request() | {"SCRIPT_NAME": "/b"})
    again = Reply(application.safe, request(path="/a/jobs"))
    assert application.runs == 1
    assert [first.status, other.status, again.replayed] == [201, 422, True]


def test_an_operation_may_depend_on_the_request():
    """R2, R7: a function of the environ names it, or says that this request takes no key."""
    names = {
        "/jobs": Operation("work", Policy(per_operation_keys=True)),
        "/other": Operation("other", Policy(required=True)),
    }
    application = Application(plain, operation=lambda environ: names.get(environ["PATH_INFO"]))
    assert application.post().status == 201
    assert application.post(path="/other", key=None).kind == "key-missing"
    assert application.post(path="/third", key=None).status == 201
    assert application.post(path="/third").replayed is False
    assert application.runs == 3


def test_a_handler_finds_its_keyed_request():
    """R25: by current(environ), with its key and keys for calls downstream; without a key there is none."""
    keys = []

    def answer(environ, start_response):
        keyed = current(environ)
        keys.append((keyed.key, keyed.derived_key("call")))
        return plain(environ, start_response)

    application = Application(answer)
    application.post()
    assert len(keys) == 1
    assert keys[0][0] == "k-0001-0001-0001" and len(keys[0][1]) > 20
    assert type(application.post(key=None, raises=LookupError).raised) is LookupError


def test_without_a_store_nothing_runs():
    """R10: 503, with the reason for the operator and none for the caller."""
    application = Application(plain)
    application.store.fail("claim", StoreUnavailableError("down"))
    refused = application.post()
    assert (application.runs, refused.status, refused.kind) == (0, 503, "store-unavailable")


def test_flask_under_the_bare_shell_tells_what_its_router_refused():
    """E1: Werkzeug's request in the environ says whether a route was found."""

    class Routed:
        routing_exception = ValueError()

    assert entered({"werkzeug.request": Routed()}, 404) is False
    assert entered({"werkzeug.request": object()}, 404) is None
    assert entered({}, 404) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scope": None}, "scope must be"),
        ({"store": AsyncMemoryStore()}, "blocking store"),
        ({"policy": Policy(), "operation": Operation("x")}, "either policy or operation"),
        ({"policy": Policy(effects="transactional")}, "no transactions"),
    ],
)
def test_a_wrong_setting_is_refused_where_it_is_made(wrong, said):
    """R6, R13: and never while a request is served."""
    settings = {"store": MemoryStore(), "scope": PUBLIC} | wrong
    with pytest.raises(ConfigurationError, match=said):
        IdempotencyMiddleware(plain, settings.pop("store"), **settings)


def test_a_scope_that_gives_no_text_is_the_servers_fault():
    """R6: an identity is text; anything else is an error of the application's, and nothing runs."""
    subject = Subject("bare", probe=Probe(), scope=lambda environ: 7)
    assert type(subject.post(raises=ConfigurationError).raised) is ConfigurationError
    assert subject.effects == 0


def test_nothing_is_left_behind():
    """H: after its answer no claim is under renewal and, without any garbage collection, no request is left."""
    application = Application(plain)
    gone = []
    application.post()
    gc.disable()
    try:
        for key in ("a", "a", "b"):
            reply = application.post(key=key)
            gone.append(weakref.ref(reply.environ[UNDERWAY]) if UNDERWAY in reply.environ else lambda: None)
            del reply
        assert [ref() for ref in gone] == [None] * 3
    finally:
        gc.enable()
    assert not application.safe._shared.renewals._live
