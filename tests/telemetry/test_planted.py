"""The suite's own search for secrets finds what it is there to find."""

from __future__ import annotations

import ast
import importlib
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import planted
from tests.overheard import ELSEWHERE
from twicesafe.errors import TwicesafeError
from twicesafe.observe import Event, log_events

ROOT = Path(__file__).parents[2]

ONE_OF_EACH = '''
import asyncio
import logging

import pytest
from starlette.testclient import TestClient

SECRET = "k-0001-0001-0001"


def test_nothing() -> None:
    pass


def test_log() -> None:
    logging.getLogger("twicesafe").debug("under %s", SECRET)
    logging.getLogger("twicesafe").error("under %s", SECRET)


def test_event() -> None:
    from twicesafe.observe import Event, log_events

    log_events(Event("mismatch", "charge", SECRET, loud=False))


def test_error() -> None:
    from twicesafe.errors import StoreUnavailableError

    with pytest.raises(StoreUnavailableError):
        raise StoreUnavailableError(f"no {SECRET} here")


def test_error_held_by_another() -> None:
    from twicesafe.client import UnknownError

    UnknownError(f"of {SECRET}", object())


def test_note() -> None:
    from twicesafe.errors import StoreError

    StoreError("no").add_note(SECRET)


def test_error_of_a_check() -> None:
    from twicesafe.conformance.errors import CannotCheckError

    CannotCheckError(SECRET)


def test_problem() -> None:
    from twicesafe import Policy

    Policy().problem("key-invalid", detail=f"{SECRET} is no key")


def test_precondition() -> None:
    from twicesafe.core.preconditions import refusal
    from twicesafe.errors import PreconditionFailedError

    error = PreconditionFailedError("no")
    error.args = (SECRET,)
    refusal(error)


@pytest.mark.parametrize("where", ["name", "attribute", "event", "status", "link"])
def test_span(where: str) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, SpanContext, Status, StatusCode

    said = dict.fromkeys(["name", "attribute", "event", "status", "link"], "plain") | {where: SECRET}
    links = [Link(SpanContext(1, 1, is_remote=False), {"at": said["link"]})]
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("shop")
    with tracer.start_as_current_span(said["name"], attributes={"at": said["attribute"]}, links=links) as span:
        span.add_event("happened", {"at": said["event"]})
        span.set_status(Status(StatusCode.ERROR, said["status"]))


def test_page() -> None:
    from twicesafe.dashboard.pages import page

    page("notice", root="", who="", live=False, said=None, title="No", text=SECRET, back="", off=False)


def test_address_of_a_page(tmp_path) -> None:
    from starlette.responses import RedirectResponse

    from twicesafe.dashboard import Dashboard
    from twicesafe.stores.sqlite import SqliteStore

    store = SqliteStore(tmp_path / "shop.db")
    dashboard = Dashboard(store, who=lambda request: "ann")
    dashboard._app = RedirectResponse(f"/records/{SECRET}")
    assert TestClient(dashboard).get("/", follow_redirects=False).status_code == 307
    store.close()


def test_a_key_that_was_sent() -> None:
    from twicesafe.core.keys import scoped_key
    from twicesafe.errors import StoreError

    scoped_key("ada", "a-key-that-nobody-lists")
    StoreError("taken: a-key-that-nobody-lists")


def test_a_body_that_was_sent() -> None:
    from twicesafe.core.fingerprint import Fingerprint, FingerprintRule, RequestFacts
    from twicesafe.errors import StoreError

    Fingerprint(RequestFacts("POST", b"/", b"", [], b'{"card": 17}'), FingerprintRule())
    StoreError("""value '{"card": 17}' is too long""")
'''


def test_what_is_said_anywhere_fails_its_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """R22: in a process of its own, a secret in a log, an event, an error, a note, a problem document, any part of a
    span, a page or its address fails the test that made it, and is itself not repeated; what says nothing passes."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(ONE_OF_EACH)
    ran = pytester.runpytest_subprocess(
        "-p", "tests.planted", "-p", "no:cacheprovider", "--tb=line", "--show-capture=no", "-q"
    )
    told = ran.stdout.str()
    assert ran.parseoutcomes() == {"passed": 1, "failed": ONE_OF_EACH.count("def test_") - 1 + 4}, told
    assert "k-0001-0001-0001" not in told
    places = (
        "the log",
        "an event",
        "an error, UnknownError",
        "a note on",
        "a problem",
        "the span",
        "the page",
        "a line",
    )
    assert [place for place in places if f"was: {place}" not in told] == []


@pytest.mark.parametrize(("secret", "where"), planted.PLANTED.items())
def test_the_suite_uses_what_is_looked_for(secret: str, where: str) -> None:
    """R22: each secret that is looked for everywhere is one that some fixture plants."""
    assert secret in (ROOT / where).read_text(encoding="utf-8")


def test_every_class_of_errors_is_listened_to() -> None:
    """R22: whatever class of errors the package has, but those that carry an answer or fail somebody's test, is below
    the root of all, or listed."""
    known = {(module, name) for module, names in ELSEWHERE.items() for name in names}
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _is_an_error(node):
                found.add((module, node.name))
    assert {module for module, _ in found} >= {"twicesafe.errors", "twicesafe.dashboard.desk"}
    apart = {
        (module, name)
        for module, name in found
        if module not in ("twicesafe.errors", "twicesafe.django.configuration")
        and not module.startswith("twicesafe.testing.")
        and not issubclass(getattr(importlib.import_module(module), name), TwicesafeError)
    }
    assert apart == known


def _is_an_error(node: ast.ClassDef) -> bool:
    names = [ast.unparse(one).rpartition(".")[2] for one in node.bases]
    return any(name.endswith(("Error", "Exception", "Failure")) for name in names)


def test_an_event_below_the_logs_level_is_found() -> None:
    """R22: what would be written at debug level is looked at, and what holds a whole key is found."""
    log_events(Event("mismatch", "charge", "k-0001-0001-0001", loud=False))
    told = planted.told()
    assert told and "k-0001-0001-0001" not in told
    log_events(Event("mismatch", "charge", "…0001", loud=False))
    assert planted.told() == ""


def test_what_another_error_says_is_found() -> None:
    """R22: an exception that is logged with its traceback is looked at with the texts of its causes."""
    try:
        raise LookupError("under " + "k-0001-0001-0001")
    except LookupError:
        logging.getLogger("twicesafe").exception("it raised")
    assert "the log" in planted.told()


def test_many_threads_are_listened_to_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R22: what is sent and told in many threads at once is looked at in each, and breaks none of them."""
    monkeypatch.setattr(planted, "_keys", {})
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def send(number: int) -> None:
        for count in range(30_000):
            planted.sent_key(f"key-{number}-{count:08}-abcdef")

    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(send, range(8))) == [None] * 8
    finally:
        sys.setswitchinterval(before)
    assert planted.KEPT <= len(planted._keys) <= planted.KEPT + 8 * 30_000
    assert planted.told() == ""
