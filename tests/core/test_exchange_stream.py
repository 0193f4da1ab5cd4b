"""The exchange of an answer that flows as it comes: its head is recorded first, its body afterwards."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

import pytest

from tests.core.records import NOW, standing_so
from tests.core.script import ALL, LEASED, LOCATION, OPAQUE, OWN, TRANSACTIONAL, Played, name_of, play, started, won
from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Found
from twicesafe.core.exchange import IncompleteAnswerError
from twicesafe.core.lifecycle import Standing
from twicesafe.core.policy import Policy
from twicesafe.core.record import StoredResponse
from twicesafe.core.steps import FORWARD, Complete, Hold, Propagate, StartAnswer
from twicesafe.errors import AmbiguousWriteError, LeaseLostError, StoreError, StoreUnavailableError

LOST, AWAY, TAKEN = AmbiguousWriteError(), StoreUnavailableError(), LeaseLostError()

HEAD = Responded(201, (*LOCATION, (b"date", b"now")), None, streaming=True)
SMALL = Responded(201, (*LOCATION, (b"date", b"now")), b"all of it")
LARGE = Responded(201, (*LOCATION, (b"date", b"now")), None)
BEGUN = StoredResponse(201, LOCATION, None)

BREAKS = [ValueError(), CancelledError(), None]


def streamed(policy: Policy, *script: object, head: Responded = HEAD) -> Played:
    """An exchange whose handler has begun to answer."""
    return play(started(policy), won(), head, *script)


def broken(result: Any, error: BaseException | None) -> bool:
    """Whether the break is seen: by the handler's exception, or by one that says that the answer did not end."""
    if type(result) is not Propagate:
        return False
    return type(result.error) is IncompleteAnswerError if error is None else result.error is error


# --- the leased way --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", LEASED, ids=name_of)
@pytest.mark.parametrize(("end", "body"), [(SMALL, b"all of it"), (LARGE, None)])
def test_the_head_is_recorded_before_the_first_byte(policy: Policy, end: Responded, body: bytes | None) -> None:
    """I11, R18, D5: head, then flow, then the whole; a body that ended under the limit is kept after all."""
    played = streamed(policy, None, end, None)
    assert played.names == "Claim Run StartAnswer Flow Complete"
    assert played.only(StartAnswer) == StartAnswer(OWN, BEGUN)
    assert played.only(Complete).response == BEGUN._replace(body=body)
    assert played.result is FORWARD


@pytest.mark.parametrize("policy", LEASED, ids=name_of)
@pytest.mark.parametrize("error", BREAKS, ids=repr)
def test_a_stream_that_breaks_is_not_a_success(policy: Policy, error: BaseException | None) -> None:
    """D5, K, I6: half an answer is never stored as a complete one: the outcome is unknown and the break is seen."""
    played = streamed(policy, None, Raised(error), None)
    assert played.names == "Claim Run StartAnswer Flow Hold"
    assert played.only(Hold) == Hold(OWN)
    assert broken(played.result, error)
    assert played.told == "outcome.unknown!"


@pytest.mark.parametrize("policy", LEASED, ids=name_of)
@pytest.mark.parametrize("error", BREAKS, ids=repr)
def test_a_stream_that_ends_for_want_of_a_reader_is_done(policy: Policy, error: BaseException | None) -> None:
    """R14, R18: told that its client is gone, the handler stops: done, body not kept, as after a crash there."""
    played = streamed(policy, None, Raised(error, client_gone=True), None)
    assert played.names == "Claim Run StartAnswer Flow Complete"
    assert played.only(Complete).response == BEGUN
    assert played.result is FORWARD
    assert played.told == ""


@pytest.mark.parametrize("failures", [[AWAY], [LOST, AWAY, LOST]])
def test_recording_the_head_is_insisted_on(failures: list[StoreError]) -> None:
    """I11, R14: the first byte waits while the head is tried again."""
    played = streamed(OPAQUE, *failures, None, SMALL, None)
    assert played.names == "Claim Run" + " StartAnswer Wait" * len(failures) + " StartAnswer Flow Complete"
    assert played.told == ""


def test_a_head_that_cannot_be_recorded_does_not_hold_back_the_answer() -> None:
    """R14: the work may be done, so its first caller gets its answer, and the observers are told."""
    played = streamed(OPAQUE, AWAY, AWAY, AWAY, AWAY, SMALL, None)
    assert played.names == "Claim Run StartAnswer Wait StartAnswer Wait StartAnswer Wait StartAnswer Flow Complete"
    assert played.told == "recording.failed!"
    assert played.result is FORWARD


@pytest.mark.parametrize("failures", [[], [LOST]])
def test_a_late_owner_does_not_begin_to_answer(failures: list[StoreError]) -> None:
    """R12, I3: before the first byte the loss of the claim still changes the answer to the one on record."""
    waits = len(failures)
    played = streamed(OPAQUE, *failures, TAKEN, Found(standing_so(Standing.COMPLETED), NOW))
    assert played.names == "Claim Run" + " StartAnswer Wait" * waits + " StartAnswer Read"
    assert played.result.kind == "replayed"
    assert played.told == "lease.lost!"


