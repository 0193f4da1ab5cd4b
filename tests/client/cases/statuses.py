"""Answers of servers that are down, busy or not sure."""

from __future__ import annotations

from tests.client.cases.acts import BUSY, DOWN, IN_PROGRESS, OK, REPLAY
from tests.client.cases.case import (
    ATTEMPTS,
    BLIND,
    CHARGE,
    DEADLINE,
    DELETE,
    GET,
    LIMITS,
    NOT_REPEATABLE,
    PATCH,
    PUT,
    SEARCH,
    Case,
    done,
    refused,
    unknown,
)
from tests.client.scripted import answer, half_head, problem, reset_after_commit, reset_before_reading

FINE = answer(200)

PASSING = [
    *[
        Case(CHARGE, f"{status}, then done", [answer(status), OK], 2, done(), "it passes")
        for status in (408, 425, 429, 500, 502, 503, 504)
    ],
    Case(PUT, "500, then done", [answer(500), FINE], 2, done(200), "twice is once"),
    Case(DELETE, "502, then done", [answer(502), answer(204)], 2, done(204), "twice is once"),
    Case(
        PATCH, "503, then changed", [DOWN, answer(412)], 2, unknown(412), "503 does not say that nothing was done"
    ),
    Case(GET, "504, then done", [answer(504), FINE], 2, done(200), "to ask changes nothing"),
    Case(SEARCH, "503, then done", [DOWN, FINE], 2, done(200), "nor does a POST that only asks"),
    Case(
        CHARGE, "one fault after another", [answer(502), reset_after_commit, answer(504), REPLAY], 4,
        done(replayed=True), "they are counted together",
    ),
    Case(BLIND, "500", [answer(500)], 1, unknown(500, NOT_REPEATABLE), "it may have failed after its effect"),
    Case(BLIND, "503", [DOWN], 1, unknown(503, NOT_REPEATABLE), "a gateway's, whose connection broke at any moment"),
    Case(BLIND, "503 and Retry-After", [BUSY], 1, refused(503, NOT_REPEATABLE), "refused by one who knows its load"),
    Case(BLIND, "429", [answer(429)], 1, refused(429, NOT_REPEATABLE), "nothing was done, and that is the answer"),
    Case(BLIND, "408", [answer(408)], 1, refused(408, NOT_REPEATABLE), "the server did not have the whole request"),
]  # fmt: skip

LASTING = [
    Case(CHARGE, "503 for good", [DOWN] * 4, 4, unknown(503, ATTEMPTS), "the attempts have an end"),
    Case(
        CHARGE, "503 and Retry-After for good", [BUSY] * 4, 4, refused(503, ATTEMPTS),
        "each of them says that nothing was done", waits=[(2, 3), (2, 3), (2, 4)],
    ),
    Case(CHARGE, "429 for good", [answer(429)] * 4, 4, refused(429, ATTEMPTS), "no doubt is left"),
    Case(GET, "503 for good", [DOWN] * 4, 4, refused(503, ATTEMPTS), "nothing was to be done"),
    Case(CHARGE, "501", [answer(501)], 1, refused(501), "given instead of working, by definition"),
    Case(CHARGE, "520", [answer(520)], 1, unknown(520), "not reviewed: neither repeated nor believed"),
    Case(CHARGE, "429, then refused", [answer(429), answer(402)], 2, refused(402), "nothing was done before either"),
    Case(CHARGE, "503, then refused", [DOWN, answer(402)], 2, unknown(402), "503 may have been done"),
    Case(
        CHARGE, "503 and Retry-After, then refused", [BUSY, answer(402)], 2, refused(402), "503 said that it was not",
        waits=[(2, 3)],
    ),
    Case(
        CHARGE, "dropped, busy, refused", [reset_before_reading, BUSY, answer(402)], 2, unknown(402),
        "what is known never turns worse into better", waits=[(0, 0.5), (2, 3)],
    ),
]  # fmt: skip

AT_WORK = [
    Case(CHARGE, "in progress, done", [IN_PROGRESS, REPLAY], 2, done(replayed=True), "waited out", waits=[(1, 1.5)]),
    Case(CHARGE, "in progress by its type", [problem(409, "in-progress"), OK], 2, done(), "without a time to wait"),
    Case(
        CHARGE, "in progress by another's type",
        [answer(409, json_={"type": "https://pay.example/errors/in-progress/"}, kind="application/problem+json"), OK],
        2, done(), "types end alike, whoever names them",
    ),
    Case(
        CHARGE, "in progress by Retry-After", [answer(409, "Retry-After: 1"), REPLAY], 2, done(replayed=True),
        "no problem document is needed", waits=[(1, 1.5)],
    ),
    Case(
        CHARGE, "in progress for long", [*[IN_PROGRESS] * 6, REPLAY], 7, done(replayed=True),
        "to be at work is no failure, and uses up no attempt",
        waits=[(1, 1.5), (1, 2), (1, 3), (1, 5), (1, 9), (1, 11)], limits=LIMITS._replace(deadline=120.0),
    ),
    Case(
        CHARGE, "in progress for good", [IN_PROGRESS] * 3, 3, unknown(409, ATTEMPTS), "and has an end all the same",
        waits=[(1, 1.5), (1, 2)], limits=LIMITS._replace(in_progress=2),
    ),
    Case(
        CHARGE, "in progress for an hour", [problem(409, "in-progress", "Retry-After: 3600")], 1,
        unknown(409, DEADLINE), "nobody waits in vain",
    ),
    Case(
        CHARGE, "in progress, dropped, done", [IN_PROGRESS, half_head, REPLAY], 3, done(replayed=True),
        "it may still be at work", waits=[(1, 1.5), (0, 0.5)],
    ),
    Case(
        CHARGE, "in progress, failed", [IN_PROGRESS, answer(500, "Idempotent-Replayed: true")], 2,
        refused(500, replayed=True), "that attempt's answer, whatever it is", waits=[(1, 1.5)],
    ),
    Case(
        CHARGE, "in progress, invalid", [IN_PROGRESS, answer(422)], 2, unknown(422), "of this one, or of that one?",
        waits=[(1, 1.5)],
    ),
    Case(
        PUT, "409 and Retry-After, done", [answer(409, "Retry-After: 1"), FINE], 2, done(200),
        "without a key nothing of ours is at work: it was refused, for a while", waits=[(1, 1.5)],
    ),
    Case(
        PUT, "409 and Retry-After for good", [answer(409, "Retry-After: 1")] * 2, 2, refused(409, ATTEMPTS),
        "a refusal uses up an attempt", waits=[(1, 1.5)], limits=LIMITS._replace(attempts=2),
    ),
    Case(
        BLIND, "409 and Retry-After", [answer(409, "Retry-After: 1")], 1, refused(409, NOT_REPEATABLE),
        "nor is anything of it at work",
    ),
]  # fmt: skip

CASES = [*PASSING, *LASTING, *AT_WORK]
