"""One key written in several ways: quoted, padded with blanks, in other case."""

from __future__ import annotations

import secrets
from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer
from twicesafe.conformance.templates import Intent
from twicesafe.conformance.trials.judging import given_away
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported

_IN_BODY: Final = "The key travels in the body, where there are no header lines to spell."


@trial("quoted-key", "A key in quotes and the same key bare are one, or one form is refused", requests=3)
def quoted_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    intent = bench.intent()
    written = bench.request(intent).values(bench.target.header)[0]
    bare = written.strip('"')
    other = f'"{bare}"' if written == bare else bare
    words = "The same key in quotes" if written == bare else "The same key without its quotes"
    first, second = _both(bench, intent, written, other)
    twice = _twice(bench, intent, first, second)
    if twice is None and second.succeeded:
        return inconclusive(f"{words} was taken; whether as another one, nobody tells.")
    if twice:
        meaning = (
            f"{words} is another key here: a library or proxy that writes the header differently doubles the order."
        )
        return failed(meaning) if bench.profile.one_identity else unsupported(meaning)
    return passed(f"{words} is {'one with it' if second.succeeded else f'refused with {second.status}'}.")


@trial("padded-key", "Blanks around a key do not belong to it", requests=2)
def padded_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    intent = bench.intent()
    written = bench.request(intent).values(bench.target.header)[0]
    first, second = _both(bench, intent, written, f"  {written} \t")
    twice = _twice(bench, intent, first, second)
    if twice:
        return failed("Blanks around a key make it another one, though to HTTP they are none of it.")
    if twice is None and second.succeeded:
        return inconclusive("A key among blanks was taken; whether as another one, nobody tells.")
    return passed(
        f"Blanks around a key are {'no part of it' if second.succeeded else f'refused with {second.status}'}."
    )


@trial("other-case-key", "Keys that differ in case are two", requests=4)
def other_case_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    intent = bench.intent()
    request, key = bench.request(intent), f"Case-aBcXyZ-{secrets.token_hex(6)}q"
    first, second = (bench.send(bench.with_key(request, one)) for one in (key, key.swapcase()))
    if not first.succeeded:
        return unsupported("Only keys of a form are taken in which case cannot tell two apart.")
    if not second.succeeded:
        return failed(
            f"A key that differs in case from a used one got {second.status}: two clients' keys are taken for one."
        )
    twice = _twice(bench, intent, first, second)
    if twice is None:
        return inconclusive("Both were taken; whether as two, nobody tells.")
    if not twice:
        return failed("Two keys that differ in case are taken for one: the second order is swallowed.")
    return passed("Two keys that differ in case are two.")


def _both(bench: Bench, intent: Intent, first: str, second: str) -> tuple[Answer, Answer]:
    request = bench.request(intent)
    return bench.send(bench.rewritten(request, first)), bench.send(bench.rewritten(request, second))


def _twice(bench: Bench, intent: Intent, first: Answer, second: Answer) -> bool | None:
    """Whether the work was done for each spelling."""
    counted = bench.count([intent], 1)
    if counted is not None:
        return counted > 1
    if given_away(bench, first, second) or not second.succeeded:
        return False
    return True if bench.known.telling else None


TRIALS: Final = (quoted_key, padded_key, other_case_key)
