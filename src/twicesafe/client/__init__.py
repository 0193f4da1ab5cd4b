"""Sending an operation until its outcome is known. `twicesafe.client.httpx` sends, by httpx2 or httpx."""

from __future__ import annotations

from twicesafe.client.ambient import Ambient, AsyncAmbient
from twicesafe.client.budgets import Budgets
from twicesafe.client.intents import Intent
from twicesafe.client.reports import report_of
from twicesafe.core.contract import Contract
from twicesafe.core.outcome import Attempt, FailureKind, Outcome, Rejected, Report, Sent, Stop, Succeeded, Unknown
from twicesafe.core.retry_budget import BudgetSize, Work
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.errors import BodyNotRepeatableError, ClientError, OutcomeError, RejectedError, UnknownError

__all__ = [
    "Ambient",
    "AsyncAmbient",
    "Attempt",
    "BodyNotRepeatableError",
    "BudgetSize",
    "Budgets",
    "ClientError",
    "Contract",
    "FailureKind",
    "Intent",
    "Outcome",
    "OutcomeError",
    "Rejected",
    "RejectedError",
    "Report",
    "RetryPolicy",
    "Sent",
    "Stop",
    "Succeeded",
    "Unknown",
    "UnknownError",
    "Work",
    "report_of",
]
