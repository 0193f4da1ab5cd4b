"""The runs of reserved intents: on disk before the first byte leaves, and what became of each when that is known."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

from twicesafe.client import intent_file
from twicesafe.client.intent_file import IntentFile, Kept
from twicesafe.client.intent_terms import carrying
from twicesafe.client.intent_time import time_of
from twicesafe.client.intents import Intent
from twicesafe.client.reports import report_of, sign_error
from twicesafe.client.reserved import Reserved, promise_of
from twicesafe.core.outcome import Outcome, Report, Unknown
from twicesafe.core.record import Instant, Micros
from twicesafe.core.retry_policy import RetryPolicy
from twicesafe.core.runs import KNOWN, Run, Standing, Verdict, may_send, standing_of, told, verdict_of
from twicesafe.errors import (
    ClientError,
    ConfigurationError,
    IntentChangedError,
    IntentOverdueError,
    IntentSettledError,
    IntentStoreError,
)

R = TypeVar("R")

_MICROSECOND: Final = timedelta(microseconds=1)

_log: Final = logging.getLogger("twicesafe")


class Begun(NamedTuple):
    """A run that is on disk and under way."""

    number: int
    name: str
    intent: Intent
    policy: RetryPolicy
    others: tuple[Run, ...]


class IntentRuns:
    """Those of one file."""

    def __init__(self, file: IntentFile, clock: Callable[[], Instant]) -> None:
        self._file = file
        self._clock = clock

    def begin(self, reserved: Reserved, policy: RetryPolicy, deadline: timedelta | None) -> Begun:
        """Note that a run begins; it counts as sent until its end says otherwise.

        Its policy puts the key where it was put first, and ends before the server forgets it. IntentSettledError,
        IntentOverdueError, and IntentChangedError where the name is another intent's by now.
        """
        name, intent = reserved.name, reserved.intent
        policy = carrying(policy, intent, reserved.header, reserved.member)
        policy = policy if deadline is None else policy.but(deadline=deadline)

        def work(connection: sqlite3.Connection) -> tuple[int, tuple[Run, ...], Micros | None]:
            found = intent_file.find(connection, name)
            if found is None or found.key_digest != digest_of(intent.key):
                raise IntentChangedError(f"{name!r}, under the key {reserved.key_hint}, was forgotten meanwhile")
            kept, time = intent_file.runs_of(connection, name), time_of(connection, self._clock, writes=True)
            runs, now, promise = time.judged(kept), time.now, promise_of(found)
            if not may_send(runs, promise, now):
                raise refusal(found, standing_of(runs, promise, now))
            number = intent_file.add_run(connection, name, Run(now, os.getpid()))
            return number, runs, promise.left(runs, now)

        try:
            number, others, left = self._file.perform(work, writes=True)
        except ClientError as error:
            sign_error(error, Report(intent.key, ()))
            raise
        if left is not None:
            policy = policy.but(deadline=min(policy.deadline, left * _MICROSECOND))
        return Begun(number, name, intent, policy, others)

    def ended(self, begun: Begun, outcome: Outcome[R]) -> Outcome[R]:
        """Keep the outcome. Returned as it is once all other runs are looked at; also where it cannot be kept."""
        reason, status = "", None
        for attempt in outcome.attempts[-1:]:
            reason, status = f"{attempt.reason}; {attempt.stop}", attempt.status
        if isinstance(outcome, Unknown) and not outcome.attempts:
            reason = str(outcome.stop)
        others = self._end(begun, verdict_of(outcome), len(outcome.attempts), status, reason)
        return told(outcome, others)

    def broke_off(self, begun: Begun, error: BaseException) -> None:
        """Keep that sending raised: what that was, and that it may have been sent."""
        report = report_of(error)
        # What is refused before the first attempt has no report.
        unsent = report is None and isinstance(error, ConfigurationError)
        attempts = 0 if report is None else len(report.attempts)
        self._end(begun, Verdict.UNSENT if unsent else Verdict.OPEN, attempts, None, type(error).__name__)

    def _end(self, begun: Begun, verdict: Verdict, attempts: int, status: int | None, reason: str) -> tuple[Run, ...]:
        """All other runs of the intent. Where the end cannot be kept, the run counts on as one that may be sent."""

        def work(connection: sqlite3.Connection) -> tuple[Run, ...]:
            found, runs = intent_file.find(connection, begun.name), intent_file.runs_of(connection, begun.name)
            run = runs.get(begun.number)
            if found is None or run is None:
                return begun.others
            time = time_of(connection, self._clock, writes=True)
            run = run._replace(verdict=verdict, ended_at=time.now, attempts=attempts, status=status, reason=reason)
            runs[begun.number] = run
            intent_file.end_run(connection, begun.number, run)
            if standing_of(time.judged(runs), promise_of(found), time.now) in KNOWN:
                intent_file.settle(connection, begun.name, time.now)
            return tuple(other for number, other in runs.items() if number != begun.number)

        try:
            return self._file.perform(work, writes=True)
        except IntentStoreError as error:
            _log.error("twicesafe.intent_not_recorded intent=%r: %s", begun.name, error)
            return begun.others


def known_already(row: Kept, standing: Standing) -> IntentSettledError:
    """Why an intent is not settled."""
    return IntentSettledError(f"what became of {row.name!r} is known already: it is {standing}")


def refusal(row: Kept, standing: Standing) -> ClientError:
    """Why an intent is not sent."""
    who = f"{row.name!r}, under the key {row.key_hint},"
    if standing is Standing.SUCCEEDED:
        return IntentSettledError(f"{who} succeeded, and its server may have forgotten the key by now")
    if standing is Standing.REJECTED:
        return IntentSettledError(f"{who} was rejected. Another try is another intent, of another name")
    return IntentOverdueError(
        f"nobody knows what became of {who} and its server may have forgotten the key: to send it again could do it "
        "twice. Look up what became of it, and settle it"
    )


def digest_of(key: str) -> bytes:
    """What a key is looked up by."""
    return sha256(key.encode("ascii")).digest()
