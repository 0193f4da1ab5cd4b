"""The exchange when the handler raises, or leaves its answer unfinished."""

from __future__ import annotations

import json
from asyncio import CancelledError
from typing import Any

import pytest

from tests.core.records import NOW, standing_so
from tests.core.script import (
    ALL,
    KEYED,
    OPAQUE,
    OWN,
    RESUMABLE,
    TRANSACTIONAL,
    Played,
    name_of,
    play,
    started,
    won,
)
from twicesafe.core.capture import Raised
from twicesafe.core.claims import Found
from twicesafe.core.exchange import IncompleteAnswerError
from twicesafe.core.lifecycle import Standing
from twicesafe.core.policy import Policy
from twicesafe.core.steps import Answer, Complete, Hold, Propagate, Release, Renew
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, StoreError, StoreUnavailableError

LOST, AWAY, TAKEN = AmbiguousWriteError(), StoreUnavailableError(), LeaseLostError()
STORE_ERRORS = pytest.mark.parametrize("error", [LOST, AWAY, TAKEN], ids=["lost", "away", "taken"])

EXCEPTIONS = [
    ValueError("the card 4242-4242-4242-4242"),
    StoreUnavailableError("the handler's own database"),
    TimeoutError(),
]
TORN = [CancelledError(), KeyboardInterrupt(), SystemExit(1), GeneratorExit()]


def raised(policy: Policy, error: BaseException | None, *script: object, entered: bool | None = None) -> Played:
    """An exchange whose handler raised."""
    return play(started(policy), won(), Raised(error, entered), *script)


def propagates(result: Any, error: BaseException | None) -> bool:
    """Whether the handler's own exception comes through, or the one that says that it did not finish."""
    if type(result) is not Propagate:
        return False
    return type(result.error) is IncompleteAnswerError if error is None else result.error is error


@pytest.mark.parametrize("entered", [None, True, False])
@pytest.mark.parametrize("error", [*EXCEPTIONS, *TORN, None], ids=repr)
def test_a_transaction_that_was_rolled_back_frees_its_key(error: BaseException | None, entered: bool | None) -> None:
    """R16, B7: nothing is left of it, whatever kind of exception ended it, so the key is free."""
    played = raised(TRANSACTIONAL, error, None, entered=entered)
    assert played.names == "Claim Run Release"
    assert played.only(Release) == Release(OWN)
    assert propagates(played.result, error)


@pytest.mark.parametrize("policy", [KEYED, RESUMABLE], ids=name_of)
@pytest.mark.parametrize("entered", [None, True])
@pytest.mark.parametrize("error", [*EXCEPTIONS, *TORN, None], ids=repr)
def test_work_that_may_be_run_again_is_given_up_and_not_forgotten(
    policy: Policy, error: BaseException | None, entered: bool | None
) -> None:
    """R13, R16, R25, I4, B7: the next attempt takes over at once; its request, its recovery point and the age of its
    derived keys stay, because a provider may have seen them."""
    played = raised(policy, error, None, entered=entered)
    assert played.names == "Claim Run Renew"
    assert played.only(Renew) == Renew(OWN, 1)
    assert propagates(played.result, error)
    assert played.told == ""


@pytest.mark.parametrize("policy", [KEYED, RESUMABLE, OPAQUE, OPAQUE.but(unknown_on_error=True)])
@pytest.mark.parametrize("error", [*EXCEPTIONS, *TORN, None], ids=repr)
def test_a_handler_that_was_never_entered_did_nothing(policy: Policy, error: BaseException | None) -> None:
    """R15, E1, E4: a failure before the handler proper frees the key, whatever the handler would have done."""
    played = raised(policy, error, None, entered=False)
    assert played.names == "Claim Run Release"
    assert propagates(played.result, error)


@pytest.mark.parametrize("entered", [None, True])
@pytest.mark.parametrize("error", EXCEPTIONS, ids=repr)
def test_the_exception_of_opaque_work_is_a_stored_failure(error: Exception, entered: bool | None) -> None:
    """R16, B5, E4: nobody knows what it did, so its 500 is the answer to every retry and it is never run again."""
    played = raised(OPAQUE, error, None, entered=entered)
    assert played.names == "Claim Run Complete"
    stored = played.only(Complete).response
    assert type(played.result) is Answer
    assert (played.result.status, played.result.headers, played.result.body) == stored
    assert (played.result.kind, played.result.status, played.result.error) == ("handler-failed", 500, error)
    assert json.loads(stored.body)["safe_new_key"] is False
    assert b"4242-4242-4242-4242" not in stored.body, "nothing of the exception reaches the caller"


@pytest.mark.parametrize("entered", [None, True])
@pytest.mark.parametrize("error", [*TORN, None], ids=repr)
def test_opaque_work_that_was_torn_off_is_unknown(error: BaseException | None, entered: bool | None) -> None:
    """R16, I6, B7, A1: cancelled, interrupted or left unfinished, it may have done its work: it is held as unknown."""
    played = raised(OPAQUE, error, None, entered=entered)
    assert played.names == "Claim Run Hold"
    assert played.only(Hold) == Hold(OWN)
    assert propagates(played.result, error)
    assert played.told == "outcome.unknown!"


@pytest.mark.parametrize("error", EXCEPTIONS, ids=repr)
def test_where_somebody_settles_unknown_outcomes_an_exception_is_one(error: Exception) -> None:
    """R16, I6: by choice of the policy the exception of opaque work is an unknown outcome instead of a stored 500."""
    played = raised(OPAQUE.but(unknown_on_error=True), error, None)
    assert played.names == "Claim Run Hold"
    assert propagates(played.result, error)
    assert played.told == "outcome.unknown!"


@STORE_ERRORS
@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_a_store_that_fails_too_does_not_hide_the_exception(policy: Policy, error: StoreError) -> None:
    """R14, R16: the handler's exception comes through whatever the store does; the lease ends by itself."""
    torn = CancelledError()
    played = raised(policy, torn, error)
    assert played.names in ("Claim Run Release", "Claim Run Renew", "Claim Run Hold")
    assert propagates(played.result, torn)
    assert ("lease.lost!" if error is TAKEN else "recording.failed!") in played.told


def test_a_failure_that_cannot_be_recorded_is_held() -> None:
    """R14, R16: the caller is told of the failure, its exception is raised on, and the outcome is held."""
    error = ValueError()
    played = raised(OPAQUE, error, AWAY, AWAY, AWAY, AWAY, None)
    assert played.names == "Claim Run Complete Wait Complete Wait Complete Wait Complete Hold"
    assert (played.result.kind, played.result.error) == ("handler-failed", error)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Found(standing_so(Standing.COMPLETED), NOW), "replayed"),
        (Found(standing_so(Standing.UNKNOWN), NOW), "outcome-unknown"),
        (Found(None, NOW), "handler-failed"),
        (AWAY, "outcome-unknown"),
    ],
)
def test_a_failure_of_a_late_owner_is_still_raised(found: object, kind: str) -> None:
    """R12, R16: the caller gets the answer on record; the late owner's own exception is not swallowed."""
    error = ValueError()
    played = raised(OPAQUE, error, TAKEN, found)
    assert played.names == "Claim Run Complete Read"
    assert (played.result.kind, played.result.error) == (kind, error)


def test_an_unfinished_answer_is_named() -> None:
    """D5, K: an application that returns without finishing its answer raises an error that says so."""
    assert "without completing its response" in str(raised(KEYED, None, None).result.error)
