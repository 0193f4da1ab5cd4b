"""Making a check: the target is got to know, and then one trial after the other is made of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from twicesafe.conformance.bench import Bench, Known
from twicesafe.conformance.errors import CannotCheckError
from twicesafe.conformance.findings import Effects, Finding, Report, Verdict
from twicesafe.conformance.limits import Limits, OutOfBoundsError
from twicesafe.conformance.profiles import profile
from twicesafe.conformance.reports.visible import on_one_line
from twicesafe.conformance.target import Target
from twicesafe.conformance.templates import fill, from_environment, new_intent
from twicesafe.conformance.trials import ALL
from twicesafe.conformance.trials.trial import Outcome, Trial, failed, inconclusive
from twicesafe.conformance.wire import NoAnswerError, find

ACQUAINTANCE: Final = 4
"""Requests at most that are sent before the first trial, those that count effects apart."""

_RIGHT: Final = (Verdict.PASS, Verdict.UNSUPPORTED)
"""Verdicts with which as many effects were wanted as were counted: a key that may be missing makes two or none."""


def check(
    target: Target,
    *,
    profile_name: str | None = None,
    trials: Sequence[Trial] = ALL,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    told: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Make these trials of a target. `told` hears of each finding at once.

    CannotCheckError where the target is out of reach, is not to be touched, or does not even take the plain request.
    """
    at, began = datetime.now(UTC), time.monotonic()
    rules = profile(profile_name or target.profile)
    for url in _urls(target):
        find(url, anywhere=limits.anywhere)
    first = Bench(target, rules, limits, ACQUAINTANCE, Known(0.0, telling=False))
    try:
        known = _acquaintance(first)
    finally:
        first.close()
    sent, findings = first.sent, []
    for trial in trials:
        left = limits.seconds - (time.monotonic() - began)
        bench = Bench(target, rules, limits, trial.most(limits), known)
        try:
            outcome = _made(trial, bench) if left > 0 else inconclusive("Time was up before its turn came.")
        finally:
            bench.close()
        sent += bench.sent
        effects = bench.effects
        if effects is not None and outcome.verdict in _RIGHT:
            effects = Effects(effects.counted, effects.counted)
        finding = Finding(
            trial.name, trial.title, outcome.verdict, outcome.meaning, bench.evidence, effects, bench.seconds
        )
        findings.append(finding)
        told(finding)
    return Report(
        target=target.title,
        url=target.request.url,
        profile=rules.name,
        findings=tuple(findings),
        seconds=time.monotonic() - began,
        requests=sent,
        version=version("twicesafe"),
        secrets=_secrets(target),
        began=at,
        carrier=target.carrier,
    )


def most_requests(trials: Sequence[Trial], limits: Limits) -> int:
    """How many requests a check may send, those that count effects apart."""
    return ACQUAINTANCE + sum(trial.most(limits) for trial in trials)


def _made(trial: Trial, bench: Bench) -> Outcome:
    try:
        return trial.run(bench)
    except OutOfBoundsError as error:
        return inconclusive(f"The trial was broken off: {error}.")
    except NoAnswerError as error:
        if bench.seconds >= bench.limits.trial:
            return inconclusive(f"The trial was broken off: it may take {bench.limits.trial:.0f} s.")
        return failed(f"A request got no answer, where one was due: {error}. A client cannot tell what became of it.")
    except CannotCheckError as error:
        return inconclusive(f"It could not be tried: {error}.")


def _acquaintance(bench: Bench) -> Known:
    """The plain request under two keys: how long it takes, and whether its answers tell one effect from another."""
    intent = bench.intent()
    try:
        first = bench.send(bench.request(intent))
        second = bench.send(bench.request(intent.with_key(bench.intent().key)))
    except NoAnswerError as error:
        raise CannotCheckError(f"{bench.target.request.url} does not answer: {error}") from error
    except OutOfBoundsError as error:
        raise CannotCheckError(f"{bench.target.request.url}: {error}") from error
    if not first.succeeded:
        # What it said may repeat a key, a token, or whatever else was sent, and nothing is masked here.
        kind = first.value("Content-Type").partition(";")[0].strip() or "no media type"
        said = f"{len(first.body):,} bytes of {on_one_line(kind)[:60]}"
        raise CannotCheckError(f"the plain request got {first.status}, so there is nothing to try ({said})")
    bench.count([intent], 2)
    took = min(exchange.seconds for exchange in bench.evidence)
    return Known(took, telling=second.succeeded and second.status == first.status and second.body != first.body)


def _urls(target: Target) -> list[str]:
    """Everywhere that something will be sent."""
    intent = new_intent(target.key)
    urls = [template.url for template in target.templates]
    if target.counter is not None:
        urls.append(target.counter.asks[0])
    return [fill(url, intent) for url in urls if url]


def _secrets(target: Target) -> frozenset[str]:
    """The credentials, and whatever comes from the environment, which is where secrets are kept."""
    lines = [line for template in target.templates for line in template.lines]
    lines += [*(target.other_caller or ()), *(target.unauthorized or ())]
    texts = [text for template in target.templates for text in template.texts()]
    if target.counter is not None:
        lines += target.counter.asks[1]
        texts += target.counter.texts()
    intent = new_intent(target.key)
    found: set[str] = set()
    for name, value in lines:
        if name.lower() in target.secret_headers:
            with suppress(CannotCheckError):  # of a variable that is not set nothing was sent
                found.add(fill(value, intent))
    found.update(secret for text in (*texts, *(value for _, value in lines)) for secret in from_environment(text))
    return frozenset(found - {""})
