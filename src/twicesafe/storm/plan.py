"""What will break, drawn from a seed before anything starts. The same seed and size give the same plan.

The plan says what happens to which attempt at which intent, and at which points of progress a server is killed or the
database restarted. When each of it happens is the machine's affair: scheduling is not part of the plan.

A fault that could not be carried out (the attempt reached no server, or the answer to be dropped was no success) stays
at the head of its intent's queue and meets the next attempt. Nothing is counted but what was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple


class Fault(StrEnum):
    """What can happen to one attempt."""

    RESET_BEFORE = "reset_before"
    """The connection is reset before a byte reached a server."""
    RESET_MIDWAY = "reset_midway"
    """The connection is reset when half of the request's body has reached a server."""
    RESET_AFTER = "reset_after"
    """The connection is reset when the whole request has reached a server, which is left working for nobody."""
    ANSWER_DROPPED = "answer_dropped"
    """The server did the work, committed and answered; the connection is reset instead of passing the answer on."""
    ANSWER_CUT = "answer_cut"
    """Half of such an answer is passed on, then the connection ends."""
    ANSWER_DELAYED = "answer_delayed"
    """Such an answer is kept back until the client's time-out."""
    SLOW_HANDLER = "slow_handler"
    """The handler takes longer than the client's time-out."""
    KILL_AFTER_CLAIM = "sigkill_after_claim"
    """The server kills itself when its handler is entered: claimed, nothing done."""
    KILL_AFTER_EFFECT = "sigkill_after_effect"
    """The server kills itself when the payment is written, not committed."""
    KILL_AFTER_COMMIT = "sigkill_after_commit"
    """The server kills itself when the first byte of its answer would leave."""
    KILL_BEFORE_SEND = "sigkill_before_send"
    """The server kills itself when a call is written down and about to be sent."""
    KILL_AFTER_SEND = "sigkill_after_send"
    """The server kills itself when a call was answered, which is not written down."""
    KILL_AFTER_DELIVERY = "sigkill_after_delivery"
    """The relay kills itself when an event was acknowledged, which is not written down."""
    HANDLER_FAILS = "handler_fails"
    """The handler fails after its effect, which is not committed."""


HANDLER_KILLS: Final = (Fault.KILL_AFTER_CLAIM, Fault.KILL_AFTER_EFFECT, Fault.KILL_AFTER_COMMIT)
CALL_KILLS: Final = (Fault.KILL_BEFORE_SEND, Fault.KILL_AFTER_SEND)
DELIVERY_ONLY: Final = (Fault.KILL_AFTER_DELIVERY, Fault.HANDLER_FAILS)
"""What only events and those who bring them meet."""
KILL_POINTS: Final = HANDLER_KILLS + CALL_KILLS
"""Where a server can be armed to kill itself: any of them, and one whose operation makes calls."""

SERVER_FAULTS: Final = frozenset({Fault.SLOW_HANDLER, Fault.HANDLER_FAILS, *KILL_POINTS})
"""Faults that the server itself carries out, told so in a header that the proxy adds."""

FAULT_HEADER: Final = "storm-fault"
KEY_HEADER: Final = "idempotency-key"
"""Says whose request it is, unless another header does."""

_COMMON: Final = (
    (Fault.ANSWER_DROPPED, 6),
    (Fault.ANSWER_CUT, 2),
    (Fault.ANSWER_DELAYED, 2),
    (Fault.RESET_BEFORE, 2),
    (Fault.RESET_MIDWAY, 2),
    (Fault.RESET_AFTER, 3),
)
"""Weights of the faults that any attempt may meet. A lost answer is the classic, so it comes most often."""

TIMEOUTS: Final = frozenset({Fault.SLOW_HANDLER, Fault.ANSWER_DELAYED})
"""Faults that last until the client gives up."""

_FIRST_FAULT: Final = 0.4
"""The share of intents whose first attempt meets a common fault."""
_NEXT_FAULT: Final = 0.3
"""The share of those whose next attempt meets one more."""
_PARALLEL: Final = 0.15
"""The share of intents sent two to four times at once."""
_INTENTS_PER_SLOW_HANDLER: Final = 60
_INTENTS_PER_KILL: Final = 100
_INTENTS_PER_RESTART: Final = 500
_LEAST_KILLS: Final = 5
_LEAST_KILLS_STEPWISE: Final = 3
"""Where others are killed as well, and servers at more points."""
_INTENTS_PER_KILL_BESIDE: Final = 200
"""Of a worker, and of the provider."""
_INTENTS_PER_KILL_OF_EVENTS: Final = 200
"""Of a relay, and of the consumer."""
_LEAST_KILLS_BESIDE: Final = 2
_ABANDONED: Final = 0.1
"""The share of operations of several steps that are asked for once, and then left to the workers."""


class Planned(NamedTuple):
    """A fault and the seconds it waits before it strikes, where it can wait (RESET_AFTER)."""

    fault: Fault
    delay: float


@dataclass(frozen=True, slots=True)
class Intent:
    """One payment somebody wants, once. `faults` meet its attempts in order; `copies` of it are sent in parallel.

    An `impatient` client waits less for each answer, because it is to meet a time-out. One whose intent is `abandoned`
    asks once, and again when all is calm.
    """

    number: int
    account: str
    amount: str
    copies: int
    impatient: bool
    faults: tuple[Planned, ...]
    abandoned: bool = False


