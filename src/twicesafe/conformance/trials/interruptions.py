"""Connections that break: in the upload, while the work is done, and after it, before the answer is there."""

from __future__ import annotations

from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Request, Verdict
from twicesafe.conformance.templates import Intent
from twicesafe.conformance.trials.judging import Times, often, same, seen
from twicesafe.conformance.trials.running import Running, too_quick
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial


@trial("upload-cut", "A request that stops in the middle does nothing and leaves nothing", requests=20)
def upload_cut(bench: Bench) -> Outcome:
    if bench.target.request.body is None:
        return inconclusive("The request has no body that could stop in the middle.")
    for chunked in (False, True):
        intent = bench.intent()
        request = bench.request(intent)
        bench.cut(request, chunked=chunked)
        bench.wait(max(0.1, 1.5 * bench.known.seconds) if bench.target.counter is not None else 0.1)
        early = bench.count([intent], 0)
        if early:
            return failed("Half a request was taken for a whole one: work was done on the part that had arrived.")
        answer = bench.final(request)
        if not answer.succeeded:
            return failed(
                f"After an upload that broke off the whole request gets {answer.status}: half of it claimed the key."
            )
        found = seen(bench, [intent], [answer, bench.send(request)])
        if found.times in (Times.TOO_OFTEN, Times.NOT_DONE):
            return failed(f"An upload that broke off, then the whole request twice, and {found.words}.")
        if found.times is Times.UNTOLD:
            return inconclusive(
                f"After an upload that broke off the whole request got {answer.status}, but {found.words}."
            )
    return passed("An upload that breaks off leaves nothing behind; the retry did the work once.")


@trial("hang-up-while-running", "A client that hangs up while the work is done can ask again", requests=30)
def hang_up_while_running(bench: Bench) -> Outcome:
    with Running(bench) as first:
        if not first.abandoned():
            return too_quick()
        if first.waits:
            first.beside(first.request)
        first.release()
        outcome = _asked_again(bench, first.intent, first.request)
    if outcome.verdict is not Verdict.PASS:
        return outcome
    # And once more, in the middle of the answer: what was recorded of it has to be all of it.
    intent = bench.intent()
    request = bench.request(intent)
    bench.abandon(request, bench.limits.answer, None)
    return _asked_again(bench, intent, request)


def _asked_again(bench: Bench, intent: Intent, request: Request) -> Outcome:
    answer = bench.final(request)
    if answer.status >= 500 or not answer.succeeded:
        counted = bench.count([intent], 1)
        if counted is not None and counted > 1:
            return failed(f"Hung up, asked again, and the work was done {often(counted)}.")
        return failed(
            f"After a hang-up the retry got {answer.status}: whoever lost the connection does not learn what became of "
            "the order."
        )
    last = bench.send(request)
    found = seen(bench, [intent], [answer, last])
    if found.times is Times.TOO_OFTEN:
        return failed(f"Hung up, asked again, and {found.words}: whoever loses the connection pays twice.")
    if found.times is Times.NOT_DONE:
        return failed(f"Hung up, asked again, was told {answer.status}, and {found.words}.")
    if not same(answer, last):
        return failed("After a hang-up two retries were told different things.")
    if found.times is Times.UNTOLD or bench.target.counter is None:
        return inconclusive(
            "The retry got its answer; whether the attempt before it did the work too, a counter only knows."
        )
    return passed(
        "The client hung up while the work was done, and when the answer came: its retries were told of one effect."
    )


@trial("answer-lost", "An answer that is lost on its way comes again", requests=20)
def answer_lost(bench: Bench) -> Outcome:
    intent = bench.intent()
    request = bench.request(intent)
    lost = bench.lose(request)
    second = bench.final(request)
    found = seen(bench, [intent], [lost, second])
    if found.times is Times.TOO_OFTEN:
        return failed(f"The answer was lost, the client asked again, and {found.words}: it pays twice.")
    if found.times is Times.NOT_DONE:
        return failed(f"The answer that was lost said {lost.status}, and {found.words}.")
    if not same(lost, second):
        return failed(f"The lost answer said {lost.status} and the retry got {second.status}, or other bytes.")
    if found.times is Times.UNTOLD:
        return inconclusive(f"The retry got what was lost, but {found.words}.")
    return passed("The retry got the very answer that was lost, and the work was done once.")


TRIALS: Final = (upload_cut, hang_up_while_running, answer_lost)
