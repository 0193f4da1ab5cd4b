"""Another request under a used key: refused, or an operation of its own, and never given the first answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Request
from twicesafe.conformance.trials.judging import Times, described, given_away, lost, often, same, seen
from twicesafe.conformance.trials.running import Running, too_quick
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported
from twicesafe.conformance.variants import changed, with_path, with_query


@trial("changed-body", "The same key with another body is refused, and does nothing", requests=5)
def changed_body(bench: Bench) -> Outcome:
    intent = bench.intent()
    variant = changed(bench, intent)
    if variant is None:
        return inconclusive("No other body can be made of this one: describe one as `changed`.")
    request = bench.request(intent)
    first, second = bench.send(request), bench.send(variant.request)
    if second.succeeded and given_away(bench, first, second):
        return failed(
            "Another body under a used key was given the first answer: the second order was never placed, and its "
            "caller believes that it was."
        )
    counted = bench.count([intent, variant.intent], 1)
    if (counted is not None and counted > 1) or (counted is None and second.succeeded):
        return failed(
            f"Another body under a used key got {described(second)}"
            + (f", and the work was done {often(counted)}" if counted is not None else "")
            + ": a retry that was built anew, with a new time or quote in it, is charged again."
        )
    if second.status >= 500:
        return failed(
            f"Another body under a used key got {second.status}: a client takes it for a failure and retries."
        )
    if lost(bench, [intent, variant.intent], first, bench.send(request)):
        return failed("The refusal harmed the record: the first request's own retry no longer gets its answer.")
    if not _accepted(bench, variant.request):
        return inconclusive("The other body is refused under any key: describe a valid one as `changed`.")
    return passed(f"Another body under a used key got {second.status}, and the first answer is still there.")


@trial("changed-query", "The same key with another query string is not given the first answer", requests=4)
def changed_query(bench: Bench) -> Outcome:
    intent = bench.intent()
    request = bench.request(intent)
    other = with_query(request, "twicesafe_check=1")
    first, second = bench.send(request), bench.send(other)
    if second.succeeded and given_away(bench, first, second):
        return failed(
            "Another query string under a used key was given the first answer: after a trial with ?dry_run=1 the real "
            "call does nothing."
        )
    counted = bench.count([intent], 1)
    if counted is not None and counted > 1:
        return failed(
            f"Another query string under a used key, and the work was done {often(counted)}: a parameter more for "
            "tracking makes a retry a second order."
        )
    if second.succeeded:
        return inconclusive(f"It got {described(second)}, but effects cannot be counted, and answers do not tell.")
    if not _accepted(bench, other):
        return inconclusive("The other query string is refused under any key.")
    return passed(f"Another query string under a used key got {second.status}.")


@trial("changed-path", "The same key on another path is not given the first answer", requests=2)
def changed_path(bench: Bench) -> Outcome:
    return _elsewhere(bench, lambda request: with_path(request, "/twicesafe-check"), "path")


@trial("changed-method", "The same key with another method is not given the first answer", requests=2)
def changed_method(bench: Bench) -> Outcome:
    method = "PATCH" if bench.target.request.method != "PATCH" else "POST"
    return _elsewhere(bench, lambda request: request._replace(method=method), "method")


@trial("changed-while-running", "The same key with another body is refused while the first is running", requests=11)
def changed_while_running(bench: Bench) -> Outcome:
    with Running(bench) as first:
        variant = changed(bench, first.intent, bench.target.slow)
        if variant is None:
            return inconclusive("No other body can be made of this one: describe one as `changed`.")
        if not first.caught():
            return too_quick()
        second = first.beside(variant.request)
        others = []
        for what, request in _others(first.request):
            if not first.ended:
                others.append((what, first.beside(request)))
        original = first.answer()
    counted = bench.count([first.intent, variant.intent], 1)
    if second is not None and second.succeeded and (counted == 1 or (original is not None and same(second, original))):
        return failed(
            "Another body, sent while the first was running, was given the first one's answer: the second order was "
            "never placed, and its caller believes that it was."
        )
    if (counted is not None and counted > 1) or (counted is None and second is not None and second.succeeded):
        return failed(
            "Another body under the same key ran beside the first"
            + (f": the work was done {often(counted)}." if counted is not None else ".")
        )
    if second is None or second.status >= 500:
        return failed(
            f"It got {second.status if second else 'no answer'}: a client takes it for a failure and retries."
        )
    for what, other in others:
        if other is not None and original is not None and other.succeeded and given_away(bench, original, other):
            return failed(f"Another {what}, sent while the first was running, was given the first one's answer.")
    last = bench.final(first.request)
    if lost(bench, [first.intent, variant.intent], original, last):
        return failed("The refusal harmed the record: the first request's own retry does not get its answer.")
    return passed(f"Another body under a key at work got {second.status}, and the first went on.")


def _others(request: Request) -> list[tuple[str, Request]]:
    """The same key and body, to something else."""
    method = "PATCH" if request.method != "PATCH" else "POST"
    return [
        ("query string", with_query(request, "twicesafe_check=1")),
        ("path", with_path(request, "/twicesafe-check")),
        ("method", request._replace(method=method)),
    ]


def _elsewhere(bench: Bench, change: Callable[[Request], Request], what: str) -> Outcome:
    intent = bench.intent()
    request = bench.request(intent)
    first, second = bench.send(request), bench.send(change(request))
    if second.succeeded and given_away(bench, first, second):
        return failed(
            f"Another {what} under a used key was given the first answer: an operation that never ran is reported as "
            "done."
        )
    found = seen(bench, [intent], [first])
    if found.times is Times.TOO_OFTEN:
        return unsupported(f"Another {what} is the same operation here, and {found.words}.")
    if second.status >= 500 and second.status != 501:
        return failed(f"Another {what} under a used key got {second.status}.")
    if second.succeeded and not bench.known.telling:
        return inconclusive(f"Another {what} under a used key got {second.status}; whose answer that is, nobody tells.")
    return passed(f"Another {what} under a used key got {second.status}, and not the first answer.")


def _accepted(bench: Bench, request: Request) -> bool:
    """Whether the request is taken under a fresh key."""
    fresh = bench.intent().key
    if bench.target.header:
        return bench.send(bench.with_key(request, fresh)).succeeded
    return True


TRIALS: Final = (changed_body, changed_query, changed_path, changed_method, changed_while_running)
