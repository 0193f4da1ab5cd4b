"""What an answer means for the operation: whether to ask again, and what it tells of the effect (R36, R37).

The two are apart: a 503 may be worth another attempt and still not say whether the one before it was done.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from twicesafe.core.contract import Contract
from twicesafe.core.problems import PROBLEM_JSON, PROBLEMS, REPLAYED, RETRY_AFTER


class Says(Enum):
    """What an answer tells about the effect."""

    DONE = auto()
    NOT_DONE = auto()
    """This attempt did nothing. An earlier one may have."""
    NOT_THIS_TIME = auto()
    """This attempt did nothing, and what its key names may well be done: by another process, under a derived key."""
    NEVER = auto()
    """The recorded answer to all attempts: it was not done, and will not be under this key."""
    NOTHING = auto()


class Again(Enum):
    """Whether another attempt can bring a better answer."""

    NO = auto()
    YES = auto()
    IN_PROGRESS = auto()
    """Another attempt is at work: wait for it."""


class Judgment(NamedTuple):
    """`reason` is for people, and holds nothing of the answer but its status."""

    again: Again
    says: Says
    reason: str
    replayed: bool = False


class Wording(NamedTuple):
    """What a server says in words of its own, for those that are known to the caller by name. Header names in lower
    case."""

    marker: bytes = b""
    """A header whose `true` marks the recorded answer."""
    directive: bytes = b""
    """A header whose `true` and `false` say whether to try again."""
    in_progress: int = 0
    """The status that says, under a key, that another attempt is at work."""
    about_keys: tuple[bytes, ...] = ()
    """Codes in errors that speak of the key and not of the request: what the key names may be done."""


PLAIN: Final = Wording()


class Problem(NamedTuple):
    """The members of a problem document that matter here."""

    kind: str
    """The last part of its type."""
    retryable: bool | None
    safe_new_key: bool | None = None
    """False: under another key it could happen twice, so that under this one it may have happened."""


NO_PROBLEM: Final = Problem("", None)

_KEY_REUSED: Final = "key-reused"
_KEY_REUSED_TITLE: Final = PROBLEMS[_KEY_REUSED].title.lower()
"""The Internet-Draft's title, for servers whose problem types are named otherwise."""

TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Reviewed: each is defined, or universally used, for a condition that passes."""

NOT_IMPLEMENTED: Final = frozenset({501, 505})
"""Server errors that are given instead of working, by definition."""

_UNMENDED_BY_REPEATING: Final = frozenset({401, 403, 404, 422})
"""However the server marks them: the same request gets the same answer."""

_ELSEWHERE: Final = frozenset({307, 308})
"""Ask somewhere else. Whoever follows redirects does not come here."""

JUDGED_BODY: Final = 64 * 1024
"""Bytes of an error's body that are worth reading to judge it."""


def judge(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes | None,
    *,
    contract: Contract,
    wording: Wording = PLAIN,
) -> Judgment:
    """Judge a whole answer. `body` is its decoded body, or None where it was not read."""
    judgment = _judge(status, headers, body, contract, wording)
    if status < 400 or judgment.replayed or not wording.directive:
        return judgment
    directed = flag_in(headers, wording.directive)
    if directed is None:
        return judgment
    if not directed:
        return judgment._replace(again=Again.NO, reason=f"{judgment.reason} not to be retried")
    return judgment._replace(again=Again.YES) if judgment.again is Again.NO else judgment


def _judge(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes | None, contract: Contract, wording: Wording
) -> Judgment:
    replayed = is_replayed(headers) or (wording.marker != b"" and flag_in(headers, wording.marker) is True)
    if status < 400 and status not in _ELSEWHERE:
        if replayed:
            return Judgment(Again.NO, Says.DONE, f"{status} replayed", replayed=True)
        return Judgment(Again.NO, Says.DONE if _is_done(status, contract) else Says.NOTHING, str(status))
    if replayed:
        return Judgment(Again.NO, Says.NEVER, f"{status} replayed", replayed=True)
    problem = problem_of(headers, body)
    keyed = contract is Contract.KEYED
    if wording is not PLAIN and keyed:
        if status == wording.in_progress and problem.kind in ("", "in-progress"):
            return Judgment(Again.IN_PROGRESS, Says.NOTHING, f"{status} in progress")
        if status < 500 and body is not None and any(code in body for code in wording.about_keys):
            return Judgment(Again.NO, Says.NOT_THIS_TIME, f"{status} about the key")
    if status == 409:
        return _judge_conflict(headers, problem, keyed=keyed)
    if problem.kind == "handler-failed":
        return Judgment(Again.NO, Says.NEVER, f"{status} recorded")
    says = _not_done(problem) if status < 500 or _instead_of_working(status, headers, problem) else Says.NOTHING
    if problem.retryable is None or status in _UNMENDED_BY_REPEATING:
        again = Again.YES if status in TRANSIENT else Again.NO
    else:
        again = Again.YES if problem.retryable else Again.NO
    return Judgment(again, says, f"{status} key reused" if problem.kind == _KEY_REUSED else str(status))


