"""A retry after the first answer: it gets that answer again, and a fresh key does not."""

from __future__ import annotations

from typing import Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer
from twicesafe.conformance.trials.judging import MARKERS, Times, described, marked, same, seen
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported

PER_EXCHANGE: Final = frozenset(
    {
        "age", "alt-svc", "cf-ray", "connection", "content-length", "date", "idempotency-key-retention", "keep-alive",
        "nel", "report-to", "request-id", "retry-after", "server", "server-timing", "set-cookie", "traceparent",
        "tracestate", "transfer-encoding", "via", "x-amzn-requestid", "x-amzn-trace-id", "x-correlation-id",
        "x-process-time", "x-request-id", "x-response-time", "x-runtime", "x-trace-id", "www-authenticate",
        *(name.lower() for name in MARKERS),
    }
)  # fmt: skip
"""Lines that speak of one exchange, or of the connection; a replay has its own or none. The length is compared with
the bytes."""


@trial("replay", "A retry is given the first answer, and the work is not done again", requests=3)
def replay(bench: Bench) -> Outcome:
    intent = bench.intent()
    request = bench.request(intent)
    first, second, third = bench.send(request), bench.send(request), bench.send(request)
    found = seen(bench, [intent], [first, second, third])
    if found.times is Times.TOO_OFTEN:
        return failed(f"Three attempts with one key, and {found.words}: whoever retries pays again.")
    if found.times is Times.NOT_DONE:
        return failed(f"The first answer was {first.status}, but {found.words}.")
    for later in (second, third):
        if later.status != first.status:
            return failed(
                f"The first answer was {first.status} and a retry got {later.status}: whoever lost the first answer "
                "never learns what it said."
            )
        if later.body != first.body:
            return failed("A retry got other bytes than the first attempt: it was not told what was done, but anew.")
    if found.times is Times.UNTOLD:
        return inconclusive(f"Retries got the first answer, but {found.words}.")
    return passed(f"Retries got {first.status} and the same {len(first.body)} bytes; {found.words}.")


@trial("replay-headers", "A retry is given the first answer's header lines", requests=2)
def replay_headers(bench: Bench) -> Outcome:
    request = bench.request(bench.intent())
    first, second = bench.send(request), bench.send(request)
    if not same(first, second):
        return inconclusive("The retry did not get the first answer at all.")
    before, after = _kept(first), _kept(second)
    if before == after:
        return passed(f"All {len(before)} lines that speak of the answer came back, in their order.")
    if _by_name(before) == _by_name(after):
        return passed(f"All {len(before)} lines that speak of the answer came back; those of one name in their order.")
    if sorted(before) == sorted(after):
        return failed("A retry has the lines of one name in another order, which is not the same.")
    missing = [name for name, _ in before if (name, _) not in after]
    if missing:
        return failed(
            f"A retry lacks or differs in {', '.join(dict.fromkeys(missing))}: a client that reads it, as it does the "
            "Location of what was made, fails on the retry only."
        )
    added = [name for name, _ in after if (name, _) not in before]
    return failed(f"A retry has lines that the first answer had not, and that are not known as markers: {added[0]}.")


@trial("replay-marker", "A replay says that it is one", requests=2)
def replay_marker(bench: Bench) -> Outcome:
    request = bench.request(bench.intent())
    first, second = bench.send(request), bench.send(request)
    if (name := marked(first)) is not None:
        return failed(f"The first answer already has {name}: a client believes that somebody did it before.")
    name = marked(second)
    wanted = bench.profile.marker
    if wanted and (name or "").lower() != wanted.lower():
        return failed(f"{bench.profile.title} marks replays with {wanted}, and the retry's answer has no such line.")
    if name is None:
        return unsupported("Replays look like first answers. Nothing is done wrong, but nobody can count retries.")
    return passed(f"Replays, and only they, have {name}.")


@trial("fresh-key", "The same parameters under a fresh key are done again", requests=2)
def fresh_key(bench: Bench) -> Outcome:
    intent = bench.intent()
    other = intent.with_key(bench.intent().key)
    first, second = bench.send(bench.request(intent)), bench.send(bench.request(other))
    if not second.succeeded:
        return inconclusive(
            f"The same parameters under a fresh key got {second.status}: perhaps the application itself wants them to "
            "be unique. Put {{unique}} elsewhere, or nowhere."
        )
    if (name := marked(second)) is not None:
        return failed(f"The second of two keys got a replay, as {name} says: a wanted second order is swallowed.")
    counted = bench.count([intent, other], 2)
    if counted is not None and counted < 2:
        return failed(
            f"Two keys with the same parameters, and the work was done {counted} time: parameters are taken for the "
            "intent, and a wanted second order is swallowed."
        )
    if counted is not None and counted > 2:
        return failed(f"Two keys, two requests, and the work was done {counted} times.")
    if counted is None and not bench.known.telling:
        return inconclusive(
            f"Both keys got {described(second)}, but effects cannot be counted, and answers do not tell."
        )
    if counted is None and second.body == first.body:
        return failed("The second of two keys got the first one's answer: a wanted second order is swallowed.")
    return passed("The key names the intent: two keys with the same parameters were two effects.")


def _by_name(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The values of each name in their order; the order of names says nothing."""
    return {name: [value for found, value in lines if found == name] for name, _ in lines}


def _kept(answer: Answer) -> list[tuple[str, str]]:
    apart = {name.strip().lower() for value in answer.values("Connection") for name in value.split(",")}
    return [
        (name.lower(), value)
        for name, value in answer.lines
        if name.lower() not in PER_EXCHANGE | apart and "ratelimit" not in name.lower()
    ]


TRIALS: Final = (replay, replay_headers, replay_marker, fresh_key)
