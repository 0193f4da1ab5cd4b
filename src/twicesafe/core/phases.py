"""The steps of a resumable operation, as generators: they yield what is to be done and are sent what came of it.

A *phase* is one local transaction: its writes, its result and the recovery point are committed together (R24). A *call*
goes to another system, between phases: that it is about to be sent is recorded first, then it is sent under its derived
key, then what came of it is recorded (R25). Nothing is held open while it is sent.

What a crash leaves, and what the next attempt makes of it:

    before a phase's commit     nothing: the phase runs
    COMMIT without an answer    the recovery point says which: read back, never guessed
    before a call is recorded   nothing: it is sent
    after that                  it may have been sent: it is looked up; or sent again under the same key, as long as the
                                other system remembers keys; or else it is held as unknown
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from twicesafe.core.claims import Found
from twicesafe.core.journal import CALL, DONE, LOST, OPEN, PHASE, REJECTED, UNSENT, Entry, Journal, Move
from twicesafe.core.record import Instant, Micros, Ownership
from twicesafe.core.remembered import checked_retention, sending_window
from twicesafe.core.steps import Notice, Read, Wait
from twicesafe.errors import (
    AmbiguousWriteError,
    CallRejectedError,
    CallUnknownError,
    CommitRefusedError,
    ConfigurationError,
    HeldError,
    LeaseLostError,
    StoreError,
    StoreUnavailableError,
)

READ_BACK_ATTEMPTS: Final = 4
ROUNDS: Final = 3
"""How often a phase runs whose commit was lost and provably not made."""
RECORDING_ATTEMPTS: Final = 4
"""A call was carried out; only its entry is missing."""
FIRST_PAUSE: Final[Micros] = 50_000
_MICROSECOND: Final = timedelta(microseconds=1)


# --- what is wanted --------------------------------------------------------------------------------------------------


class BeginPhase(NamedTuple):
    """Open a transaction."""


class RunPhase(NamedTuple):
    """Call the phase's function in it. Sent back: its result, encoded. What it raises ends the phase."""


class Advance(NamedTuple):
    """Move the recovery point, on condition that it is where it was: in the open transaction, or by itself.

    `data` is what comes behind that which belongs to `seen`.
    """

    ownership: Ownership
    seen: str | None
    point: str
    data: bytes


class CommitPhase(NamedTuple):
    """Commit the transaction."""


class Now(NamedTuple):
    """Sent back: the store's now (I12)."""


class Keep(NamedTuple):
    """Make sure that the claim is this attempt's, and for long enough to send. LeaseLostError where it is not."""


class Send(NamedTuple):
    """Send the call, unless it is too late to begin: then it is proved that nothing was sent. Sent back: Sent.

    It is too late where somebody may have taken the claim over, or more than `within` has passed since Now was asked.
    """

    within: Micros | None = None


class LookUp(NamedTuple):
    """Ask the other system what became of it. Sent back: Sent, with `standing` open where it cannot tell."""


class Sent(NamedTuple):
    """What came of a call. `result` is encoded, None where it cannot be kept; `value` is as it came."""

    standing: str
    result: str | None = None
    value: object = None
    error: BaseException | None = None
    unsent: bool = False
    """Proved: it never left."""


class Taken(NamedTuple):
    """What a step comes to: what was recorded before, encoded; or None, and the value as it came."""

    kept: str | None
    value: object = None


PhaseStep: TypeAlias = BeginPhase | RunPhase | Advance | CommitPhase | Now | Keep | Send | LookUp | Read | Wait | Notice
Phases: TypeAlias = Generator[PhaseStep, Any, Taken]


class Progress:
    """One run's journal, and whose it is."""

    def __init__(self, ownership: Ownership, now: Instant, journal: Journal) -> None:
        self.ownership = ownership
        self.claimed_at = now
        self.journal = journal
        self.busy: str | None = None
        """The step that is being taken: there is one at a time."""
        self.broken: BaseException | None = None
        """What ended a step. Nothing is taken after it: the next attempt could come to other steps."""
        self.open_call = False
        """Whether that was a call of which nobody knows what came of it, so that the operation must not end as done."""

    def take(self, name: str, kind: str) -> Entry | None:
        """See Journal.next. ConfigurationError while another step is under way; what broke the run is raised again."""
        if self.broken is not None:
            raise self.broken
        if self.busy is not None:
            raise ConfigurationError(
                f"the step {name!r} begins while {self.busy!r} is under way: steps are taken one after the other"
            )
        try:
            return self.journal.next(name, kind)
        except BaseException as error:
            self.broken = error
            raise

    def check_end(self) -> None:
        """Raises what keeps the operation from ending with a result."""
        if self.busy is not None:
            raise ConfigurationError(f"the operation ended while its step {self.busy!r} was under way")
        if self.broken is not None and (self.open_call or not isinstance(self.broken, Exception)):
            raise self.broken
        if isinstance(self.broken, HeldError | StoreError) and not isinstance(self.broken, CommitRefusedError):
            # Held, lost, or committed for all that anybody knows here: no answer that hides it is the outcome.
            raise self.broken
        if self.broken is None:
            self.journal.check_end()


