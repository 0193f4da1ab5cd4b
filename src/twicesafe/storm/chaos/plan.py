"""What befalls one storm of the lab, drawn from its seed before anything starts.

A storm's intents are split among its spells of bad weather. A spell begins when some of its share are done, and no
intent of the next share begins before it is over: every spell meets work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from twicesafe.storm.plan import KILL_POINTS, Blow, BlowKind, Fault, Intent, Plan, Planned
from twicesafe.storm.plan import draw as draw_storm


class Trouble(StrEnum):
    """What can be asked for."""

    KILLS = "kills"
    """Servers, workers and the provider are killed; the database is restarted, and crashes."""
    CUT = "cut"
    """Nothing passes between servers and database, or nothing passes back, or connections are reset on one side."""
    SLOW_LINK = "slow-link"
    """It passes late, and some of it is lost on the way."""
    DISK_FULL = "disk-full"
    """There is no room left on the database's disk."""
    SLOW_DISK = "slow-disk"
    """What is flushed to the database's disk takes its time."""
    APP_CLOCK = "app-clock"
    """The servers' clock jumps, by a year or by seconds."""
    STORE_CLOCK = "store-clock"
    """The clock jumps that decides leases and retentions: the database's, and on SQLite the servers'."""


LINKS: Final = frozenset({Trouble.CUT, Trouble.SLOW_LINK})
"""What befalls the network."""
DISKS: Final = frozenset({Trouble.DISK_FULL, Trouble.SLOW_DISK})
"""What befalls the database's disk."""
WORLDS: Final = frozenset({Trouble.APP_CLOCK, Trouble.STORE_CLOCK, Trouble.SLOW_DISK})
"""What a preloaded library does."""


class How(StrEnum):
    """In which way the network is cut."""

    SILENCE = "silence"
    """Whatever is sent, either way, is lost without a word."""
    ANSWERS = "answers"
    """What servers send arrives; what the database answers is lost."""
    RESET = "reset"
    """Servers are told that their connection is gone. The database hears nothing, and waits for them."""


class Part(NamedTuple):
    """One trouble in a spell. `strength` is in seconds: how far a clock jumps, or how late each flush is."""

    trouble: Trouble
    how: str = ""
    strength: float = 0.0


class Spell(NamedTuple):
    """All its parts at once, for so many `seconds`; meanwhile a server is killed, or the database crashes."""

    parts: tuple[Part, ...]
    seconds: float
    kill: bool = False
    crash: bool = False


LONGEST_CUT: Final = 5.5
"""Seconds. Longer than the leases, and with what a busy machine adds less than the 8 s for which a call may be on its
way: the provider of a storm is declared to remember keys for 2 s, and remembers them for 10."""
LONGEST_BACK: Final = 4.0
"""Seconds by which the store's clock goes back. What it goes back is added to what a provider has to remember, and to
the lease of whoever died."""
FORWARD: Final = (4.0, 90.0, 3600.0, 7200.0)
"""Seconds by which it goes forward: about a lease, many leases; four of the longest are less than a day's retention."""
FAR: Final = 400 * 86400.0
"""Seconds by which the clock of servers is off that is not the store's: any."""

SHARE: Final = 45
"""Intents to a spell."""
_SLOW_HANDLERS: Final = 2
"""To a spell. They are at work when it begins."""
_BEFORE: Final = 8
"""Intents of a share that are done before its spell begins."""
_KILLS_ALONG: Final = 2


def applicable(trouble: Trouble, store: str) -> bool:
    """A file is reached by no network, and its clock is that of whoever has it open."""
    return store != "sqlite" or trouble not in (Trouble.CUT, Trouble.SLOW_LINK, Trouble.APP_CLOCK)


def spells(random: Random, troubles: Sequence[Trouble]) -> list[Spell]:
    """The spells of a storm: several of the one trouble, or all of them in pairs while servers are killed."""
    weather = [trouble for trouble in troubles if trouble is not Trouble.KILLS]
    if len(weather) == 1:
        return [Spell((part,), seconds) for part, seconds in _of_one(random, weather[0])]
    random.shuffle(weather)
    pairs = [weather[first : first + 2] for first in range(0, len(weather), 2)]
    return [_combined(random, pair, kills=Trouble.KILLS in troubles) for pair in pairs]


