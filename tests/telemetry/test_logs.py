"""What the log says of an event, and what structlog does."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from tests.shells.probe import Probe, post
from twicesafe.asgi import PUBLIC, IdempotencyMiddleware
from twicesafe.core.outcome import Attempt, FailureKind, Sent, Stop
from twicesafe.errors import StoreUnavailableError
from twicesafe.observe import COUNTED, Event, Observers, fields, log_events, log_fault, tell, told_of
from twicesafe.stores.memory import AsyncMemoryStore
from twicesafe.structlog import StructuredLog

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8")


def raised(error: Exception) -> Exception:
    """An error on its way."""
    try:
        raise error
    except Exception as caught:
        return caught


FULL = Event(
    "operation.unknown", "POST pay.example/charges", "…6f2a", loud=True,
    error=StoreUnavailableError("the store is down"),
    attempt=Attempt(2, 0.0, 0.25, Sent.YES, 503, FailureKind.DROPPED, "503", None, Stop.BUDGET, 1.0, 0.0),
    operation_id="0" * 32, amount=3, seconds=0.5, result="done", number=2,
)  # fmt: skip


def test_a_records_fields_are_those_that_are_documented(caplog: pytest.LogCaptureFixture) -> None:
    """R44: what an event holds is on the log's record, under the names of the page, for formatters and filters."""
    caplog.set_level(logging.DEBUG, "twicesafe")
    log_events(FULL)
    (record,) = caplog.records
    found = {name: value for name, value in vars(record).items() if name.startswith("twicesafe_")}
    page = PAGE.split("## Logs")[1].split("## Alerts")[0]
    assert set(found) == set(re.findall(r"`(twicesafe_[a-z_]+)`", page))
    assert found["twicesafe_event"] == "operation.unknown" and found["twicesafe_key_hint"] == "…6f2a"
    assert (found["twicesafe_attempt"], found["twicesafe_stop"], found["twicesafe_amount"]) == (2, "budget", 3)
    assert found["twicesafe_error_text"] == "StoreUnavailableError: the store is down"


@pytest.mark.parametrize("loud", [False, True])
def test_loud_events_are_errors_and_the_rest_is_at_debug_level(caplog: pytest.LogCaptureFixture, loud: bool) -> None:
    """R44: the levels are as documented, and one logger has all of them."""
    caplog.set_level(logging.DEBUG, "twicesafe")
    log_events(Event("conflict", "charge", "…6f2a", loud=loud))
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR if loud else logging.DEBUG, "twicesafe")


def test_an_error_that_is_not_ours_is_told_by_its_class_and_place(caplog: pytest.LogCaptureFixture) -> None:
    """R22: of a driver's or a handler's error neither its text nor its cause is logged; where it was raised is."""
    error = raised(ValueError("card 4242-4242-4242-4242"))
    error.__cause__ = KeyError("4242-4242-4242-4242")
    for event in ("reconcile.failed", "worker.failed"):
        log_events(Event(event, "charge", "", loud=True, error=error))
    assert "ValueError in raised (" in caplog.text and "test_logs.py:" in caplog.text
    assert "4242-4242-4242-4242" not in caplog.text
    assert told_of(ValueError("4242-4242-4242-4242")) == "ValueError"
    assert "4242-4242-4242-4242" not in str(fields(Event("worker.failed", "", "", loud=True, error=error)))


def test_what_an_observer_raises_repeats_nothing_of_what_it_met(caplog: pytest.LogCaptureFixture) -> None:
    """R22: an observer is told while another error is handled, whose text would be printed with its own; it is not."""
    card = "42" * 8

    def observer(event: Event) -> None:
        raise LookupError(f"no series for {event.error}")

    try:
        raise ConnectionError(card)
    except ConnectionError as error:
        tell(observer, Event("reconcile.failed", "charge", "", loud=True, error=error))
    assert "the observer raised on twicesafe.reconcile.failed: LookupError" in caplog.text
    assert "in observer" in caplog.text
    assert card not in caplog.text


def test_a_fault_is_logged_with_the_way_to_it(caplog: pytest.LogCaptureFixture) -> None:
    """R22, R44: whoever has to find it gets file, line and function."""
    log_fault("the tracing raised", raised(ValueError("4242-4242-4242-4242")))
    assert "the tracing raised: ValueError" in caplog.text and "test_logs.py" in caplog.text
    assert "4242-4242-4242-4242" not in caplog.text


def test_structlog_gets_the_same_fields() -> None:
    """R44: each event under its name, with its fields; loud ones as errors, in a logger of one's own too."""
    log = StructuredLog()
    with capture_logs() as found:
        log(FULL)
        log(Event("mismatch", "charge", "…6f2a", loud=False))
    wanted: dict[str, Any] = {**fields(FULL), "event": "twicesafe.operation.unknown", "log_level": "error"}
    assert found[0] == wanted
    assert (found[1]["event"], found[1]["log_level"], found[1]["operation"]) == (
        "twicesafe.mismatch",
        "debug",
        "charge",
    )
    with capture_logs() as bound:
        StructuredLog(structlog.get_logger().bind(tenant="a"))(Event("conflict", "charge", "", loud=False))
    assert bound[0]["tenant"] == "a"


@pytest.mark.parametrize(("counts", "told"), [(False, ["replayed"]), (True, ["completed", "replayed"])])
def test_structlog_counts_where_it_is_asked_to(counts: bool, told: list[str]) -> None:
    """R44: every run is written down where that is wished for, and not otherwise, beside other observers too."""
    app = IdempotencyMiddleware(
        Probe(), AsyncMemoryStore(), scope=PUBLIC, observer=Observers(StructuredLog(counts=counts), lambda _: None)
    )
    with capture_logs() as found:
        for _ in range(2):
            asyncio.run(post(app))
    assert [line["event"] for line in found] == [f"twicesafe.{name}" for name in told]
    assert ("completed" in COUNTED) and "replayed" not in COUNTED