def _is_done(status: int, contract: Contract) -> bool:
    """Whether an answer below 400 says that it is done. A redirect to a log-in page, say, does not.

    303 is the answer to a POST whose result is to be seen elsewhere; 304 is one only where something was to be read, or
    a precondition was given.
    """
    if status == 303:
        return contract in (Contract.KEYED, Contract.NEVER)
    if status == 304:
        return contract in (Contract.SAFE, Contract.CONDITIONAL)
    return 200 <= status < 300


def _not_done(problem: Problem) -> Says:
    """What a refusal tells of the operation. That the key was used for another request proves that it was used."""
    return Says.NOT_THIS_TIME if problem.safe_new_key is False or problem.kind == _KEY_REUSED else Says.NOT_DONE


def _judge_conflict(headers: Sequence[tuple[bytes, bytes]], problem: Problem, *, keyed: bool) -> Judgment:
    """409 is either about the first attempt, or about the state of the resource and final."""
    if problem.kind == "outcome-unknown":
        return Judgment(Again.NO, Says.NOTHING, "409 outcome unknown")
    if problem.kind == "already-done" and keyed:
        # Of a server that gives the first answer to nobody else: Location is where its result is.
        return Judgment(Again.NO, Says.DONE, "409 already done", replayed=True)
    if problem.retryable is not False and (problem.kind == "in-progress" or _asks_to_wait(headers)):
        if keyed:
            return Judgment(Again.IN_PROGRESS, Says.NOTHING, "409 in progress")
        return Judgment(Again.YES, Says.NOT_DONE, "409 asked to wait")
    return Judgment(Again.YES if problem.retryable else Again.NO, _not_done(problem), "409")


def _instead_of_working(status: int, headers: Sequence[tuple[bytes, bytes]], problem: Problem) -> bool:
    """Whether a server error says that nothing was done.

    A 503 that names a time to come back is a refusal of a server that knows its load. One without it may be a
    gateway's, whose connection to the server broke at any moment. And so may one with it, where a gateway was on the
    way and no problem document says who speaks: Varnish's own errors ask to wait, whatever broke.
    """
    if status in NOT_IMPLEMENTED or problem.kind in ("store-unavailable", "store-misconfigured"):
        return True
    if status != 503 or problem.kind == "commit-unknown" or not _asks_to_wait(headers):
        return False
    return problem.kind != "" or not any(name.lower() == b"via" for name, _ in headers)


def _asks_to_wait(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(len(name) == 11 and name.lower() == RETRY_AFTER for name, _ in headers)


def is_replayed(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the server says that this is the recorded answer."""
    marker, true = REPLAYED
    for name, line in headers:
        if len(name) == len(marker) and name.lower() == marker:
            return line.strip().lower() == true
    return False


def flag_in(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> bool | None:
    """What a header of true or false says; None where it is absent or says anything else. `name` in lower case."""
    for found, line in headers:
        if len(found) == len(name) and found.lower() == name:
            return {b"true": True, b"false": False}.get(line.strip().lower())
    return None


def is_json(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether an error's body may hold a problem document."""
    for name, line in headers:
        if len(name) == 12 and name.lower() == b"content-type":
            return line.split(b";", 1)[0].strip().lower() in (PROBLEM_JSON, b"application/json")
    return False


def problem_of(headers: Sequence[tuple[bytes, bytes]], body: bytes | None) -> Problem:
    """The problem document, read with suspicion: whatever is not one is no problem."""
    if not body or len(body) > JUDGED_BODY or not is_json(headers):
        return NO_PROBLEM
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return NO_PROBLEM
    if not isinstance(document, dict):
        return NO_PROBLEM
    return Problem(
        _kind_of(document.get("type"), document.get("title")),
        _flag(document.get("retryable")),
        _flag(document.get("safe_new_key")),
    )


def _flag(member: object) -> bool | None:
    return member if isinstance(member, bool) else None


def _kind_of(kind: object, title: object) -> str:
    if isinstance(title, str) and title.strip().lower() == _KEY_REUSED_TITLE:
        return _KEY_REUSED
    return _last_part(kind) if isinstance(kind, str) else ""


def _last_part(kind: str) -> str:
    """`urn:twicesafe:problem:in-progress`, `https://example.com/problems/in-progress/` and `in-progress` are one."""
    return kind.rstrip("/").replace("#", "/").replace(":", "/").rpartition("/")[2].lower()