@pytest.mark.parametrize("found", [Found(standing_so(Standing.COMPLETED), NOW), Found(None, NOW), AWAY])
def test_after_the_first_byte_no_other_answer_is_sent(found: object) -> None:
    """R12, D5: a claim lost while the body flowed is told to the observers; the answer that left stays the answer."""
    played = streamed(OPAQUE, None, SMALL, TAKEN, found)
    assert played.names == "Claim Run StartAnswer Flow Complete Read"
    assert played.result is FORWARD
    assert played.told == "lease.lost!"


def test_a_sent_answer_that_cannot_be_recorded_is_held() -> None:
    """R14, I6: its first caller has all of it; retries are told that the outcome is unknown."""
    played = streamed(OPAQUE, None, SMALL, AWAY, AWAY, AWAY, AWAY, None)
    assert played.names.endswith("Flow Complete Wait Complete Wait Complete Wait Complete Hold")
    assert played.result is FORWARD


@pytest.mark.parametrize("error", [LOST, AWAY, TAKEN], ids=["lost", "away", "taken"])
def test_a_break_that_cannot_be_recorded_is_still_seen(error: StoreError) -> None:
    """D5, R14: the store's trouble does not hide that the answer broke."""
    played = streamed(OPAQUE, None, Raised(None), error)
    assert broken(played.result, None)
    assert played.told == "outcome.unknown! " + ("lease.lost!" if error is TAKEN else "recording.failed!")


# --- inside a transaction --------------------------------------------------------------------------------------------


def test_a_transaction_commits_before_the_first_byte() -> None:
    """I11, R18, R23: done, body not kept, is committed with the effects; then the body flows."""
    played = streamed(TRANSACTIONAL, None, SMALL)
    assert played.names == "Claim Run Complete Flow"
    assert played.only(Complete).response == BEGUN
    assert played.result is FORWARD


def test_a_committed_stream_may_end_for_want_of_a_reader() -> None:
    """R14: nobody is there who would take half an answer for a whole one."""
    played = streamed(TRANSACTIONAL, None, Raised(None, client_gone=True))
    assert played.names == "Claim Run Complete Flow"
    assert played.result is FORWARD


@pytest.mark.parametrize("error", BREAKS, ids=repr)
def test_a_committed_stream_that_breaks_is_seen_to_break(error: BaseException | None) -> None:
    """D5: the work is done and committed; the caller sees that the answer broke off."""
    played = streamed(TRANSACTIONAL, None, Raised(error))
    assert played.names == "Claim Run Complete Flow"
    assert broken(played.result, error)


@pytest.mark.parametrize(
    ("script", "names", "kind"),
    [
        ([AWAY], "Claim Run Complete", "store-unavailable"),
        ([TAKEN, Found(standing_so(Standing.COMPLETED), NOW)], "Claim Run Complete Read", "replayed"),
        (
            [LOST, *[Found(None, NOW)] * 4],
            "Claim Run Complete Read Wait Read Wait Read Wait Read",
            "commit-unknown",
        ),
    ],
)
def test_without_a_commit_nothing_flows(script: list[object], names: str, kind: str) -> None:
    """R23, I11: as long as nobody knows that the effects stand, not a byte of the success leaves."""
    played = streamed(TRANSACTIONAL, *script)
    assert played.names == names
    assert played.result.kind == kind


def test_a_commit_that_is_found_lets_the_stream_flow() -> None:
    """R23, I1: after a lost reply to COMMIT the row with my owner token lets the body through."""
    mine = Found(standing_so(Standing.TOMBSTONE, owner=OWN.owner), NOW)
    played = streamed(TRANSACTIONAL, LOST, mine, SMALL)
    assert played.names == "Claim Run Complete Read Flow"
    assert played.result is FORWARD


# --- nothing done ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize(
    "head", [HEAD._replace(status=503), HEAD._replace(repeatable=True), HEAD._replace(status=404, entered=False)]
)
def test_a_streamed_refusal_frees_the_key(policy: Policy, head: Responded) -> None:
    """R15, E3: a 503 that comes as a stream is released like any other, inside a transaction too."""
    played = streamed(policy, None, SMALL, head=head)
    assert played.names == "Claim Run Release Flow"
    assert played.result is FORWARD


@pytest.mark.parametrize("policy", ALL, ids=name_of)
@pytest.mark.parametrize("error", BREAKS, ids=repr)
def test_a_streamed_refusal_that_breaks_is_seen_to_break(policy: Policy, error: BaseException | None) -> None:
    """D5: nothing was done, and half of an answer is still half of an answer."""
    played = streamed(policy, None, Raised(error), head=HEAD._replace(status=503))
    assert played.names == "Claim Run Release Flow"
    assert broken(played.result, error)
