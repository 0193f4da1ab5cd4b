"""Sending an operation until its outcome is known. `twicesafe.client.httpx` sends, by httpx2 or httpx."""

from __future__ import annotations

from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.client.budgets import Budgets
from twicesafe.client.intent_store import AsyncIntentStore, IntentStore
from twicesafe.client.intents import Intent
from twicesafe.client.reports import report_of
from twicesafe.client.reserved import Reserved
from twicesafe.client.watching import Watch
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, FailureKind, Outcome, Rejected, Report, Sent, Stop, Succeeded, Unknown
from twicesafe.core.retry_budget import BudgetSize, Work
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.routes import Route, Routes
from twicesafe.core.runs import Run, Standing, Verdict
from twicesafe.errors import (
    BodyNotRepeatableError,
    ClientError,
    IntentChangedError,
    IntentOverdueError,
    IntentSettledError,
    IntentStoreError,
    OutcomeError,
    RedirectedElsewhereError,
    RejectedError,
    UnknownError,
)

__all__ = [
    "Ambient",
    "AsyncAmbient",
    "AsyncIntentStore",
    "Attempt",
    "BodyNotRepeatableError",
    "BudgetSize",
    "Budgets",
    "ClientError",
    "Contract",
    "FailureKind",
    "Intent",
    "IntentChangedError",
    "IntentOverdueError",
    "IntentSettledError",
    "IntentStore",
    "IntentStoreError",
    "Outcome",
    "OutcomeError",
    "RedirectedElsewhereError",
    "Rejected",
    "RejectedError",
    "Report",
    "Reserved",
    "RetryPolicy",
    "Route",
    "Routes",
    "Run",
    "Sent",
    "Standing",
    "Stop",
    "Succeeded",
    "Unknown",
    "UnknownError",
    "Verdict",
    "Watch",
    "Work",
    "report_of",
]
