"""Duplicates at the same moment: whoever looks first and writes later does the work for each of them."""

from __future__ import annotations

from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer
from twicesafe.conformance.trials.judging import Times, same, seen
from twicesafe.conformance.trials.running import Running, too_quick
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial

ROUNDS: Final = 3
MEANWHILE: Final = 20
"""Duplicates at most that come one after the other while the work is done."""
PAUSE: Final = 0.1


@trial("parallel-duplicates", "Of many duplicates at the same moment one does the work", requests=40, rounds=ROUNDS)
def parallel_duplicates(bench: Bench) -> Outcome:
    number = bench.limits.parallel
    waited = 0
    untold = ""
    for _ in range(ROUNDS):
        intent = bench.intent()
        request = bench.request(intent)
        answers = bench.together([request] * number)
        last = bench.final(request)
        found = seen(bench, [intent], [*answers, last])
        if found.times is Times.TOO_OFTEN:
            return failed(
                f"{number} duplicates at the same moment, and {found.words}: a double click is charged twice."
            )
        if found.times is Times.NOT_DONE:
            return failed(f"{number} duplicates at the same moment, and {found.words}: they kept each other from it.")
        if broken := [answer for answer in answers if answer is not None and _broken(answer)]:
            return failed(
                f"A duplicate got {broken[0].status} while another attempt was at work: it looks like a failure of the "
                "payment, which went well."
            )
        if not last.succeeded:
            return failed(f"After all of them a retry got {last.status}: nobody learns any more what was done.")
        wrong = [one for one in answers if one is not None and one.succeeded and one.body != last.body]
        if wrong and found.times is not Times.UNTOLD:
            return failed("Duplicates were told of different results of the same work.")
        if found.times is Times.UNTOLD:
            untold = found.words
        waited += sum(answer is not None and answer.succeeded for answer in answers)
    if untold:
        return inconclusive(f"All {ROUNDS} rounds of {number} duplicates were answered, but {untold}.")
    told = "they were given its answer" if waited > ROUNDS else "they were told to come back"
    return passed(f"In {ROUNDS} rounds of {number} duplicates one did the work each time, and of the others {told}.")


@trial("duplicates-while-running", "However long the work takes, duplicates meanwhile do not do it again", requests=60)
def duplicates_while_running(bench: Bench) -> Outcome:
    with Running(bench) as first:
        if not first.caught():
            return too_quick()
        answers = []
        for _ in range(MEANWHILE):
            if first.ended:
                break
            answers.append(first.beside(first.request))
            if not first.ended:
                bench.wait(PAUSE)
        original = first.answer()
    last = bench.final(first.request)
    found = seen(bench, [first.intent], [original, *answers, last])
    if found.times is Times.TOO_OFTEN:
        return failed(f"Duplicates came while the work was done, and {found.words}: a slow order is a second order.")
    if found.times is Times.NOT_DONE:
        return failed(f"Duplicates came while the work was done, and {found.words}.")
    if original is None or not same(original, last):
        return failed("The first attempt's answer is not what its retries get: somebody else's took its place.")
    if found.times is Times.UNTOLD:
        return inconclusive(f"{len(answers)} duplicates came while the work was done, but {found.words}.")
    return passed(f"{len(answers)} duplicates came while the work was done, and it was done once.")


def _broken(answer: Answer) -> bool:
    return answer.status >= 500 and answer.status != 503


TRIALS: Final = (parallel_duplicates, duplicates_while_running)
