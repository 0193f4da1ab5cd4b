"""The exchange when an answer says that the attempt failed and another one is to run."""

from __future__ import annotations

import pytest

from tests.core.records import NOW, record
from tests.core.script import ALL, KEYED, OPAQUE, OWN, RESUMABLE, TRANSACTIONAL, name_of, play, started, won
from twicesafe.core.capture import Responded
from twicesafe.core.claims import Existing
from twicesafe.core.lifecycle import Verdict
from twicesafe.core.policy import Policy
from twicesafe.core.steps import FORWARD, Hold, Release, Renew

FAILED = Responded(500, ((b"content-type", b"text/plain"),), b"failed", entered=True)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("policy", "step", "told"),
    [
        (TRANSACTIONAL, Release(OWN), ""),
        (KEYED, Renew(OWN, 1), ""),
        (RESUMABLE, Renew(OWN, 1), ""),
        (OPAQUE, Hold(OWN), "outcome.unknown!"),
    ],
)
def test_what_the_operation_declares_decides_about_another_run(
    policy: Policy, step: object, told: str, *, streaming: bool
) -> None:
    """R13, R15, I6: the first caller gets the failure; the retry runs again where nothing is left or derived keys hold,
    and opaque work is held as unknown."""
    failed = FAILED._replace(streaming=streaming)
    script = (None, FAILED) if streaming else (None,)
    played = play(started(policy.but(rerun=frozenset({500}))), won(), failed, *script)
    assert step in played.steps
    assert "Complete" not in played.names and "StartAnswer" not in played.names
    assert played.told == told
    assert played.result is FORWARD


@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_other_failures_are_recorded(policy: Policy) -> None:
    """R15: what the policy does not name is stored as ever."""
    played = play(started(policy.but(rerun=frozenset({502}))), won(), FAILED, None)
    assert played.names == "Claim Run Complete"


@pytest.mark.parametrize("policy", ALL, ids=name_of)
def test_refusals_have_the_statuses_of_the_policy(policy: Policy) -> None:
    """R21: vendors differ in the status of a mismatch and of a duplicate that comes too early."""
    other = policy.but(mismatch_status=400, in_progress_status=423)
    assert play(started(other), Existing(Verdict.MISMATCH, record(), NOW)).result.status == 400
    assert play(started(other), Existing(Verdict.IN_PROGRESS, record(), NOW)).result.status == 423
