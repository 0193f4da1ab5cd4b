"""A user who watches a client, for the type checkers: mypy runs over it with --strict, and nothing ever runs it."""

from __future__ import annotations

from typing import assert_type

import httpx2
from opentelemetry.trace import get_tracer_provider

from twicesafe.client import Attempt, Intent, RetryPolicy, Watch
from twicesafe.client.audit import Finding, audit
from twicesafe.client.callers import Caller, CallerASGI, caller, serving
from twicesafe.client.httpx import RetryTransport, send
from twicesafe.client.opentelemetry import Tracing
from twicesafe.observe import Event


def seen(event: Event) -> None:
    """An observer, of a server's kind."""
    assert_type(event.attempt, Attempt | None)
    assert_type(event.operation_id, str | None)


watch = Watch(observer=seen, tracing=Tracing(get_tracer_provider()))
leaving = RetryPolicy(leave_to_caller=True)

with httpx2.Client(transport=RetryTransport(httpx2.HTTPTransport(), leaving, watch=watch)) as client:
    send(client, Intent.new("POST", "/charges"), watch=watch)
    assert_type(audit(client, policy=leaving), list[Finding])
    assert_type(audit(client)[0].hits, int | None)

with serving({"Twicesafe-Attempt": "2"}) as served:
    assert_type(served, Caller | None)
    assert_type(caller(), Caller | None)


async def application(scope: object, receive: object, send: object) -> None:
    """Of ASGI."""


application_that_listens = CallerASGI(application)
