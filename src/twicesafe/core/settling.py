"""What becomes of an unknown outcome once somebody knows it, a reconciler or a person (R26, I6).

An operation without steps is settled with its answer, or released. One that takes steps is asked about its open call:
what became of that is written into its journal, and it goes on behind it. Releasing it would take its steps again.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from twicesafe.core.journal import DONE, LOST, OPEN, UNSENT, Entry, Journal
from twicesafe.core.record import Effects, Micros, Ownership, Record, StoredResponse
from twicesafe.core.replay import forgotten, remembered
from twicesafe.errors import ConfigurationError, DefinitionChangedError

BODILESS: Final = (204, 205, 304)
"""Statuses of answers that end with their head."""

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_LINE: Final = re.compile(rb"[\0\r\n]")


class Settle(NamedTuple):
    """End it: with this answer, or by forgetting it. What `settle` of a store takes."""

    own: Ownership
    response: StoredResponse | None
    key_us: Micros
    body_us: Micros


class Reopen(NamedTuple):
    """Let it go on from here. What `reopen` of a store takes."""

    own: Ownership
    seen: str | None
    point: str | None
    data: bytes | None


def steps_of(record: Record) -> Journal | None:
    """How far an operation of several steps has come; None for one that takes none. See Journal.read."""
    return Journal.read(record.recovery_data, record.recovery_point) if record.effects is Effects.RESUMABLE else None


def open_call(journal: Journal | None) -> Entry | None:
    """The call of which somebody has to say what it gave. It is the last step, because none is taken before that."""
    last = None if journal is None or not journal.entries else journal.entries[-1]
    return last if last is not None and last.unsettled else None


def told(journal: Journal, result: str | None) -> Journal:
    """The journal once it is known that the open call was done, with this encoded result, or with None that it was not.

    DefinitionChangedError where no call is open; ConfigurationError for "not done" of one that provably was.
    """
    call = open_call(journal)
    if call is None:
        raise DefinitionChangedError("it is held and has no open call: what holds it is for a human to judge")
    if result is not None:
        return journal.having(call._replace(standing=DONE, result=result))
    if call.standing == LOST:
        raise ConfigurationError(
            f"the call {call.name!r} was carried out, only its result is missing: say that it was done, and its result"
        )
    return journal.having(call._replace(standing=OPEN, result=UNSENT))


def may_end(journal: Journal | None, *, done: bool) -> bool:
    """Whether a person may end it as it is. Once steps were taken: as done only, and not while a call is open."""
    if journal is None or not journal.entries:
        return True
    return done and open_call(journal) is None


def settle(record: Record, response: StoredResponse | None) -> Settle:
    """As done with this answer, or with None as not done. It is kept for as long as the claim had meant to keep it,
    without the header lines that no answer is kept with.

    ConfigurationError for an answer that no server can send: every retry would get it, and fail.
    """
    if response is not None:
        _check_can_be_sent(response)
        lines = remembered(response.headers, forgotten(store_cookies=True))
        # HTTPStatus is no plain number, and stores know no other.
        response = StoredResponse(int(response.status), lines, response.body)
    retention = max(1, record.key_until - record.created_at)
    return Settle(record.ownership, response, retention, retention)


def _check_can_be_sent(response: StoredResponse) -> None:
    body: object = response.body
    if body is not None and not isinstance(body, bytes):
        raise ConfigurationError(f"an answer's body is bytes, or None where it is not kept, not {type(body).__name__}")
    status, size = response.status, len(response.body or b"")
    if not 200 <= status <= 599:
        raise ConfigurationError(f"an answer's status is between 200 and 599, not {status}")
    if size and status in BODILESS:
        raise ConfigurationError(f"an answer with status {status} has no body")
    for name, line in response.headers:
        if not _is_line(name, line):
            raise ConfigurationError(
                f"{name!r} begins no header line: a name is a token, and its value one line, in bytes"
            )
        if name.lower() == b"content-length" and line != b"%d" % size and status != 304:
            raise ConfigurationError(f"its Content-Length is not that of its body, which has {size} bytes")


def _is_line(name: object, line: object) -> bool:
    if not isinstance(name, bytes) or not isinstance(line, bytes):
        return False
    return _NAME.fullmatch(name) is not None and _NO_LINE.search(line) is None


def reopen(record: Record, journal: Journal) -> Reopen:
    """Behind the steps of this journal."""
    data = journal.written() if journal.entries else record.recovery_data
    return Reopen(record.ownership, record.recovery_point, journal.point, data)
