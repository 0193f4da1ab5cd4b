"""Bodies of JSON that say the same in other bytes, and such as look alike and say something else."""

from __future__ import annotations

import json
from typing import Any, Final

from twicesafe.conformance.bench import Bench
from twicesafe.conformance.findings import Answer, Request
from twicesafe.conformance.templates import Intent
from twicesafe.conformance.trials.judging import given_away, often
from twicesafe.conformance.trials.trial import Outcome, failed, inconclusive, passed, trial, unsupported
from twicesafe.conformance.variants import MEMBER, members, with_member

_NO_JSON: Final = unsupported("The body is no object of JSON.")
BIG: Final = (9007199254740992, 9007199254740993)
"""Two integers that are one as a double."""


@trial("json-member-order", "The same JSON in another order of members is not done again", requests=2)
def json_member_order(bench: Bench) -> Outcome:
    intent = bench.intent()
    request = bench.request(intent)
    found = members(request.body)
    if found is None:
        return _NO_JSON
    other = json.dumps(_turned(found), ensure_ascii=False, indent=1).encode()
    return _alike(bench, intent, request, other, "The same JSON in another order and with other blanks")


@trial("json-number-form", "1 and 1.0 are not done twice", requests=3)
def json_number_form(bench: Bench) -> Outcome:
    intent = bench.intent()
    request = bench.request(intent)
    found = members(request.body)
    if found is None:
        return _NO_JSON
    name = next((name for name, value in found.items() if type(value) is int and 0 < value < 2**52), None)
    if name is None:
        found = {**found, MEMBER: 1}
        name = MEMBER
    one = json.dumps(found, ensure_ascii=False).encode()
    other = json.dumps({**found, name: float(found[name])}, ensure_ascii=False).encode()
    return _alike(bench, intent, request._replace(body=one), other, f"{found[name]} written as {float(found[name])}")


@trial("json-big-integers", "Integers beyond 2**53 that differ are not taken for one", requests=3)
def json_big_integers(bench: Bench) -> Outcome:
    return _apart(bench, BIG[1], BIG[0], "Two integers that differ beyond 2**53")


@trial("json-null", "A member that is null and one that is absent are not taken for one", requests=3)
def json_null(bench: Bench) -> Outcome:
    return _apart(bench, None, ..., "A member that is null and one that is absent")


def _alike(bench: Bench, intent: Intent, request: Request, other: bytes, what: str) -> Outcome:
    first = bench.send(request)
    if not first.succeeded:
        return inconclusive(f"The request with a member more got {first.status}, so there is nothing to compare.")
    second = bench.send(request._replace(body=other))
    if _done_again(bench, intent, first, second):
        return failed(f"{what} was done again: a client that builds its body anew for a retry doubles the order.")
    if not second.succeeded:
        return passed(f"{what} is refused with {second.status}: bytes are compared.")
    if bench.target.counter is None and not given_away(bench, first, second):
        return inconclusive(f"{what} got {second.status}; whether it was done again, nobody tells.")
    return passed(f"{what} is the same request.")


def _apart(bench: Bench, value: object, other: object, what: str) -> Outcome:
    """Two values of a member that nobody knows, after making sure that members that nobody knows count at all."""
    intent = bench.intent()
    plain = bench.request(intent)
    if members(plain.body) is None:
        return _NO_JSON
    first = bench.send(plain._replace(body=_with(plain.body, value)))
    if not first.succeeded:
        return inconclusive(f"A member that the API does not know is refused with {first.status}.")
    second = bench.send(plain._replace(body=_with(plain.body, other)))
    if not second.succeeded:
        return passed(f"{what} are two requests: the second got {second.status}.")
    if _done_again(bench, intent, first, second):
        return failed(f"{what}, under one key, were both done: {often(2)}.")
    control = bench.send(plain._replace(body=_with(plain.body, "something else")))
    if control.succeeded:
        return inconclusive("Members that the API does not know are not compared, so nothing can be told by them.")
    return failed(f"{what} are taken for one request: the second was given the first one's answer.")


def _done_again(bench: Bench, intent: Intent, first: Answer, second: Answer) -> bool:
    counted = bench.count([intent], 1)
    if counted is not None:
        return counted > 1
    return second.succeeded and bench.known.telling and not given_away(bench, first, second)


def _with(body: bytes, value: object) -> bytes:
    made = body if value is ... else with_member(body, value)
    assert made is not None, "it has members"
    return made


def _turned(value: Any) -> Any:
    """The same value with every object's members in the opposite order."""
    if isinstance(value, dict):
        return {name: _turned(one) for name, one in reversed(value.items())}
    return [_turned(one) for one in value] if isinstance(value, list) else value


TRIALS: Final = (json_member_order, json_number_form, json_big_integers, json_null)
