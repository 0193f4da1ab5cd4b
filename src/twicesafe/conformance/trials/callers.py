"""The same key from another caller: it is another key, and gives nothing away."""

from __future__ import annotations

import time
from statistics import median
from typing import Final, NamedTuple

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer, Lines, Request
from twicesafe.conformance.templates import Intent
from twicesafe.conformance.trials.judging import described, given_away, lost, marked, often, same
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported
from twicesafe.conformance.variants import changed, without_credentials

PAIRS: Final = 5
SERIES: Final = 3
"""Of pairs, as long as they differ in time: on a busy machine five may do so by chance."""
NOTICEABLE: Final = 0.04
"""Seconds of difference that can be told across a network."""

_NOBODY: Final = inconclusive("No other caller is known: give the credentials of one as `other_caller`.")


@trial("other-caller", "The same key from another caller is an intent of its own", requests=3)
def other_caller(bench: Bench) -> Outcome:
    caller = bench.target.other_caller
    if caller is None:
        return _NOBODY
    intent = bench.intent()
    first = bench.send(bench.request(intent))
    second = bench.send(bench.request(intent, caller=caller))
    if marked(second) is not None or (second.succeeded and given_away(bench, first, second)):
        return failed(
            "Another caller with the same key was given the first one's answer: whoever learns or guesses a key reads "
            "a stranger's order, and does not get an own one."
        )
    if not second.succeeded:
        return _refused(bench, intent, caller, second)
    if bench.counts_all(caller):
        counted = bench.count([intent], 2)
        own = None if counted is None else counted - 1
    else:
        counted, own = bench.count([intent], 1), bench.count([intent], 1, caller)
        if counted == own == 2:
            # The counter wants to know who asks, and counts everybody's all the same.
            own = 1
    if counted is None or own is None:
        if not bench.known.telling:
            return inconclusive(f"The other caller got {described(second)}; whether anything was done, nobody tells.")
        return passed("Another caller with the same key got an answer of their own; effects were not counted.")
    if own != 1 or counted == 0:
        return failed(f"Another caller with the same key got {second.status}, and their work was done {often(own)}.")
    return passed("Another caller with the same key got an effect and an answer of their own.")


@trial(
    "other-caller-leak", "Another caller cannot tell whether a key was used: not by body, status or time", requests=48
)
def other_caller_leak(bench: Bench) -> Outcome:
    caller = bench.target.other_caller
    if caller is None:
        return _NOBODY
    signs = set()
    for _ in range(SERIES):
        found = _apart(bench, caller)
        if not isinstance(found, _Apart):
            return found
        apart = found
        told = abs(apart.median) > NOTICEABLE and apart.always
        signs.add(apart.median > 0)
        if not told or len(signs) > 1:
            return passed(
                "With a used and with a fresh key another caller gets the same; in time they differ by "
                f"{abs(apart.median) * 1000:.0f} ms."
            )
    return failed(
        f"Another caller's answer takes {abs(apart.median) * 1000:.0f} ms more or less where the key was used: its "
        "time tells who ordered."
    )


class _Apart(NamedTuple):
    """How much longer a used key takes than a fresh one, in seconds."""

    median: float
    always: bool
    """Whether no used key was as quick, or as slow, as any fresh one."""


def _apart(bench: Bench, caller: Lines) -> _Apart | Outcome:
    """The difference in time over some pairs; an outcome where answers tell it already, or nothing can be told."""
    used: list[float] = []
    fresh: list[float] = []
    for _ in range(PAIRS):
        intent, unused = bench.intent(), bench.intent()
        variant = changed(bench, intent)
        if variant is None:
            return inconclusive("No other body can be made of this one: describe one as `changed`.")
        first = bench.send(bench.request(intent))
        theirs = variant.request._replace(lines=bench.request(intent, caller=caller).lines)
        at_used, took = _timed(bench, theirs)
        used.append(took)
        at_fresh, took = _timed(bench, bench.request(unused, caller=caller))
        fresh.append(took)
        if at_used.status != at_fresh.status:
            return failed(
                f"Another caller got {at_used.status} with a used key and {at_fresh.status} with a fresh one: the "
                "status tells who ordered, and keeps strangers from using the key."
            )
        if intent.unique.encode() in at_used.body or (bench.known.telling and at_used.body == first.body):
            return failed("What another caller was answered contains what only the first one knew.")
        if {name.lower() for name, _ in at_used.lines} - _VARYING != {
            name.lower() for name, _ in at_fresh.lines
        } - _VARYING:
            return failed("Another caller's answer has other header lines with a used key than with a fresh one.")
    return _Apart(median(used) - median(fresh), max(used) < min(fresh) or max(fresh) < min(used))


@trial("replay-authorized", "A replay is given to those only who may make the request", requests=3)
def replay_authorized(bench: Bench) -> Outcome:
    caller = bench.target.unauthorized or without_credentials(bench.target)
    if caller is None:
        return unsupported("The request bears no credentials, so there is nobody to keep from it.")
    intent = bench.intent()
    first = bench.send(bench.request(intent))
    second = bench.send(bench.request(intent, caller=caller))
    if second.succeeded and (same(first, second) or marked(second) is not None):
        return failed(
            "Without valid credentials the key alone was given the first answer: replays are made before anybody is "
            "asked who they are."
        )
    if second.succeeded:
        return unsupported(f"Without the credentials the request got {second.status}: it is open to everybody.")
    if second.status >= 500:
        return failed(f"Without the credentials the request got {second.status}.")
    last = bench.send(bench.request(intent))
    if lost(bench, [intent], first, last):
        return failed(f"An attempt without credentials harmed the record: the next retry got {last.status}.")
    return passed(f"Without the credentials a retry gets {second.status}, and with them the first answer.")


def _refused(bench: Bench, intent: Intent, caller: Lines, second: Answer) -> Outcome:
    control = bench.send(bench.request(intent.with_key(bench.intent().key), caller=caller))
    if not control.succeeded:
        return inconclusive(f"The other caller gets {control.status} with a fresh key too: are the credentials right?")
    return failed(
        f"Another caller with the same key got {second.status}, and {control.status} with a fresh one: keys are shared "
        "among callers, and one can keep another from ordering."
    )


def _timed(bench: Bench, request: Request) -> tuple[Answer, float]:
    began = time.monotonic()
    answer = bench.send(request)
    return answer, time.monotonic() - began


_VARYING: Final = {"set-cookie", "retry-after", "age", "transfer-encoding", "content-length"}

TRIALS: Final = (other_caller, other_caller_leak, replay_authorized)
