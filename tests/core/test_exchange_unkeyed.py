"""A request without a key to a transactional operation: one transaction, no record."""

from __future__ import annotations

from asyncio import CancelledError

import pytest

from tests.core.script import CHARGED, TRANSACTIONAL, Played, play
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.exchange import IncompleteAnswerError, unkeyed
from twicesafe.core.steps import FORWARD, Propagate, Run
from twicesafe.errors import AmbiguousWriteError, StoreError, StoreUnavailableError

POLICY = TRANSACTIONAL.but(commits=frozenset({402}))


def played(*script: object) -> Played:
    """The exchange of one request without a key."""
    return play(unkeyed(POLICY), *script)


def test_effects_are_committed_before_the_answer() -> None:
    """R3, R23: nothing is claimed or recorded; the commit comes before the answer is sent."""
    found = played(None, CHARGED, None)
    assert found.names == "Begin Run Commit"
    assert found.only(Run) == Run(None, None)
    assert found.result is FORWARD


@pytest.mark.parametrize(
    ("outcome", "commits"),
    [
        (Responded(200, (), b""), True),
        (Responded(302, (), b"", True), True),
        (Responded(402, (), b""), True),
        (Responded(400, (), b""), False),
        (Responded(500, (), b"", True), False),
        (Responded(503, (), b""), False),
        (Responded(200, (), b"", False), False),
        (Responded(200, (), b"", True, repeatable=True), False),
    ],
)
def test_the_rule_is_the_one_that_holds_under_a_key(outcome: Responded, commits: bool) -> None:
    """R15, R23, H2: a failure answer rolls its effects back with a key and without one."""
    found = played(None, outcome, *[None] * commits)
    assert found.names == "Begin Run" + " Commit" * commits
    assert found.result is FORWARD


@pytest.mark.parametrize("error", [StoreUnavailableError(), AmbiguousWriteError()], ids=["away", "lost"])
def test_a_store_in_trouble_is_an_error_of_the_request(error: StoreError) -> None:
    """R23: what could not begin did not run, and what may not be committed is not told as done."""
    assert played(error).names == "Begin"
    assert played(error).result == Propagate(error)
    found = played(None, CHARGED, error)
    assert found.names == "Begin Run Commit"
    assert found.result == Propagate(error)


@pytest.mark.parametrize("error", [ValueError(), CancelledError(), None], ids=repr)
def test_an_exception_rolls_back(error: BaseException | None) -> None:
    """R16, H2: nothing is committed, and the exception comes through."""
    found = played(None, Raised(error))
    assert found.names == "Begin Run"
    assert type(found.result) is Propagate
    assert type(found.result.error) is IncompleteAnswerError if error is None else found.result.error is error


def test_a_stream_flows_after_its_commit() -> None:
    """R18, R23: the commit comes before the first byte; a break after it is seen."""
    head = CHARGED._replace(streaming=True, body=None)
    found = played(None, head, None, CHARGED)
    assert found.names == "Begin Run Commit Flow"
    assert found.result is FORWARD
    error = ValueError()
    assert played(None, head, None, Raised(error)).result == Propagate(error)
    refused = played(None, head._replace(status=503), CHARGED)
    assert refused.names == "Begin Run Flow"
