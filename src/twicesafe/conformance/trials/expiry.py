"""A retry after the key's retention: it is done anew, once, or refused; never something in between."""

from __future__ import annotations

from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.effects import run
from twicesafe.conformance.trials.judging import often, same
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial


@trial(
    "after-expiry",
    "When its key is forgotten a request is done anew, and once, whoever else comes",
    requests=20,
    rounds=1,
)
def after_expiry(bench: Bench) -> Outcome:
    target = bench.target
    if target.expire_seconds is None and target.expire_command is None and target.expire_request is None:
        return inconclusive("Nobody knows how keys are forgotten: give `expire` seconds, a command or a request.")
    intent = bench.intent()
    request = bench.request(intent)
    first = bench.send(request)
    if target.expire_command is not None:
        run(target.expire_command, bench.limits.answer)
    if target.expire_request is not None:
        bench.order(target.expire_request, intent)
    if target.expire_seconds is not None:
        bench.wait(target.expire_seconds)
    answers = bench.together([request] * min(4, bench.limits.parallel))
    last = bench.final(request)
    counted = bench.count([intent], 2)
    if broken := [one for one in (*answers, last) if one is not None and one.status >= 500 and one.status != 503]:
        return failed(f"A retry after the key was forgotten got {broken[0].status}.")
    if counted is not None and counted > 2:
        return failed(
            f"{len(answers)} duplicates after the key was forgotten, and the work was done {often(counted)}, not "
            "twice: whoever takes over an old key does not take it alone."
        )
    if not last.succeeded:
        return passed(
            f"A retry after the key was forgotten is refused with {last.status}: nothing is done by surprise."
        )
    if counted == 1 or (counted is None and same(first, last)):
        return passed("The key is remembered for longer than was said; a retry still gets the first answer.")
    if counted is None and not bench.known.telling:
        return inconclusive(f"A retry after the key was forgotten got {last.status}; effects cannot be counted.")
    return passed("When its key was forgotten, the request was done anew, by one of its duplicates.")


TRIALS: Final = (after_expiry,)
