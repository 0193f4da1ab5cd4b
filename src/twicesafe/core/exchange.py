"""The server side of one keyed request, as a generator: it yields what is to be done and is sent what happened.

Shells perform, this decides. A driver is a loop of a dozen lines: perform the step, `send()` its result, or `throw()`
the StoreError it met. Closing the generator at any yield loses nothing that the store does not know: what happens then
is lifecycle.AFTER_CRASH.

The order of the house: claim, run, record, send. Nothing after the run ever leads to a second run by this exchange.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol

from twicesafe.core.capture import Raised, Responded
from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.duplicates import answer_for, problem_answer
from twicesafe.core.lifecycle import Verdict, decide
from twicesafe.core.policy import REFUSED_BEFORE_WORK, Policy
from twicesafe.core.record import Effects, Micros, Ownership, StoredResponse
from twicesafe.core.replay import is_longer, pointers, remembered
from twicesafe.core.steps import (
    FLOW,
    FORWARD,
    Answer,
    Begin,
    Commit,
    Complete,
    Exchange,
    Forward,
    Hold,
    Notice,
    Propagate,
    Read,
    Release,
    Renew,
    Result,
    Run,
    StartAnswer,
    Step,
    Wait,
)
from twicesafe.errors import AmbiguousWriteError, CommitRefusedError, HeldError, LeaseLostError, SchemaError, StoreError

RECORDING_ATTEMPTS: Final = 4
"""The work is done; only its record is missing. 4 tries over some 0.35 s ride out a failover of a pooled connection."""
CLAIM_ATTEMPTS: Final = 6
"""Once a claim may stand: 6 tries over some 1.5 s, for one that is left behind blocks its key."""
FIRST_EPOCH: Final = 1
"""Of a key that nobody has claimed before, which is most of them."""
FIRST_PAUSE: Final[Micros] = 50_000
SHORTEST_PAUSE: Final[Micros] = 10_000
LONGEST_PAUSE: Final[Micros] = 500_000
AT_ONCE: Final[Micros] = 1
"""A lease cannot last nothing."""


class Queue(Protocol):
    """Where duplicates wait for what becomes of a first attempt."""

    def queue(self, scope: str, /) -> bool:
        """Whether there is a place for this caller; if so, it is taken until `leave_queue`."""

    def leave_queue(self, scope: str, /) -> None:
        """Give it back."""


def exchange(claim: Claim, policy: Policy, usual_us: Micros = 0, queue: Queue | None = None) -> Exchange:
    """One request from claim to answer. `usual_us`: how long this operation usually takes, 0 where not known yet.

    A duplicate waits where `queue` has a place for it; None has one for everybody.
    """
    waited = failures = 0
    ambiguous = queued = False
    pause = FIRST_PAUSE // 2
    try:
        while True:
            try:
                found = yield claim
            except StoreError as error:
                # Once the claim may stand, giving up would leave it to block its key, and an opaque one to end as
                # unknown: ask again. The store recognises its own owner token.
                failures += 1
                ambiguous = ambiguous or isinstance(error, AmbiguousWriteError)
                if ambiguous and failures < CLAIM_ATTEMPTS:
                    yield Wait(FIRST_PAUSE << (failures - 1))
                    continue
                if ambiguous and claim.effects is not Effects.TRANSACTIONAL:
                    yield from _disown(claim)
                return (yield from no_store("store.unavailable", error, policy))
            if type(found) is Claimed:
                break
            assert type(found) is Existing, found
            if found.verdict is Verdict.IN_PROGRESS and waited < policy.wait_us:
                if queue is not None and not queued:
                    queued = queue.queue(claim.scope)
                if queue is None or queued:
                    step = min(pause, policy.wait_us - waited)
                    passed = yield Wait(step, claim.digest, policy.wait_us - waited)
                    # A store that wakes its waiters for nothing is still not asked for ever.
                    waited += max(passed, SHORTEST_PAUSE) if isinstance(passed, int) else step
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
            verdict, record, now = found
            yield _NOTICES[verdict]
            return answer_for(verdict, record, now, policy, usual_us)
    finally:
        if queued:
            assert queue is not None
            queue.leave_queue(claim.scope)
    own, _, previous = found
    if previous is not None:
        yield Notice("claim.taken_over")
    outcome = yield Run(own, previous)
    if type(outcome) is Raised:
        return (yield from _raised(claim, policy, found, outcome, usual_us))
    assert type(outcome) is Responded, outcome
    status, headers, body, entered, repeatable, streaming = outcome
    if streaming:
        return (yield from _stream(claim, policy, found, outcome, usual_us))
    if _nothing_done(status, entered, repeatable, policy):
        yield from _let_go(claim, found)
        return FORWARD
    if status in policy.rerun:
        yield from _open_again(claim, own)
        return FORWARD
    response = _kept(StoredResponse(status, remembered(headers, policy.forgotten), body), policy)
    recording = Complete(own, response, policy.key_us, policy.body_us, policy.keeps_effects(status))
    try:
        # As _complete does; not by it, because every first request comes this way.
        yield recording
    except StoreError as error:
        return (yield from _not_recorded(claim, policy, recording, FORWARD, error, usual_us))
    return FORWARD


def unkeyed(policy: Policy) -> Exchange:
    """A request to a transactional operation that sent no key: nothing is claimed or recorded, the effects are one
    transaction all the same, kept or rolled back by the rule that holds under a key."""
    try:
        yield Begin()
    except StoreError as error:
        return Propagate(error)
    outcome = yield Run(None, None)
    if type(outcome) is Raised:
        return Propagate(outcome.error if outcome.error is not None else IncompleteAnswerError())
    assert type(outcome) is Responded, outcome
    status, _, _, entered, repeatable, _ = outcome
    if policy.keeps_effects(status) and not _nothing_done(status, entered, repeatable, policy):
        try:
            yield Commit()
        except StoreError as error:
            return Propagate(error)
    return _flowed((yield FLOW)) if outcome.streaming else FORWARD


def _kept(response: StoredResponse, policy: Policy) -> StoredResponse:
    """As it is remembered. Without its header lines a body is not what was sent, so it goes with them (R18)."""
    if not is_longer(response.headers, policy.header_limit):
        return response
    found = pointers(response.headers)
    return StoredResponse(response.status, () if is_longer(found, policy.header_limit) else found, None)


def _nothing_done(status: int, entered: bool | None, repeatable: bool, policy: Policy) -> bool:  # noqa: FBT001 - as they stand in Responded
    """R15: whether this answer says that the handler did nothing, so that the key stays free."""
    if repeatable or status in policy.released or status in policy.repeatable:
        return True
    if entered is None:
        return status in REFUSED_BEFORE_WORK
    # Whatever its status: a router's redirect, stored, would make the redirected request a key that was used before.
    return not entered


def _complete(
    claim: Claim, policy: Policy, own: Ownership, response: StoredResponse, result: Result, usual_us: Micros
) -> Exchange:
    """Record, and only then let `result` be sent."""
    step = Complete(own, response, policy.key_us, policy.body_us, policy.keeps_effects(response.status))
    try:
        yield step
    except StoreError as error:
        return (yield from _not_recorded(claim, policy, step, result, error, usual_us))
    return result


def _not_recorded(
    claim: Claim, policy: Policy, step: Complete, result: Result, error: StoreError, usual_us: Micros
) -> Exchange:
    """The first try at recording met `error`. Never run twice because recording failed."""
    if claim.effects is Effects.TRANSACTIONAL and not isinstance(error, LeaseLostError):
        if isinstance(error, AmbiguousWriteError):
            return (yield from _commit_unknown(claim, policy, step.ownership, result, error))
        # The transaction is gone and its effects with it.
        if isinstance(error, CommitRefusedError):
            return Propagate(error)
        return (yield from no_store("recording.failed", error, policy))
    try:
        if isinstance(error, LeaseLostError):
            raise error
        if not (yield from _insist(step, error)):
            # What a resumable operation has done stands in its journal: whoever goes on with it, a retry or a worker,
            # does none of it again and comes to the same answer. Of any other nobody knows.
            resumable = claim.effects is Effects.RESUMABLE
            yield from _try(Renew(step.ownership, AT_ONCE) if resumable else Hold(step.ownership))
    except LeaseLostError as lost:
        yield Notice("lease.lost", loud=True, error=lost)
        return (yield from _superseded(claim, policy, result, usual_us))
    return result


def _insist(step: Complete | StartAnswer, met: StoreError | None = None) -> Generator[Step, object, bool]:
    """Whether a write of the leased way stands after a few tries; made twice it is made once. LeaseLostError is raised.

    `met` is what a first try met already. A failure is told: the work may be done, and the store does not know.
    """
    failures = 0 if met is None else 1
    while failures < RECORDING_ATTEMPTS:
        if failures:
            yield Wait(FIRST_PAUSE << (failures - 1))
        try:
            yield step
        except LeaseLostError:
            raise
        except StoreError as error:
            met = error
            failures += 1
        else:
            return True
    yield Notice("recording.failed", loud=True, error=met)
    return False


def _superseded(claim: Claim, policy: Policy, result: Result, usual_us: Micros) -> Exchange:
    """The claim went to somebody else while this handler ran. There is one answer to an intent, and it is theirs."""
    error = result.error if type(result) is Answer else None
    try:
        found = yield Read(claim.digest)
        assert type(found) is Found, found
        verdict = decide(found.record, claim.fingerprint, b"", found.now)
    except StoreError:
        return problem_answer("outcome-unknown", policy)._replace(error=error)
    if verdict is Verdict.FREE:
        # Nobody remembers the key any more. A transaction was rolled back; otherwise the work was done here.
        return (
            problem_answer("store-unavailable", policy, retry_after=1)
            if claim.effects is Effects.TRANSACTIONAL
            else result
        )
    if verdict in (Verdict.TAKE_OVER, Verdict.HOLD, Verdict.SETTLE, Verdict.MISMATCH):
        verdict = Verdict.UNKNOWN
    return answer_for(verdict, found.record, found.now, policy, usual_us)._replace(error=error)


def _commit_unknown(claim: Claim, policy: Policy, own: Ownership, result: Result, error: StoreError) -> Exchange:
    """COMMIT was sent and its answer lost: the row, if it is there, carries my owner token (I1)."""
    yield Notice("commit.unknown", loud=True, error=error)
    pause = FIRST_PAUSE
    for attempt in range(1, RECORDING_ATTEMPTS + 1):
        try:
            found = yield Read(claim.digest)
        except StoreError:
            found = None
        if type(found) is Found and found.record is not None and found.record.owner == own.owner:
            return result
        if attempt < RECORDING_ATTEMPTS:
            yield Wait(pause)
            pause *= 2
    return problem_answer("commit-unknown", policy, retry_after=1)


def _raised(claim: Claim, policy: Policy, won: Claimed, outcome: Raised, usual_us: Micros) -> Exchange:
    own = won.ownership
    error = outcome.error if outcome.error is not None else IncompleteAnswerError()
    if outcome.entered is False:
        yield from _let_go(claim, won)
        return Propagate(error)
    torn = not isinstance(error, Exception) or outcome.error is None
    if claim.effects is not Effects.OPAQUE or torn or policy.unknown_on_error:
        # Torn out of its work, or out of its answer: it may have done it.
        yield from _open_again(claim, own, held=isinstance(error, HeldError))
        return Propagate(error)
    status, headers, body = policy.problem("handler-failed")
    response = StoredResponse(status, headers, body)
    answer = Answer(status, headers, body, "handler-failed", error)
    return (yield from _complete(claim, policy, own, response, answer, usual_us))


def _let_go(claim: Claim, won: Claimed) -> Generator[Step, object, None]:
    """This attempt did nothing. An earlier one, which this took over from, may have: then the key keeps its request."""
    if won.previous is None:
        yield from _try(Release(won.ownership))
    else:
        yield from _open_again(claim, won.ownership)


def _open_again(claim: Claim, own: Ownership, *, held: bool = False) -> Generator[Step, object, None]:
    """The attempt failed, entered as it was: what the operation declares of its effects decides about another (R13)."""
    if claim.effects is Effects.TRANSACTIONAL:
        yield from _try(Release(own))
    elif claim.effects is not Effects.OPAQUE and not held:
        # Run again, by whoever asks next. But something may have happened: under the derived keys that a provider has
        # seen no other request may run (I4), no longer than it remembers them (R25), and recovery points stay.
        yield from _try(Renew(own, AT_ONCE))
    else:
        yield Notice("outcome.unknown", loud=True)
        yield from _try(Hold(own))


def _stream(claim: Claim, policy: Policy, won: Claimed, head: Responded, usual_us: Micros) -> Exchange:
    """The body flows live. What retries get is recorded before its first byte: done, body not kept (I11, R18)."""
    own = won.ownership
    if _nothing_done(head.status, head.entered, head.repeatable, policy):
        yield from _let_go(claim, won)
        return _flowed((yield FLOW))
    if head.status in policy.rerun:
        yield from _open_again(claim, own)
        return _flowed((yield FLOW))
    lines = remembered(head.headers, policy.forgotten)
    begun = _kept(StoredResponse(head.status, lines, None), policy)
    if claim.effects is Effects.TRANSACTIONAL:
        result = yield from _complete(claim, policy, own, begun, FORWARD, usual_us)
        return _flowed((yield FLOW)) if result is FORWARD else result
    try:
        yield from _insist(StartAnswer(own, begun))
    except LeaseLostError as lost:
        yield Notice("lease.lost", loud=True, error=lost)
        return (yield from _superseded(claim, policy, FORWARD, usual_us))
    end = yield FLOW
    if type(end) is Raised and not end.client_gone:
        yield Notice("outcome.unknown", loud=True)
        yield from _try(Hold(own))
    else:
        assert type(end) is Responded or type(end) is Raised, end
        # Cut short for want of a reader, it is done as it is after a crash here: its body is not kept.
        body = end.body if type(end) is Responded and begun.headers == lines else None
        # Whatever comes of it, the answer has been sent.
        yield from _complete(claim, policy, own, begun._replace(body=body), FORWARD, usual_us)
    return _flowed(end)


def _flowed(end: object) -> Forward | Propagate:
    """The result of an answer that has been sent as it came. A broken one has to be seen to be broken, if it can be."""
    if type(end) is Raised and not end.client_gone:
        return Propagate(end.error if end.error is not None else IncompleteAnswerError())
    return FORWARD


def _try(step: Release | Renew | Hold) -> Generator[Step, object, None]:
    """A step whose failure changes nothing for the caller: the lease ends, and lifecycle.AFTER_CRASH decides."""
    try:
        yield step
    except LeaseLostError as error:
        yield Notice("lease.lost", loud=True, error=error)
    except StoreError as error:
        yield Notice("recording.failed", loud=True, error=error)


def _disown(claim: Claim) -> Generator[Step, object, None]:
    """Nothing ran under this claim, which may stand. Where it cannot be taken back, lifecycle.AFTER_CRASH decides."""
    try:
        yield Release(Ownership(claim.digest, claim.owner, FIRST_EPOCH))
    except StoreError:
        # Told already: why the claim failed.
        return


def no_store(name: str, error: StoreError, policy: Policy) -> Exchange:
    """Nothing was done, for want of a store. Asking again does not make tables."""
    if isinstance(error, SchemaError):
        yield Notice("store.misconfigured", loud=True, error=error)
        return problem_answer("store-misconfigured", policy)
    yield Notice(name, loud=True, error=error)
    return problem_answer("store-unavailable", policy, retry_after=1)


# --- answers ---------------------------------------------------------------------------------------------------------

_NOTICES: Final = {
    Verdict.REPLAY: Notice("replayed"),
    Verdict.GONE: Notice("replayed.without_body"),
    Verdict.IN_PROGRESS: Notice("conflict"),
    Verdict.MISMATCH: Notice("mismatch"),
    Verdict.UNKNOWN: Notice("outcome.unknown"),
}


class IncompleteAnswerError(RuntimeError):
    """The handler returned without finishing its answer."""

    def __init__(self) -> None:
        super().__init__("the application returned without completing its response")
