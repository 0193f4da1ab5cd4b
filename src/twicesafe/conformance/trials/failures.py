"""Attempts that fail: what they leave under the key is not in the way of the attempt that would succeed."""

from __future__ import annotations

from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Lines, Request
from twicesafe.conformance.retry_after import named_wait
from twicesafe.conformance.target import Template
from twicesafe.conformance.templates import Intent
from twicesafe.conformance.trials.judging import Times, marked, often, same, seen
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial
from twicesafe.conformance.variants import members, without_credentials
from twicesafe.conformance.wire import NoAnswerError

RETURNS: Final = 5
"""How often a client comes back after a 429 or 503."""
PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Seconds before each time: where nobody names any, and where more are named."""


@trial("rejected-then-corrected", "A request that was rejected with a 4xx can be corrected", requests=4)
def rejected_then_corrected(bench: Bench) -> Outcome:
    target = bench.target
    intent = bench.intent()
    wrong = bench.request(intent, target.rejected)
    if target.rejected is None:
        if members(wrong.body) is None or not target.header:
            return inconclusive("No rejected request can be made of this one: describe one as `rejected`.")
        wrong = wrong._replace(body=b'{"twicesafe_check": ')
    rejection = bench.send(wrong)
    if not 400 <= rejection.status < 500:
        return inconclusive(f"What was to be rejected got {rejection.status}: describe a wrong one as `rejected`.")
    corrected = bench.request(intent, target.corrected)
    second = bench.final(corrected)
    if same(rejection, second) or second.status >= 500:
        return failed(
            f"The corrected request got {second.status}{' again' if same(rejection, second) else ''}: the rejection "
            "sticks to the key, and nobody is told to take a new one."
        )
    if not second.succeeded:
        control = bench.send(bench.request(intent.with_key(bench.intent().key), target.corrected))
        counted = bench.count([intent], int(control.succeeded))
        if not control.succeeded:
            return inconclusive(f"The corrected request gets {control.status} under a fresh key too.")
        if counted not in (None, 1):
            return failed(f"Rejected, refused, and done under a fresh key: the work was done {often(counted or 0)}.")
        return passed(f"The corrected request gets {second.status}, and is done under a fresh key.")
    found = seen(bench, [intent], [second, bench.send(corrected)])
    if found.times in (Times.TOO_OFTEN, Times.NOT_DONE):
        return failed(f"Rejected with {rejection.status}, then corrected and sent twice, and {found.words}.")
    if found.times is Times.UNTOLD:
        return inconclusive(f"The corrected request got {second.status}, but {found.words}.")
    return passed(f"Rejected with {rejection.status}, corrected under the same key, and done once.")


@trial("server-error", "After a 5xx a retry neither does the work twice nor is kept from it", requests=16)
def server_error(bench: Bench) -> Outcome:
    template = bench.target.failing
    if template is None:
        return inconclusive("Nobody knows how to make it fail: describe a request that is answered 5xx as `failing`.")
    return _after(bench, template, range(500, 600), "5xx")


@trial("throttled", "After a 429 the same key gets through", requests=16)
def throttled(bench: Bench) -> Outcome:
    template = bench.target.throttled
    if template is None:
        return inconclusive("Nobody knows how to be throttled: describe a request that is answered 429 as `throttled`.")
    return _after(bench, template, range(429, 430), "429")


@trial("unauthorized", "After a 401 or 403 the same key works with the right credentials", requests=6)
def unauthorized(bench: Bench) -> Outcome:
    caller: Lines | None = bench.target.unauthorized or without_credentials(bench.target)
    if caller is None:
        return inconclusive("The request bears no credentials: give lines that are answered 401 as `unauthorized`.")
    intent = bench.intent()
    refusal = bench.send(bench.request(intent, caller=caller))
    if refusal.succeeded:
        return inconclusive(f"Without the credentials the request got {refusal.status}: it is open to everybody.")
    request = bench.request(intent)
    second = bench.final(request)
    if not second.succeeded:
        return failed(
            f"After a {refusal.status} the same key gets {second.status} with the right credentials too: a token that "
            "ran out costs the order."
        )
    found = seen(bench, [intent], [second, bench.send(request)])
    if found.times in (Times.TOO_OFTEN, Times.NOT_DONE):
        return failed(f"Refused with {refusal.status}, then sent twice, and {found.words}.")
    if found.times is Times.UNTOLD:
        return inconclusive(f"After a {refusal.status} the same key got {second.status}, but {found.words}.")
    return passed(f"A {refusal.status} leaves nothing under the key; with the right credentials it was done once.")


def _after(bench: Bench, template: Template, statuses: range, name: str) -> Outcome:
    intent = bench.intent()
    bench.prepare(template, intent)
    request = bench.request(intent, template)
    try:
        first = bench.send(request)
    except NoAnswerError as error:
        if 500 not in statuses:
            raise
        return _after_half(bench, intent, request, error.part)
    if first.status not in statuses:
        return inconclusive(f"What was to get a {name} got {first.status}.")
    for _ in range(RETURNS):
        bench.wait(min(named_wait(first) or PAUSE, LONGEST_PAUSE))
        second = bench.send(request)
        if second.status not in (429, 503):
            break
    counted = bench.count([intent], 1)
    if counted is not None and counted > 1:
        return failed(
            f"After a {first.status} the retry did the work again: it was done {often(counted)}, and the first time "
            "was reported as a failure."
        )
    if second.succeeded:
        if counted is None and not bench.known.telling:
            return inconclusive(f"After a {first.status} the retry got {second.status}; effects cannot be counted.")
        if counted == 0:
            return failed(f"After a {first.status} the retry got {second.status}, and nothing was done.")
        return passed(f"After a {first.status} the retry got {second.status}, and the work was done once.")
    if first.status in (429, 503):
        return failed(
            f"After a {first.status} the same key gets {second.status} for ever, however long a client waits."
        )
    if same(first, second) or marked(second) is not None:
        return passed(f"The {first.status} is the answer to this key, and says so each time; nothing is done twice.")
    return passed(f"After a {first.status} a retry is refused with {second.status}; nothing is done twice.")


def _after_half(bench: Bench, intent: Intent, request: Request, part: bytes) -> Outcome:
    """The first attempt was answered by half or with nothing, which is a failure too: half is never the whole."""
    second = bench.final(request)
    counted = bench.count([intent], 1)
    if second.succeeded and part and second.body == part:
        return failed(
            f"The first answer broke off after {len(part)} bytes, and a retry is given those as the whole: half a "
            "result was recorded."
        )
    if counted is not None and counted > 1:
        return failed(f"The first answer broke off, and the retry did the work again: it was done {often(counted)}.")
    if counted is None:
        return inconclusive(f"The first answer broke off, the retry got {second.status}; effects cannot be counted.")
    return passed(f"The first answer broke off; the retry got {second.status}, and the work was done {often(counted)}.")


TRIALS: Final = (rejected_then_corrected, server_error, throttled, unauthorized)