def _of_one(random: Random, trouble: Trouble) -> list[tuple[Part, float]]:
    if trouble is Trouble.CUT:
        ways = random.sample(list(How), len(How))
        long = random.randrange(len(ways))
        return [
            (Part(trouble, how), LONGEST_CUT if index == long else random.uniform(1.0, 2.5))
            for index, how in enumerate(ways)
        ]
    if trouble is Trouble.STORE_CLOCK:
        jumps = [random.choice(FORWARD), -random.uniform(1.0, LONGEST_BACK), random.choice(FORWARD)]
        random.shuffle(jumps)
        return [(Part(trouble, "", jump), random.uniform(1.0, 2.0)) for jump in jumps]
    if trouble is Trouble.APP_CLOCK:
        offsets = random.sample([FAR, -FAR, random.uniform(2.0, 10.0), -random.uniform(2.0, 10.0)], 3)
        return [(Part(trouble, "", offset), random.uniform(1.0, 2.0)) for offset in offsets]
    return [(_part(random, trouble), random.uniform(2.0, 4.0)) for _ in range(2)]


def _part(random: Random, trouble: Trouble) -> Part:
    if trouble is Trouble.CUT:
        return Part(trouble, random.choice(list(How)))
    if trouble is Trouble.SLOW_DISK:
        return Part(trouble, "", random.uniform(0.03, 0.12))
    if trouble is Trouble.APP_CLOCK:
        return Part(trouble, "", random.choice((FAR, -FAR)))
    if trouble is Trouble.STORE_CLOCK:
        return Part(trouble, "", random.choice((*FORWARD, -random.uniform(1.0, LONGEST_BACK))))
    return Part(trouble)


def _combined(random: Random, troubles: Sequence[Trouble], *, kills: bool) -> Spell:
    # A database that goes down while its disk is full is not there again before there is room.
    crash = kills and Trouble.DISK_FULL not in troubles and random.random() < 0.5
    parts = tuple(_part(random, trouble) for trouble in troubles)
    return Spell(parts, random.uniform(2.5, 4.5), kill=kills, crash=crash)


def draw(seed: int, troubles: Sequence[Trouble], *, stepwise: bool) -> tuple[Plan, tuple[Spell, ...]]:
    """The plan of a storm, and the spells that its blows of this kind are about, in their order.

    Whatever the weather, answers are lost, connections reset and requests sent twice. Without KILLS nobody dies.
    """
    random = Random(seed)  # noqa: S311 - a plan is to be repeated, not kept secret
    weather = spells(random, troubles) if set(troubles) - {Trouble.KILLS} else []
    count = max(3, len(weather)) * SHARE
    plan = draw_storm(seed, count, stepwise=stepwise)
    kills = Trouble.KILLS in troubles
    if not weather:
        return plan, ()
    share = count // len(weather)
    intents = [intent if kills else _unarmed(intent) for intent in plan.intents]
    for first in range(0, share * len(weather), share):
        for number in random.sample(range(first, first + _BEFORE), _SLOW_HANDLERS):
            if not any(planned.fault in KILL_POINTS for planned in intents[number].faults):
                intents[number] = _slow(intents[number])
    blows = []
    for number in range(len(weather)):
        first = number * share
        blows.append(Blow(BlowKind.SPELL, first + _BEFORE // 2, first + share, number, random.uniform(0.0, 0.05)))
        if kills and number < _KILLS_ALONG:
            blows.append(Blow(BlowKind.SIGKILL, first + share // 2, first + share, random.randrange(1000), 0.0))
    if kills:
        end = share * len(weather)
        blows.append(Blow(BlowKind.DATABASE_RESTART, end - share // 3, end, 0, 0.0))
    return Plan(seed, tuple(intents), tuple(blows)), tuple(weather)


def _unarmed(intent: Intent) -> Intent:
    return replace(intent, faults=tuple(planned for planned in intent.faults if planned.fault not in KILL_POINTS))


def _slow(intent: Intent) -> Intent:
    """Alone and at once, it is at work for as long as a client waits that is impatient."""
    return replace(intent, copies=1, impatient=True, abandoned=False, faults=(Planned(Fault.SLOW_HANDLER, 0.0),))
