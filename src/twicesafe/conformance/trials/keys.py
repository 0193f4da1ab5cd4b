"""Keys that are none: missing, empty, malformed, far too long, or two at once."""

from __future__ import annotations

import secrets
import string
from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer, Request
from twicesafe.conformance.trials.judging import described, often
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported
from twicesafe.conformance.variants import without_key
from twicesafe.conformance.wire import NoAnswerError

_IN_BODY: Final = "The key travels in the body, where there are no header lines to break."


@trial("missing-key", "Without a key a request is refused, or done like any other", requests=2)
def missing_key(bench: Bench) -> Outcome:
    intent = bench.intent()
    request = without_key(bench.target, bench.request(intent))
    if request is None:
        return inconclusive("The key cannot be taken out of this body.")
    return _keyless(bench, [bench.send(request), bench.send(request)], bench.count([intent], 0), "without a key")


@trial("empty-key", "An empty or blank key is refused, or taken as none", requests=4)
def empty_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    outcome = passed("")
    for key in ("", "   "):
        intent = bench.intent()
        request = bench.rewritten(bench.request(intent), key)
        answers = [bench.send(request), bench.send(request)]
        name = "with an empty key" if not key else "with a blank key"
        outcome = _keyless(bench, answers, bench.count([intent], 0), name)
        if outcome.verdict != "pass":
            return outcome
    return outcome


def _keyless(bench: Bench, answers: list[Answer], counted: int | None, how: str) -> Outcome:
    first, second = answers
    if broken := [answer for answer in answers if answer.status >= 500]:
        return failed(f"A request {how} got {broken[0].status}, where it should be refused or done.")
    if not first.succeeded and not second.succeeded:
        if counted:
            return failed(f"A request {how} was refused with {first.status}, and its work was done {often(counted)}.")
        return passed(f"A request {how} is refused with {first.status} before anything is done.")
    if bench.target.required:
        return failed(f"A request {how} got {first.status}, although a key is required: it can be done twice.")
    if first.succeeded != second.succeeded:
        return failed(f"Two requests {how} got {first.status} and {second.status}: they were taken for one.")
    if (counted is not None and counted < 2) or (counted is None and bench.known.telling and first.body == second.body):
        return failed(f"Two requests {how} were taken for one: strangers share an answer, and orders are swallowed.")
    if counted is None and not bench.known.telling:
        return inconclusive(f"Requests {how} got {described(first)}; whether both were done, nobody tells.")
    return passed(f"A request {how} is done each time it comes, as without idempotency.")


@trial("malformed-key", "A key with control or non-ASCII characters is refused before anything is done", requests=6)
def malformed_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    taken = []
    for name, key in (
        ("a control character", "a\x01b"),
        ("a tab within", "a\tb"),
        ("non-ASCII characters", "schlüssel-日"),
    ):
        intent = bench.intent()
        salted = key + secrets.token_hex(8)
        answers = _sent_twice(bench, bench.with_key(bench.request(intent), salted))
        outcome = _odd(bench, answers, bench.count([intent], 0), f"A key with {name}")
        if outcome is not None:
            return outcome
        if any(answer is not None and answer.succeeded for answer in answers):
            taken.append(name)
    if taken:
        return unsupported(f"Keys with {' or '.join(taken)} are taken, and protect; what is between may refuse them.")
    return passed("All were refused before anything was done.")


@trial("overlong-key", "A key that is far too long is refused, or told from others to its end", requests=10)
def overlong_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    longest = 0
    for length in (256, 1000, 5000):
        intent = bench.intent()
        key = _random(length)
        answers = _sent_twice(bench, bench.with_key(bench.request(intent), key))
        outcome = _odd(bench, answers, bench.count([intent], 0), f"A key of {length} characters")
        if outcome is not None:
            return outcome
        if not any(answer is not None and answer.succeeded for answer in answers):
            break
        longest = length
        first = answers[0]
        other = bench.intent()
        second = bench.send(bench.with_key(bench.request(other), key[:-1] + ("a" if key[-1] != "a" else "b")))
        counted = bench.count([other], 1)
        if counted == 0 or (
            counted is None and first is not None and bench.known.telling and first.body == second.body
        ):
            return failed(
                f"Two keys of {length} characters that differ in the last are taken for one: keys are cut off."
            )
    if longest:
        return unsupported(f"Keys of {longest} characters are taken, and told from others to their end.")
    return passed("A key of 256 characters is refused before anything is done.")


@trial("doubled-key", "Two different keys on one request are refused before anything is done", requests=2)
def doubled_key(bench: Bench) -> Outcome:
    if not bench.target.header:
        return unsupported(_IN_BODY)
    intent = bench.intent()
    request = bench.request(intent)
    second = (bench.target.header, bench.request(bench.intent()).values(bench.target.header)[0])
    doubled = request._replace(lines=(*request.lines, second))
    answers = _sent_twice(bench, doubled)
    outcome = _odd(bench, answers, bench.count([intent], 0), "Two keys on one request")
    if outcome is not None:
        return outcome
    if any(answer is not None and answer.succeeded for answer in answers):
        return failed(
            "Two different keys on one request are taken: which of them counts depends on who reads it, and a proxy in "
            "between may choose the other."
        )
    return passed("Two different keys on one request are refused before anything is done.")


def _sent_twice(bench: Bench, request: Request) -> list[Answer | None]:
    """Again only where it was taken. A server may also close the connection on what it cannot read."""
    answers: list[Answer | None] = []
    for _ in range(2):
        try:
            answers.append(bench.send(request))
        except NoAnswerError:
            answers.append(None)
        last = answers[-1]
        if last is None or not last.succeeded:
            break
    return answers


def _odd(bench: Bench, answers: list[Answer | None], counted: int | None, what: str) -> Outcome | None:
    """What is wrong with how a key was taken that could have been refused; None where nothing is."""
    done = [answer for answer in answers if answer is not None and answer.succeeded]
    if broken := [answer for answer in answers if answer is not None and answer.status >= 500]:
        return failed(
            f"{what} got {broken[0].status}: nobody looks at keys before they are used, and a client takes it for a "
            "failure and retries."
        )
    if not done and counted:
        return failed(f"{what} was refused, and the work was done {often(counted)}.")
    if (counted or 0) > 1 or (counted is None and bench.known.telling and len({one.body for one in done}) > 1):
        return failed(f"{what} is taken and does not protect: two attempts were two effects.")
    return None


def _random(length: int) -> str:
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


TRIALS: Final = (missing_key, empty_key, malformed_key, overlong_key, doubled_key)