class BlowKind(StrEnum):
    """What befalls everybody."""

    SIGKILL = "sigkill"
    DATABASE_RESTART = "database_restart"
    """The database is stopped in good order, and started again."""
    DATABASE_CRASH = "database_crash"
    """The database goes down with whatever it was doing, and has to recover when it is started again."""
    SIGKILL_WORKER = "sigkill_worker"
    SIGKILL_PROVIDER = "sigkill_provider"
    SIGKILL_RELAY = "sigkill_relay"
    SIGKILL_CONSUMER = "sigkill_consumer"
    SPELL = "spell"
    """Of bad weather, whose number is the victim's. What it was is the weather's to count."""


BESIDE: Final = (BlowKind.SIGKILL_WORKER, BlowKind.SIGKILL_PROVIDER)
"""What befalls those only whom an operation of several steps has beside its servers."""

WITH_OUTBOX: Final = (BlowKind.SIGKILL_CONSUMER, BlowKind.SIGKILL_RELAY)
"""What befalls those only who bring and get events."""

PARALLEL_DUPLICATE: Final = "parallel_duplicate"
"""A further copy of an intent, sent at the same time as the first."""

KINDS: Final = tuple(
    sorted(
        {*Fault, *BlowKind, PARALLEL_DUPLICATE} - {*CALL_KILLS, *BESIDE, *DELIVERY_ONLY, *WITH_OUTBOX, BlowKind.SPELL}
    )
)
"""What a report counts. Those named after SIGKILL's are among `sigkill` too."""

STEPWISE_KINDS: Final = tuple(sorted({*KINDS, *CALL_KILLS, *BESIDE}))
"""The same for an operation of several steps. What the provider did is counted beside, and so is what befell events."""


class Blow(NamedTuple):
    """`kind` happens `delay` seconds after `after` intents are done.

    It is over before intent number `before` begins, so it always happens while there is work.
    """

    kind: BlowKind
    after: int
    before: int
    victim: int
    delay: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will happen, in advance."""

    seed: int
    intents: tuple[Intent, ...]
    blows: tuple[Blow, ...]


def draw(seed: int, intents: int, *, stepwise: bool = False, with_outbox: bool = False) -> Plan:
    """The plan of a storm over `intents` intents.

    `stepwise`: each is an operation of several steps and calls. `with_outbox`: each leaves an event.
    """
    random = Random(seed)  # noqa: S311 - a plan is to be repeated, not kept secret
    special = _special(random, intents, KILL_POINTS if stepwise else HANDLER_KILLS)
    wanted = [_intent(random, number, special.get(number)) for number in range(intents)]
    least = _LEAST_KILLS_STEPWISE if stepwise else _LEAST_KILLS
    kinds = [BlowKind.SIGKILL] * max(least, intents // _INTENTS_PER_KILL)
    for kind in (BlowKind.DATABASE_RESTART, BlowKind.DATABASE_CRASH):
        kinds += [kind] * max(1, intents // _INTENTS_PER_RESTART)
    if stepwise:
        for kind in BESIDE:
            kinds += [kind] * max(_LEAST_KILLS_BESIDE, intents // _INTENTS_PER_KILL_BESIDE)
        wanted = [_perhaps_abandoned(random, intent) for intent in wanted]
    if with_outbox:
        for kind in WITH_OUTBOX:
            kinds += [kind] * max(_LEAST_KILLS_BESIDE, intents // _INTENTS_PER_KILL_OF_EVENTS)
    return Plan(seed, tuple(wanted), _blows(random, intents, kinds))


def _perhaps_abandoned(random: Random, intent: Intent) -> Intent:
    # An armed server is to die of the attempt that was meant for it, and clients that are many abandon nothing.
    armed = any(planned.fault in KILL_POINTS for planned in intent.faults)
    given_up = random.random() < _ABANDONED and not armed and intent.copies == 1
    return replace(intent, abandoned=given_up)


def _special(random: Random, intents: int, points: Sequence[Fault]) -> dict[int, Fault]:
    """Which intents meet the costly faults on their first attempt: exact numbers, random places."""
    slow = [Fault.SLOW_HANDLER] * max(1, intents // _INTENTS_PER_SLOW_HANDLER)
    kills = list(points) * max(1, intents // (len(points) * _INTENTS_PER_KILL))
    costly = (kills + slow)[:intents]
    return dict(zip(random.sample(range(intents), len(costly)), costly, strict=True))


def _intent(random: Random, number: int, special: Fault | None) -> Intent:
    faults = [] if special is None else [Planned(special, 0.0)]
    chance = _FIRST_FAULT if special is None else _NEXT_FAULT
    while random.random() < chance:
        faults.append(Planned(_weighted(random), random.uniform(0.0, 0.03)))
        chance = _NEXT_FAULT
    parallel = random.random() < _PARALLEL
    # Alone, an attempt that is to die under way surely gets that far.
    copies = random.randint(2, 4) if parallel and special is None else 1
    amount = f"{random.randint(1, 500)}.{random.randint(0, 99):02d}"
    account = f"account-{random.randint(1, 50)}"
    impatient = any(planned.fault in TIMEOUTS for planned in faults)
    return Intent(number, account, amount, copies, impatient, tuple(faults))


def _weighted(random: Random) -> Fault:
    names: Sequence[Fault] = [fault for fault, _ in _COMMON]
    return random.choices(names, [weight for _, weight in _COMMON])[0]


def _blows(random: Random, intents: int, kinds: list[BlowKind]) -> tuple[Blow, ...]:
    random.shuffle(kinds)
    count = len(kinds)
    blows = []
    for index, kind in enumerate(kinds):
        # Spread over the first nine tenths of the work, each somewhere in its own stretch.
        after = int(intents * 0.9 * (index + random.random()) / count)
        before = max(0, intents - (count - index))
        blows.append(Blow(kind, min(after, before), before, random.randrange(1000), random.uniform(0.0, 0.05)))
    return tuple(blows)