# --- a phase ---------------------------------------------------------------------------------------------------------


def phase(progress: Progress, name: str) -> Phases:
    """Run a phase, or give what it gave. Whatever its function raises passes through, with nothing committed.

    Unless the operation is somebody else's by then: what the function met may be what they did, and is no outcome.
    """
    entry = progress.take(name, PHASE)
    if entry is not None:
        return Taken(entry.result)
    progress.busy = name
    try:
        for _ in range(ROUNDS):
            yield BeginPhase()
            try:
                result, value = yield RunPhase()
            except Exception as error:
                yield from _check_own(progress, error)
                raise
            entry = Entry(name, PHASE, DONE, result)
            if (yield from _committed(progress, progress.journal.move(entry))):
                progress.journal.add(entry)
                return Taken(None, value)
        raise StoreUnavailableError(
            f"the phase {name!r} was rolled back {ROUNDS} times: the operation is resumed later"
        )
    except BaseException as error:
        progress.broken = error
        raise
    finally:
        progress.busy = None


def _check_own(progress: Progress, error: Exception) -> Generator[PhaseStep, Any, None]:
    """LeaseLostError where the claim is another's by now. A store that cannot tell says nothing against `error`."""
    try:
        found = yield Read(progress.ownership.digest)
    except StoreError:
        return
    assert type(found) is Found, found
    if found.record is None or found.record.ownership != progress.ownership:
        raise LeaseLostError("the operation went on elsewhere while a phase of this run failed") from error


def _committed(progress: Progress, move: Move) -> Generator[PhaseStep, Any, bool]:
    """Whether it was; False where it provably was not, and the phase is to run again."""
    try:
        yield _moving(progress, move)
        yield CommitPhase()
    except AmbiguousWriteError as error:
        yield Notice("commit.unknown", loud=True, error=error)
        return (yield from _read_back(progress, move, error))
    return True


def _read_back(progress: Progress, move: Move, error: AmbiguousWriteError) -> Generator[PhaseStep, Any, bool]:
    """The answer to a write of the recovery point was lost. Where the point stands says whether it was made."""
    own, pause = progress.ownership, FIRST_PAUSE
    for attempt in range(READ_BACK_ATTEMPTS):
        if attempt:
            yield Wait(pause)
            pause *= 2
        try:
            found = yield Read(own.digest)
        except StoreUnavailableError:
            continue
        assert type(found) is Found, found
        record = found.record
        if record is None or record.ownership != own:
            raise LeaseLostError("the operation went on elsewhere while the answer to a commit was lost")
        if record.recovery_point == move.point:
            return True
        if record.recovery_point == progress.journal.point:
            return False
        raise LeaseLostError("the operation's recovery point is not where this run left it")
    raise StoreUnavailableError(
        "the answer to a commit was lost and the store cannot be reached: the operation is resumed later"
    ) from error


def _moving(progress: Progress, move: Move) -> Advance:
    return Advance(progress.ownership, progress.journal.point, move.point, move.addition)


def _record(progress: Progress, entry: Entry, attempts: int = 1) -> Generator[PhaseStep, Any, None]:
    """Move the recovery point by itself, to an entry of a call."""
    move, pause = progress.journal.move(entry), FIRST_PAUSE
    for left in reversed(range(attempts)):
        try:
            yield _moving(progress, move)
            break
        except AmbiguousWriteError as error:
            if (yield from _read_back(progress, move, error)):
                break
            met: StoreError = error
        except StoreUnavailableError as error:
            met = error
        if not left:
            raise met
        yield Wait(pause)
        pause *= 2
    progress.journal.add(entry)


