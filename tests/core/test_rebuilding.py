"""Which duplicates are answered anew, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.records import ANSWER, NOW, standing_so
from tests.core.script import play, started
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Standing, Verdict
from twicesafe.core.plain import plain_replay
from twicesafe.core.policy import Duplicates, Operation, Policy
from twicesafe.core.rebuilding import not_rebuilt, rebuilt, to_rebuild
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import FORWARD, Answer, Propagate
from twicesafe.errors import ConfigurationError, RebuildError

ALWAYS = Policy(duplicates=Duplicates.REBUILT)


def hook(stored: StoredResponse, request: Any) -> None:
    """Of an operation that has one."""


def answer_to(verdict: Verdict, where: Standing) -> Any:
    """What an exchange answers to a duplicate that finds this."""
    return play(started(Policy()), Existing(verdict, standing_so(where), NOW)).result


@pytest.mark.parametrize("policy", [Policy(), ALWAYS])
def test_what_is_not_kept_is_rebuilt(policy: Policy) -> None:
    """R18: the hook gets the first answer's status and lines, and no body, however long that lay in its row."""
    gone = answer_to(Verdict.GONE, Standing.TOMBSTONE)
    assert to_rebuild(gone, Operation("charge", policy, hook)) == ANSWER._replace(body=None)


def test_what_is_kept_is_rebuilt_by_choice() -> None:
    """R19: stored or rebuilt is the policy's choice, on the plain way too."""
    found = Existing(Verdict.REPLAY, standing_so(Standing.COMPLETED), NOW)
    for replay in (answer_to(Verdict.REPLAY, Standing.COMPLETED), plain_replay(found, ALWAYS)):
        assert to_rebuild(replay, Operation("charge", ALWAYS, hook)) == ANSWER
        assert to_rebuild(replay, Operation("charge", Policy(), hook)) is None


def test_nothing_else_is_rebuilt() -> None:
    """I4, I6: no refusal, no conflict, no first answer; and nothing without a hook."""
    operation = Operation("charge", ALWAYS, hook)
    others = [
        answer_to(Verdict.MISMATCH, Standing.COMPLETED),
        answer_to(Verdict.IN_PROGRESS, Standing.CLAIMED),
        answer_to(Verdict.UNKNOWN, Standing.UNKNOWN),
        FORWARD,
        Propagate(ValueError()),
        None,
    ]
    assert [to_rebuild(other, operation) for other in others] == [None] * 6
    assert to_rebuild(answer_to(Verdict.REPLAY, Standing.COMPLETED), Operation("charge", ALWAYS)) is None


def test_what_is_rebuilt_is_a_replay() -> None:
    """R17, R37: it bears the policy's marker, once."""
    replay = answer_to(Verdict.REPLAY, Standing.COMPLETED)
    given = StoredResponse(200, ((b"Idempotent-Replayed", b"no"), (b"etag", b'"2"')), b"now")
    again = rebuilt(replay, given, Policy())
    lines = ((b"etag", b'"2"'), (b"content-length", b"3"), (b"idempotent-replayed", b"true"))
    assert again == Answer(200, lines, b"now", "rebuilt")
    assert rebuilt(replay, None, Policy()) is replay


def test_another_body_under_the_first_lines_has_its_own_length() -> None:
    """R19, D2: whatever length the lines say that a hook took over, the one that is sent is the body's."""
    replay = answer_to(Verdict.REPLAY, Standing.COMPLETED)
    first = StoredResponse(201, ((b"Content-Length", b"2"), (b"location", b"/1")), b"ok")
    again = rebuilt(replay, first._replace(body=b"of today"), Policy(marker=""))
    assert again.headers == ((b"location", b"/1"), (b"content-length", b"8"))
    empty = rebuilt(replay, first._replace(status=204, body=b"of today"), Policy(marker=""))
    assert (empty.headers, empty.body) == (((b"location", b"/1"),), b"")


@pytest.mark.parametrize(
    "given",
    [
        "text",
        {"a": 1},
        ANSWER._replace(body=None),
        ANSWER._replace(status=100),
        ANSWER._replace(status=999),
        ANSWER._replace(status="200"),  # type: ignore[arg-type]
        ANSWER._replace(headers=(("location", "/1"),)),  # type: ignore[arg-type]
        ANSWER._replace(headers=((b"location", b"/1\r\nset-cookie: a=1"),)),
        ANSWER._replace(headers=((b"a b", b"c"),)),
    ],
)
def test_what_is_no_answer_is_an_error(given: object) -> None:
    """R19: a hook that gives something else is told so, and no line of its own making ends up in a head."""
    with pytest.raises(RebuildError, match="has to give"):
        rebuilt(answer_to(Verdict.REPLAY, Standing.COMPLETED), given, Policy())


def test_what_a_hook_raises_is_told_without_its_text() -> None:
    """R22: the text of an application's exception may hold an answer; its type and its operation are enough."""
    cause = ValueError("card 4242-4242-4242-4242")
    told = not_rebuilt(cause, Operation("charge"))
    assert "4242-4242-4242-4242" not in str(told) and "charge" in str(told) and "ValueError" in str(told)
    assert told.__cause__ is cause
    assert not_rebuilt(told, Operation("charge")) is told


def test_the_choice_is_checked() -> None:
    """House: there are two choices, by name or by member."""
    assert Policy(duplicates="rebuilt").duplicates is Duplicates.REBUILT  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="stored, rebuilt"):
        Policy(duplicates="always")  # type: ignore[arg-type]
