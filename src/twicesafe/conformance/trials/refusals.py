"""What refusals say: nothing of the other request, when to come back, and by a status that was published."""

from __future__ import annotations

from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.retry_after import named_wait
from twicesafe.conformance.trials.judging import Times, same, seen
from twicesafe.conformance.trials.running import Running, too_quick
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported
from twicesafe.conformance.variants import changed, members, without_key

LONGEST_WAIT: Final = 20.0
"""Seconds of a Retry-After that are waited for."""
COMES_BACK: Final = 3
"""Times that a duplicate comes back as it was told."""
SHORT: Final = 8
"""Values of fewer characters are in many an answer by chance."""
_TOO_EARLY: Final = failed(f"A duplicate came back as told {COMES_BACK} times, and it was too early each time.")


@trial("conflict-leak", "A refused key says nothing of the request that used it", requests=2)
def conflict_leak(bench: Bench) -> Outcome:
    intent = bench.intent()
    variant = changed(bench, intent)
    if variant is None:
        return inconclusive("No other body can be made of this one: describe one as `changed`.")
    request = bench.request(intent)
    first, refusal = bench.send(request), bench.send(variant.request)
    if refusal.succeeded:
        return inconclusive(f"It was not refused at all, but got {refusal.status}.")
    said = refusal.body + "\n".join(value for _, value in refusal.lines).encode("latin-1")
    if first.body and len(first.body) >= SHORT and first.body in refusal.body:
        return failed("The refusal contains the first answer: whoever guesses a key reads what it did.")
    mine = {value for value in _values(request.body) if len(value) >= SHORT}
    theirs = _values(variant.request.body)
    if leaked := _said(said, mine - theirs):
        return failed(f"The refusal contains {leaked[0]!r}, which only the first request said.")
    told = {value for value in _values(first.body) if len(value) >= SHORT} - theirs
    if leaked := _said(said, told):
        return failed(f"The refusal contains {leaked[0]!r}, which only the first answer said.")
    return passed(f"The {refusal.status} repeats nothing of the first request and nothing of its answer.")


@trial("retry-after", "While the work is done a duplicate is told when to come back, and that is enough", requests=12)
def retry_after(bench: Bench) -> Outcome:
    with Running(bench) as first:
        if not first.caught():
            return too_quick()
        answer = first.beside(first.request)
        if answer is None:
            return failed("A duplicate got no answer while the first was running.")
        if answer.status >= 500 and answer.status != 503:
            return failed(f"A duplicate got {answer.status} while the first was running: it looks like a failure.")
        if answer.succeeded:
            original = first.answer()
            found = seen(bench, [first.intent], [original, answer])
            if found.times is Times.TOO_OFTEN:
                return failed(f"A duplicate ran beside the first, and {found.words}.")
            if original is not None and not same(original, answer):
                return failed("A duplicate was given another answer than the first attempt.")
            return passed("A duplicate waits for the first attempt and is given its answer.")
        if first.waits and named_wait(answer) == 0 and _told_again(bench, first):
            return _TOO_EARLY
        first.release()
        for _ in range(COMES_BACK):
            if (wrong := _named(answer.status, named_wait(answer), answer.value("Retry-After"))) is not None:
                return wrong
            seconds = named_wait(answer) or 0.0
            bench.wait(seconds)
            ended = first.ended
            answer = bench.send(first.request)
            if answer.succeeded:
                return passed(f"A duplicate is told to wait {seconds:g} s, and then gets the first answer.")
            if not bench.in_progress(answer):
                return failed(f"A duplicate that came back as told got {answer.status}.")
            if ended:
                return failed("The first attempt is answered, and a duplicate that came back as told is told to wait.")
    return _TOO_EARLY


def _told_again(bench: Bench, first: Running) -> bool:
    """Whether those who come back at once, as they were told to, come too early each time: the work waits for us."""
    for _ in range(COMES_BACK):
        again = first.beside(first.request)
        if again is None or first.ended or not bench.in_progress(again):
            return False
    return True


def _named(status: int, seconds: float | None, line: str) -> Outcome | None:
    """What is wrong with a Retry-After; None where nothing is."""
    if seconds is None and line:
        return failed(f"Retry-After is {line!r}, which is neither seconds nor a date: clients ignore it or fail on it.")
    if seconds is None:
        return unsupported(f"A duplicate gets {status} without Retry-After: clients guess when to come back.")
    if seconds > LONGEST_WAIT:
        return failed(f"A duplicate is told to wait {seconds:.0f} s: clients give up or keep their users waiting.")
    return None


@trial("statuses", "Refusals have the statuses that the profile publishes", requests=8)
def statuses(bench: Bench) -> Outcome:
    rules = bench.profile
    wrong, right = [], []

    def compare(what: str, status: int, wanted: frozenset[int]) -> None:
        if wanted and 400 <= status < 500:
            said = f"{what} {status}"
            right.append(said) if status in wanted else wrong.append(f"{said}, not {' or '.join(map(str, wanted))}")

    intent = bench.intent()
    request, variant = bench.request(intent), changed(bench, intent)
    keyless = without_key(bench.target, bench.request(bench.intent()))
    if keyless is not None:
        compare("a missing key", bench.send(keyless).status, rules.missing)
    if bench.target.header:
        compare("an empty key", bench.send(bench.rewritten(bench.request(bench.intent()), "")).status, rules.malformed)
    if variant is not None and bench.send(request).succeeded:
        compare("a used key", bench.send(variant.request).status, rules.mismatch)
    with Running(bench) as first:
        if first.caught():
            answer = first.beside(first.request)
            if answer is not None:
                compare("a key at work", answer.status, rules.in_progress)
    if wrong:
        return failed(
            f"By {rules.title} it should be otherwise: {'; '.join(wrong)}. Nothing is done twice, but a client that "
            "goes by the status does the wrong thing."
        )
    if not right:
        return unsupported(f"{rules.title[:1].upper()}{rules.title[1:]} publishes none that could be seen here.")
    return passed(f"As {rules.title} publishes: {', '.join(right)}.")


def _said(text: bytes, values: set[str]) -> list[str]:
    # JSON has halves of characters, which no encoding has.
    return [value for value in values if value.encode("utf-8", "surrogatepass") in text]


def _values(body: bytes) -> set[str]:
    found: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, str):
            found.add(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.add(str(value))

    walk(members(body))
    return found


TRIALS: Final = (conflict_leak, retry_after, statuses)