# --- a call ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallContract:
    """What is known of the other system. `remembers` None: it remembers no keys, so nothing is ever sent twice.

    It is told from when the call was first sent. A request that can be under way for longer than a minute asks for a
    `remembers` that is shorter by that.
    """

    remembers: timedelta | None = None
    looks_up: bool = False

    def __post_init__(self) -> None:
        checked_retention("remembers", self.remembers)

    def may_send_again(self, first_sent: Instant, now: Instant) -> bool:
        """Whether what is sent now arrives while the other system still knows the key of what was first sent then."""
        return self.left(first_sent, now) > 0

    def left(self, first_sent: Instant, now: Instant) -> Micros:
        """For how long from now on the same may be sent again; 0 or less where it may not be."""
        if self.remembers is None:
            return 0
        return sending_window(self.remembers) // _MICROSECOND - (now - first_sent)


def call(progress: Progress, name: str, contract: CallContract) -> Phases:
    """Make a call, or give what it gave. CallRejectedError, CallUnknownError, or what sending raised."""
    entry = progress.take(name, CALL)
    progress.busy = name
    try:
        if entry is None or entry.standing == OPEN:
            return (yield from _call(progress, name, contract, entry))
    except BaseException as error:
        last = progress.journal.entries[-1:]
        # By what is recorded: another operation's rejection, raised while this call is sent, is none of this one.
        if not (isinstance(error, CallRejectedError) and last and last[0][:3] == (name, CALL, REJECTED)):
            progress.broken = error
            progress.open_call = any(found.standing == OPEN and found.result != UNSENT for found in last)
        raise
    finally:
        progress.busy = None
    if entry.standing == REJECTED:
        raise CallRejectedError(entry.result)
    if entry.standing == LOST:
        progress.broken = CallUnknownError(f"the call {name!r} was carried out, and its result could not be kept")
        raise progress.broken
    return Taken(entry.result)


def _call(progress: Progress, name: str, contract: CallContract, before: Entry | None) -> Phases:
    sent, at, never_sent = None, progress.claimed_at, True
    if before is not None and before.result != UNSENT:
        # An earlier attempt may have sent it.
        sent = yield from _looked_up(contract)
        if sent is not None and sent.unsent:
            sent = None
        else:
            at, never_sent = before.at, False
    if sent is None:
        # As long as it is this attempt's, nobody else can have sent it, or found that it was not sent, in between.
        yield Keep()
        # Also where it stands there already: finding out takes time, and who lost the claim meanwhile sends nothing.
        yield from _record(progress, Entry(name, CALL, OPEN, "", at))
        within = None if never_sent else (yield from _window_left(name, contract, at))
        sent = yield Send(within)
    assert type(sent) is Sent, sent
    return (yield from _settled(progress, name, at, sent, never_sent=never_sent))


def _looked_up(contract: CallContract) -> Generator[PhaseStep, Any, Sent | None]:
    """What the other system knows of it; None where it cannot tell, or cannot be asked."""
    if not contract.looks_up:
        return None
    found = yield LookUp()
    assert type(found) is Sent, found
    return found if found.standing != OPEN or found.unsent else None


def _window_left(name: str, contract: CallContract, first_sent: Instant) -> Generator[PhaseStep, Any, Micros]:
    """For how long the same may be sent again. CallUnknownError where it may not. The clock is read last of all: what
    is slow is over then."""
    if contract.remembers is not None and (left := contract.left(first_sent, (yield Now()))) > 0:
        return left
    yield Notice("call.unknown", loud=True)
    why = "remembers no keys"
    if contract.looks_up:
        why = "cannot tell"
    elif contract.remembers is not None:
        why = "may no longer remember its key"
    raise CallUnknownError(
        f"the call {name!r} may have been carried out, and the other system {why}: it is not sent again. Settle the "
        "operation once you know"
    )


def _settled(progress: Progress, name: str, at: Instant, sent: Sent, *, never_sent: bool) -> Phases:
    """Record what came of it. `never_sent`: no earlier attempt sent it either."""
    if sent.standing == DONE:
        kept = Entry(name, CALL, DONE if sent.result is not None else LOST, sent.result or "", at)
        yield from _record(progress, kept, RECORDING_ATTEMPTS)
        return Taken(None, sent.value)
    if sent.standing == REJECTED:
        yield from _record(progress, Entry(name, CALL, REJECTED, sent.result or "", at), RECORDING_ATTEMPTS)
        raise CallRejectedError(sent.result or "") from sent.error
    assert sent.error is not None
    if sent.unsent and never_sent:
        # Not even begun: the next attempt may send it, whatever the other system remembers.
        yield from _record(progress, Entry(name, CALL, OPEN, UNSENT, at))
    raise sent.error


__all__ = [
    "Advance", "BeginPhase", "CallContract", "CommitPhase", "Keep", "LookUp", "Now", "PhaseStep", "Phases", "Progress",
    "RunPhase", "Send", "Sent", "Taken", "call", "phase",
]  # fmt: skip
