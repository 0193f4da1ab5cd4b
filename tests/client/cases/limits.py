"""Attempts, deadlines and budgets that are used up, and bodies that have to last."""

from __future__ import annotations

from tests.client.cases.acts import DOWN, IN_PROGRESS, OK, REPLAY, nobody
from tests.client.cases.case import (
    ATTEMPTS,
    BUDGET,
    CHARGE,
    DEADLINE,
    FORGOTTEN,
    GET,
    LIMITS,
    PUT,
    Case,
    Trait,
    done,
    refused,
    unknown,
)
from tests.client.scripted import answer, reset_after_commit, reset_before_reading

LIMITED = [
    Case(
        CHARGE, "one attempt", [DOWN], 1, unknown(503, ATTEMPTS), "no retry is asked for",
        limits=LIMITS._replace(attempts=1),
    ),
    Case(
        CHARGE, "two attempts", [answer(500)] * 2, 2, unknown(500, ATTEMPTS), "the first is one of them",
        limits=LIMITS._replace(attempts=2),
    ),
    Case(
        CHARGE, "asleep for too long", [DOWN], 1, unknown(503, DEADLINE), "a lid was closed: no time is left to try",
        waits=[(0, 0.5)], limits=LIMITS._replace(overslept=30.0),
    ),
    Case(
        CHARGE, "asleep for a while", [DOWN, OK], 2, done(), "what is left of the time is used",
        limits=LIMITS._replace(overslept=5.0),
    ),
]  # fmt: skip

PENNILESS = LIMITS._replace(budget=0.0)
SHORT_MEMORY = LIMITS._replace(remembers=4.0)
FORGETFUL = [
    Case(
        CHARGE, "remembered for long enough", [reset_after_commit, REPLAY], 2, done(replayed=True),
        "a key that is still known is sent again", limits=SHORT_MEMORY,
    ),
    Case(
        CHARGE, "asked back when the key is forgotten", [reset_after_commit, answer(503, "Retry-After: 5")], 2,
        unknown(503, FORGOTTEN), "by then it would be a second charge", waits=[(0, 0.5)], limits=SHORT_MEMORY,
    ),
    Case(
        CHARGE, "asleep until the key is forgotten", [reset_after_commit], 1, unknown(stop=FORGOTTEN),
        "by then it would be a second charge",
        waits=[(0, 0.5)], limits=SHORT_MEMORY._replace(overslept=30.0, deadline=60.0),
    ),
    Case(
        PUT, "asked back when keys are forgotten", [answer(503, "Retry-After: 5"), answer(200)], 2, done(200),
        "twice is once, key or no key", waits=[(5, 7.5)], limits=SHORT_MEMORY,
    ),
]  # fmt: skip

SPENT = [
    Case(CHARGE, "no budget", [DOWN], 1, unknown(503, BUDGET), "the answer that came is the answer", limits=PENNILESS),
    Case(GET, "no budget", [answer(500)], 1, refused(500, BUDGET), "to ask is load too", limits=PENNILESS),
    Case(
        CHARGE, "no budget, in progress", [IN_PROGRESS, REPLAY], 2, done(replayed=True), "to wait for it costs nothing",
        waits=[(1, 1.5)], limits=PENNILESS,
    ),
    Case(
        CHARGE, "a budget of one refusal", [answer(429)] * 2, 2, refused(429, BUDGET), "each costs one",
        limits=LIMITS._replace(budget=1.0),
    ),
    Case(
        CHARGE, "a budget of no unknown", [reset_after_commit], 1, unknown(stop=BUDGET), "each costs two",
        limits=LIMITS._replace(budget=1.0),
    ),
    Case(
        CHARGE, "a budget of one unknown", [DOWN, DOWN], 2, unknown(503, BUDGET), "each costs two",
        limits=LIMITS._replace(budget=3.0),
    ),
    Case(
        CHARGE, "a budget of one connection", [nobody, nobody], 0, unknown(stop=BUDGET, sent="no"),
        "what was not sent is no unknown", limits=LIMITS._replace(budget=1.0), needs=Trait.PROOF,
    ),
]  # fmt: skip

BODIES = [
    Case(CHARGE, "no body", [DOWN, OK], 2, done(), "twice nothing is nothing", body="none"),
    Case(CHARGE, "every byte", [DOWN, OK], 2, done(), "bytes are not text", body="bytes"),
    Case(CHARGE, "a megabyte", [reset_before_reading, DOWN, OK], 2, done(), "broken off on its way", body="megabyte"),
    Case(
        CHARGE, "an iterator", [DOWN, OK], 2, done(), "it is read once and sent twice",
        body="iterator", needs=Trait.STREAMS,
    ),
    Case(
        PUT, "a file that stands at ten", [DOWN, OK], 2, done(), "sent from there, twice",
        body="file", needs=Trait.STREAMS,
    ),
    Case(
        PUT, "a pipe", [reset_after_commit, OK], 2, done(), "it cannot be wound back",
        body="pipe", needs=Trait.STREAMS,
    ),
]  # fmt: skip

CASES = [*LIMITED, *FORGETFUL, *SPENT, *BODIES]
