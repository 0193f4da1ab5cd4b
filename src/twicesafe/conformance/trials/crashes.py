"""A server that dies and comes back, where the target's description says how to make it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.effects import run
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Answer, Request
from twicesafe.conformance.limits import OutOfBoundsError
from twicesafe.conformance.templates import Intent
from twicesafe.conformance.trials.judging import Times, described, often, same, seen
from twicesafe.conformance.trials.running import Running, too_quick
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial
from twicesafe.conformance.wire import NoAnswerError

_PAUSE: Final = 0.25
"""Seconds until asking again a server that is not up yet."""
_PATIENCE: Final = 1.0
"""Seconds until asking again one that says to wait."""

_NOT_TOLD: Final = inconclusive(
    "Nobody knows how to restart it: give the commands `server.crash` and `server.restart`, or a request that is "
    "`crashing` it."
)


@trial("restart-after-answer", "After a crash and a restart a retry still gets the first answer", requests=120)
def restart_after_answer(bench: Bench) -> Outcome:
    if bench.target.restart is None and bench.target.crashing is None:
        return _NOT_TOLD
    intent = bench.intent()
    request = bench.request(intent)
    first = bench.send(request)
    if bench.target.restart is not None:
        _crash(bench)
    else:
        _provoke(bench)
    second = _back(bench, lambda: bench.send(request))
    found = seen(bench, [intent], [first, second])
    if found.times is Times.TOO_OFTEN:
        return failed(
            f"Answered, restarted, asked again, and {found.words}: what is known of keys dies with the server."
        )
    if not same(first, second):
        return failed(f"After a restart the retry got {described(second)}, and not the first answer.")
    if found.times is Times.UNTOLD:
        return inconclusive(f"After a restart the retry got the first answer, but {found.words}.")
    return passed("After a crash and a restart a retry gets the first answer, and the work was done once.")


@trial("crash-while-running", "A crash in the middle of the work leads to one effect or a known unknown", requests=160)
def crash_while_running(bench: Bench) -> Outcome:
    if bench.target.crashing is not None:
        intent, request = _provoke(bench)
        return _aftermath(bench, intent, _outcome(bench, lambda: bench.send(request)))
    if bench.target.restart is None:
        return _NOT_TOLD
    with Running(bench) as first:
        if not first.caught():
            return too_quick()
        _crash(bench)
        last = _outcome(bench, lambda: first.again(first.request))
    return _aftermath(bench, first.intent, last)


def _aftermath(bench: Bench, intent: Intent, last: Answer) -> Outcome:
    counted = bench.count([intent], 1)
    if counted is not None and counted > 1:
        return failed(f"Killed at work, restarted, asked again, and the work was done {often(counted)}.")
    if last.succeeded:
        if counted == 0:
            return failed(f"Killed at work, restarted, and the retry got {last.status}: nothing was done.")
        if counted is None:
            return inconclusive(f"After the crash the retry got {last.status}; how often it was done, nobody tells.")
        return passed("Killed at work and restarted; the retry was done, and once in all.")
    if bench.in_progress(last):
        return failed(
            f"{bench.seconds:.0f} s later a retry still gets {last.status} and is told to wait: nobody is at work any "
            "more, and the key is of no use."
        )
    if counted is None:
        return inconclusive(f"After the crash the retry is refused with {last.status}; effects cannot be counted.")
    return passed(
        f"After the crash the retry is refused with {last.status}: the outcome is open, and nothing runs twice."
    )


def _provoke(bench: Bench) -> tuple[Intent, Request]:
    """Let a request crash the server, which comes back by itself."""
    template = bench.target.crashing
    assert template is not None, "it was asked for"
    intent = bench.intent()
    bench.prepare(template, intent)
    request = bench.request(intent, template)
    try:
        answer = bench.send(request)
    except NoAnswerError:
        return intent, request
    if answer.status not in (502, 504):
        raise CannotCheckError(f"the request that was to crash the server got {answer.status}")
    return intent, request


def _outcome(bench: Bench, ask: Callable[[], Answer]) -> Answer:
    """What a client is told in the end that asks again and again, for as long as a key may still be held."""
    last = _back(bench, ask)
    up = asked = bench.seconds
    with suppress(OutOfBoundsError):
        while bench.in_progress(last) and asked - up < bench.limits.held:
            bench.wait(_PATIENCE)
            asked = bench.seconds
            last = _back(bench, ask)
    return last


def _crash(bench: Bench) -> None:
    if bench.target.crash is not None:
        run(bench.target.crash, bench.limits.answer)
    assert bench.target.restart is not None, "it was asked for"
    run(bench.target.restart, bench.limits.answer)


def _back(bench: Bench, ask: Callable[[], Answer]) -> Answer:
    """The first answer of a server that is coming up again. OutOfBoundsError where it does not."""
    while True:
        try:
            answer = ask()
        except NoAnswerError:
            bench.wait(_PAUSE)
            continue
        if answer.status not in (502, 504):
            return answer
        bench.wait(_PAUSE)


TRIALS: Final = (restart_after_answer, crash_while_running)
