"""Answers to duplicates that the application makes anew, from what is stored of the first one (R18, R19).

The operation's `rebuild` is called with that and with the duplicate's request. It runs outside of any claim and of any
transaction, perhaps many times at once, and never in place of a run: by then the work is done.
"""

from __future__ import annotations

import re
from typing import Final

from twicesafe.core.duplicates import BODILESS
from twicesafe.core.policy import Duplicates, Operation, Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import Answer, Result
from twicesafe.errors import RebuildError


def to_rebuild(result: Result | None, operation: Operation) -> StoredResponse | None:
    """What `rebuild` is to be given for this result of a claim. None: it is sent as it is."""
    if operation.rebuild is None or type(result) is not Answer or result.stored is None:
        return None
    if result.stored.body is not None and operation.policy.duplicates is Duplicates.STORED:
        return None
    return result.stored


def rebuilt(result: Result | None, given: object, policy: Policy) -> Answer:
    """The answer that `rebuild` gave, marked as a replay. None from it means: what is stored, after all.

    Its length is written anew, for a hook may put another body under the first one's lines. RebuildError where it is no
    answer, which a server would learn of too late to send what is stored.
    """
    assert type(result) is Answer, result
    if given is None:
        return result
    if not isinstance(given, StoredResponse) or not isinstance(given.body, bytes):
        raise RebuildError(f"rebuild has to give a StoredResponse with a body, not {type(given).__name__}")
    status: object = given.status
    headers, body = tuple(given.headers), given.body
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise RebuildError("rebuild has to give a status from 200 to 599")
    if not all(_is_line(*line) for line in headers):
        raise RebuildError("rebuild has to give header lines as pairs of bytes, a name and a value of one line")
    written_anew = {b"content-length", b"transfer-encoding", *[name for name, _ in policy.marked]}
    lines = [line for line in headers if line[0].lower() not in written_anew]
    if status in BODILESS:
        body = b""
    else:
        lines.append((b"content-length", b"%d" % len(body)))
    return Answer(int(status), (*lines, *policy.marked), body, "rebuilt")


_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[^\0\r\n]*")


def _is_line(name: object, value: object) -> bool:
    """Whether it can stand in the head of an answer."""
    return (
        isinstance(name, bytes)
        and isinstance(value, bytes)
        and _NAME.fullmatch(name) is not None
        and _VALUE.fullmatch(value) is not None
    )


def not_rebuilt(error: BaseException, operation: Operation) -> RebuildError:
    """What is told of a `rebuild` that raised. Its own text may hold anything, so it is the cause only (R22)."""
    if isinstance(error, RebuildError):
        return error
    failed = RebuildError(f"rebuild of {operation.name!r} raised {type(error).__name__}: what is stored was sent")
    failed.__cause__ = error
    return failed
